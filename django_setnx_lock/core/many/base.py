"""What a lock over several keys is, apart from asking Redis for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .. import clock, protocol
from ..batch import is_one_server
from ..errors import LockBusy, LockError
from ..held import Held
from ..lock import RedisLock
from ..masters.masters import Masters
from ..redlock import Redlock
from ..shelf import Shelf
from ..target import Target
from .handle import names_of
from .held import LossRelay, MultiHeld

_Lock = TypeVar("_Lock", bound="MultiBase")


class MultiBase:
    """The locks, and what is held through them. See :class:`MultiLock`."""

    def __init__(
        self,
        client: Any,
        names: Iterable[str],
        timeout: float | None = None,
        sleep: float = 0.1,
        *,
        keys: Iterable[str] | None = None,
        on_lost: Callable[[MultiHeld], object] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(names, str):
            raise TypeError(f"names is a list of names, not {names!r}: write [{names!r}]")
        names = list(names)
        called = dict(zip(names, names if keys is None else keys, strict=True))
        relay = None if on_lost is None else LossRelay(on_lost)
        make = Redlock if isinstance(client, (Masters, list, tuple)) else RedisLock
        self._be(
            [
                make(client, name, timeout, sleep, key=key, on_lost=relay, **options)
                for name, key in called.items()
            ],
            relay,
        )

    @classmethod
    def of(cls: type[_Lock], locks: Sequence[RedisLock], relay: LossRelay | None = None) -> _Lock:
        """One over ``locks``, which differ in nothing but their names; ``relay``: their on_lost."""
        made = cls.__new__(cls)
        made._be(locks, relay)
        return made

    def _be(self, locks: Sequence[RedisLock], relay: LossRelay | None) -> None:
        if not locks:
            raise ValueError("there is no key to lock: give one at least")
        self._locks = locks
        self._relay = relay
        self._first = first = locks[0]
        self.keys = tuple(lock.key for lock in locks)
        self.names = tuple(lock.name for lock in locks)
        self.blocking = first.blocking
        self.blocking_timeout = first.blocking_timeout
        self.thread_local = first.thread_local
        self.raise_on_release_error = first.raise_on_release_error
        self.reentrant = first.reentrant
        # A shelf keeps whatever can be released and lost.
        self._shelf: Any = Shelf(thread_local=self.thread_local)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key} timeout={self.timeout:g}>"

    @property
    def key(self) -> str:
        """What messages call it: all keys."""
        return names_of(self.keys)

    @property
    def timeout(self) -> float:
        """The lease in seconds."""
        return self._first.timeout

    @property
    def client(self) -> Any:
        """The redis-py client it asks."""
        return self._first.client

    @property
    def held(self) -> MultiHeld | None:
        """The handle of what this thread holds through this object, or None."""
        held: MultiHeld | None = self._shelf.last
        return held

    @property
    def fences(self) -> dict[str, int] | None:
        """The fencing number of each lock by key while held, else None."""
        return self.held.fences if self.held is not None else None

    @property
    def lost(self) -> bool:
        """Whether they were taken and one is known to be ours no longer. Asks nobody."""
        return self.held is not None and self.held.lost

    def remaining(self) -> float:
        """Seconds left of the lease that ends first; 0.0 when not held."""
        return self.held.remaining() if self.held is not None else 0.0

    @property
    def _targets(self) -> list[Target]:
        return [lock._target for lock in self._locks]

    @property
    def _in_order(self) -> list[RedisLock]:
        """In the order in which everybody takes them: who holds one waits for later ones only."""
        return sorted(self._locks, key=lambda lock: lock.name)

    def _are_asked_together(self) -> bool:
        """Whether one script can take them all."""
        targets = self._targets
        return is_one_server(targets) and all(one.dialect is protocol for one in targets)

    def _limit(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        if not (self.blocking if blocking is None else blocking):
            return 0
        return self.blocking_timeout if blocking_timeout is None else blocking_timeout

    def _holding(self, what: str) -> MultiHeld:
        held = self.held
        if held is None:
            message = f"cannot {what} the locks {self.key}: they are not held here"
            raise LockError(message, key=self.key)
        return held

    def _all_of(self, taken: dict[str, Held]) -> MultiHeld:
        """The handle of what was ``taken``, by name."""
        held = MultiHeld([taken[name] for name in self.names])
        if self._relay is not None:
            self._relay.watch(held)
        return held

    def _refuse_if_late(self, held: MultiHeld, give_up_at: float | None) -> None:
        """Raise LockBusy unless there is time to begin anew, as one of the locks was lost."""
        if give_up_at is not None and clock.now() >= give_up_at:
            lost = next((one for one in held.parts if one.lost), held.parts[0])
            raise LockBusy(
                f"the lock {lost.key!r} was lost again while others were waited for", key=lost.key
            )


def time_until(end: float | None) -> float | None:
    """The seconds until then, 0 when it is past; None without end."""
    return None if end is None else max(end - clock.now(), 0)
