"""One turn of the watchdog over all that it looks after."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import ref

from .courier import Courier, server_of, tell_failure
from .errands import Errand, Look, Renewal
from .errors import LockLost
from .events import Apart
from .line import Line

if TYPE_CHECKING:
    from .grant import Grant
    from .target import Target

    # A handle, its key, and when it was first due.
    Watched: TypeAlias = tuple[ref[Grant], str, float]

logger = logging.getLogger("django_setnx_lock.renewal")

# How long a connection, or the watchdog's thread, is kept that nothing needs any more.
LINGER = 5.0
# How many requests go in one write.
_BATCH = 250
# How long one server's answers are waited for before it is another's turn.
SLICE = 0.1
_LOOK_SLACK = 0.005


@dataclass(slots=True)
class _Agenda:
    """What is to be sent to one server: ``first`` is when, ``ready`` what goes along then."""

    client: Any
    first: float = math.inf
    ready: list[tuple[float, Errand]] = field(default_factory=list)

    def batch(self) -> list[Errand]:
        self.ready.sort(key=lambda entry: entry[0])
        return [errand for _, errand in self.ready[:_BATCH]]


def _agenda_for(client: Any, found: dict[int, _Agenda]) -> _Agenda:
    server = server_of(client)
    agenda = found.get(server)
    if agenda is None:
        agenda = found[server] = _Agenda(client)
    return agenda


class _Courier(Protocol):
    def close(self) -> None: ...


_AnyCourier = TypeVar("_AnyCourier", bound=_Courier)


class Plan(Generic[_AnyCourier]):
    """What is due among ``held`` and ``looks``, and what was lost meanwhile.

    Others add to both and remove from ``held``: who removes a handle there decides what becomes
    of it.
    """

    def __init__(
        self,
        held: dict[int, Watched],
        looks: dict[tuple[int, str], Look],
        now: Callable[[], float],
    ) -> None:
        self._held = held
        self._looks = looks
        self._now = now
        self._couriers: dict[int, _AnyCourier] = {}
        self._losses: list[tuple[Grant, LockLost]] = []

    def close(self) -> None:
        """Close all connections."""
        while self._couriers:
            self._couriers.popitem()[1].close()

    def living(self) -> Iterator[Grant]:
        for number, (handle, key, due) in self._held.copy().items():
            held = handle()
            if held is not None:
                yield held
            elif due <= self._now() and self._held.pop(number, None) is not None:
                logger.warning(
                    "nobody refers to the lock %r any more, which was not let go: it is no longer "
                    "renewed and ends with its lease; give renew=False where that is meant",
                    key,
                )

    def _declare_losses(self, now: float) -> float:
        """Find what was not renewed in time. Gives when the first of the others ends."""
        first = math.inf
        for held in self.living():
            if now >= held.lease.end:
                self._lose(held, held.ran_out())
            else:
                first = min(first, held.lease.end)
        return first

    def _agendas(self, now: float) -> dict[int, _Agenda]:
        """What there is to do, by server."""
        found: dict[int, _Agenda] = {}
        for held in self.living():
            lease = held.lease
            if lease.due <= now and not self._still_renews(held):
                continue
            is_ready = lease.due - lease.rhythm / 6 <= now
            renewal = Renewal(held, self._lose) if is_ready else None
            self._enter(held.target, lease.due, renewal, now, found)
        for look in list(self._looks.values()):
            is_ready = look.due - _LOOK_SLACK <= now
            self._enter(look.target, look.due, look if is_ready else None, now, found)
        return found

    def _enter(
        self,
        target: Target,
        due: float,
        errand: Errand | None,
        now: float,
        found: dict[int, _Agenda],
    ) -> None:
        """Take ``errand`` (None: not yet), due at ``due``, down for the server of ``target``."""
        try:
            agenda = _agenda_for(target.route(), found)
        except Exception as error:  # noqa: BLE001 - one lock's trouble must not stop the others
            if errand is not None:
                tell_failure(errand, error, now)
                due = max(due, now + SLICE)
            # Of no server: nothing is sent.
            agenda, errand = _agenda_for(None, found), None
        agenda.first = min(agenda.first, due)
        if errand is not None:
            agenda.ready.append((due, errand))

    def _still_renews(self, held: Grant) -> bool:
        if not held.is_orphaned:
            return True
        if self._held.pop(held.number, None) is not None:
            logger.warning(
                "the %s that took the lock %r has ended without letting it go: it is no "
                "longer renewed and ends with its lease; handover() is for locks that outlive "
                "their %s",
                held.owner,
                held.key,
                held.owner,
            )
        return False

    def _lose(self, held: Grant, error: LockLost) -> None:
        if self._held.pop(held.number, None) is not None:
            self._losses.append((held, error))

    def _tell(self) -> None:
        while self._losses:
            held, error = self._losses.pop(0)
            with Apart(logger, "what was to be told of the lost lock %r failed", held.key):
                if held.on_trouble is None:
                    logger.warning("%s", error)
                held.lose(error)


class Patrol(Plan[Courier]):
    """Renews what is due and sends the looks that are; for one thread."""

    def __init__(
        self,
        held: dict[int, Watched],
        looks: dict[tuple[int, str], Look],
        now: Callable[[], float],
        line: Callable[..., Line],
        *,
        has_threads: bool = True,
    ) -> None:
        super().__init__(held, looks, now)
        self._make_courier = partial(Courier, now=now, line=line, has_threads=has_threads)

    def go(self) -> float:
        """Do what is due. Gives when there is more to do: a time, ``inf`` for never."""
        now = self._now()
        first_end = self._declare_losses(now)
        self._tell()
        agendas = self._agendas(now)
        is_busy = False
        for server, agenda in agendas.items():
            courier = self._couriers.get(server)
            if agenda.first <= now and not (courier and courier.is_under_way):
                if courier is None:
                    courier = self._couriers[server] = self._make_courier(agenda.client)
                courier.send(agenda.batch())
                is_busy = True
        for server, courier in list(self._couriers.items()):
            if courier.is_under_way:
                courier.collect(min(now + SLICE, first_end))
                is_busy = True
            elif server not in agendas and now - courier.used_at > LINGER:
                self._couriers.pop(server).close()
        self._tell()
        return now if is_busy else min([first_end, *(one.first for one in agendas.values())])
