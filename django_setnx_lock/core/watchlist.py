"""What is to be renewed, and who is to be looked after. Who does it is another matter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from .courier import server_of
from .errands import Look

if TYPE_CHECKING:
    from .grant import Grant
    from .patrol import Watched
    from .target import Target

# Who works on it looks this often although nothing is due: it may not hear that the machine slept.
LONGEST_SLEEP = 1.0
# How long what looks are owed may take at the end.
EXIT_WITHIN = 0.5


class WatchList(ABC):
    """Locks to be kept alive until they are forgotten, lost, or nobody is left to hold them.

    ``now``: the clock.
    """

    # How late a look may be, so that nobody need be woken for it.
    _look_slack = 0.0

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._clear()

    def _clear(self) -> None:
        # Handles are only referred to: one that nobody can release is renewed no longer.
        self._held: dict[int, Watched] = {}
        self._looks: dict[tuple[int, str], Look] = {}

    @abstractmethod
    def _attend(self, due: float) -> None:
        """See to it that somebody is at work at ``due``."""

    def watch(self, held: Grant) -> None:
        """Renew ``held`` from now on."""
        self._held[held.number] = (ref(held), held.key, held.lease.due)
        self._attend(held.lease.due)

    def forget(self, held: Grant) -> bool:
        """Renew ``held`` no longer. Gives whether it was being renewed."""
        return self._held.pop(held.number, None) is not None

    def forget_all(self) -> None:
        """Renew nothing of what is held now, and look after nobody."""
        self._held.clear()
        self._looks.clear()

    def hurry(self, held: Grant) -> None:
        """Take note that ``held``, if it is being renewed, may be due sooner than it was."""
        if held.number in self._held:
            self._attend(held.lease.due)

    def owe_look(self, target: Target, head: str) -> None:
        """Look soon whether the waiter ``head`` has claimed ``target``, which it was handed.

        It takes the place of an earlier look at the same lock.
        """
        look = Look(target, head, self._now(), self._has_looked)
        self._looks[server_of(target.client), target.keys.name] = look
        self._attend(look.due + self._look_slack)

    def has_seen(self, target: Target, asked: float) -> None:
        """Take note that ``target`` is held by one of ours, by the answer to what was sent then.

        What a look would find: so none that was owed before is needed.
        """
        if not self._looks:
            return
        place = (server_of(target.client), target.keys.name)
        look = self._looks.get(place)
        if look is not None and look.owed_since <= asked:
            self._looks.pop(place, None)

    def _has_looked(self, look: Look) -> None:
        place = (server_of(look.client), look.target.keys.name)
        if self._looks.get(place) is look:
            del self._looks[place]

    def _hasten_looks(self) -> None:
        """Have all looks made now, and only once more."""
        for look in list(self._looks.values()):
            look.is_last = True
            look.due = self._now()
