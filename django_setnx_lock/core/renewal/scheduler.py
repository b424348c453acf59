"""The locks to renew and the hand-offs to check, and one pass over what of them is due."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from .. import clock
from ..errors import LockLost
from ..events import Apart
from ..liveness import HEARTBEAT_AFTER
from .heartbeat import Heartbeats
from .requests import (
    BackgroundRequest,
    CheckHandoff,
    Renewable,
    RenewalIO,
    RenewalPipeline,
    RenewLease,
    server_of,
    tell_failure,
)

if TYPE_CHECKING:
    from ..connections.endpoints import Target

logger = logging.getLogger("django_setnx_lock.renewal")

# A lock, its key, and when it was first due.
Watched: TypeAlias = "tuple[ref[Renewable], str, float]"

# How long a connection that nothing needs any more is kept, and the watchdog's thread.
LINGER = 5.0
# How many requests go in one write.
_BATCH = 250
# How long a pass waits for the answers of one server before it turns to the next.
SLICE = 0.1
_CHECK_SLACK = 0.005
# The thread or task works this often although nothing is due: nothing tells it that the machine
# slept.
LONGEST_SLEEP = 1.0
# So much before it is due, a heartbeat goes along with what else is sent.
_BEFORE = 1.0
# How long the checks that are still to be made may take at the end of the process or loop.
EXIT_WITHIN = 0.5


class RenewalRegistry(ABC):
    """Locks to keep alive until they are forgotten, lost, or nobody is left to hold them.

    And hand-offs to check. A subclass has a scheduler work on both.
    """

    # How late a check may be, so that nobody need be woken for it.
    _check_slack = 0.0

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        # The references are weak: a lock that nobody can release is renewed no longer.
        self._held: dict[int, Watched] = {}
        self._checks: dict[tuple[int, str], CheckHandoff] = {}
        self.heartbeats = Heartbeats()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to see to, now or later."""
        return bool(self._held or self._checks or self.heartbeats.is_needed)

    @abstractmethod
    def _attend(self, due: float) -> None:
        """Make the thread or task work by ``due``."""

    @abstractmethod
    def wake(self) -> None:
        """Wake the thread or task, if it sleeps, to do what is due."""

    def watched(self) -> list[Renewable]:
        """Return the locks that are being renewed."""
        return [held for one, _, _ in list(self._held.values()) if (held := one()) is not None]

    def handoff_checks(self) -> list[CheckHandoff]:
        """Return the hand-offs that are still to be checked."""
        return list(self._checks.values())

    def next_due(self) -> float:
        """Return when the next renewal, check or end of a lease is due; ``inf`` for never."""
        watched = self.watched()
        leases = [held.lease for held in watched]
        checks = [check.due for check in self.handoff_checks()]
        return min(
            [*(min(one.due, one.end) for one in leases), *checks, self.heartbeats.next_due(watched)]
        )

    def watch(self, held: Renewable) -> None:
        """Renew ``held`` from now on."""
        self._held[held.number] = (ref(held), held.target.key, held.lease.due)
        self._attend(held.lease.due)

    def watch_unrenewed(self, held: Renewable) -> None:
        """Say from now on that this process lives, if ``held`` is held for long."""
        self.heartbeats.watch(held)
        self._attend(held.taken_at + HEARTBEAT_AFTER)

    def forget(self, held: Renewable) -> bool:
        """Stop renewing ``held``. Return whether it was being renewed."""
        return self._held.pop(held.number, None) is not None

    def schedule_handoff_check(self, target: Target, head: str) -> None:
        """Check soon whether the waiter ``head`` has claimed ``target``, which was handed to it.

        This replaces an earlier check of the same lock.
        """
        check = CheckHandoff(target, head, clock.now(), self._has_checked)
        self._checks[_place_of(target)] = check
        self._attend(check.due + self._check_slack)

    def handoff_confirmed(self, target: Target, asked: float) -> None:
        """Drop the check of ``target``: the answer to a request of that time shows its new holder.

        A hand-off of later than ``asked`` is checked all the same.
        """
        check = self._checks.get(_place_of(target)) if self._checks else None
        if check is not None and check.owed_since <= asked:
            self._has_checked(check)

    def _has_checked(self, check: CheckHandoff) -> None:
        place = _place_of(check.target)
        if self._checks.get(place) is check:
            self._checks.pop(place, None)

    def hasten_checks(self) -> None:
        """Check all hand-offs now, and only once more."""
        for check in self.handoff_checks():
            check.is_last = True
            check.due = clock.now()


def _place_of(target: Target) -> tuple[int, str]:
    return server_of(target.client), target.keys.name


@dataclass(slots=True)
class DueRequests:
    """What to send to one server: what is ``ready``, the most urgent first, and more ``later``."""

    client: Any
    ready: list[tuple[float, BackgroundRequest]] = field(default_factory=list)
    later: float = math.inf

    @property
    def first(self) -> float:
        """When something is to be sent; what is ready goes along then."""
        return min(self.ready[0][0], self.later) if self.ready else self.later

    def next_batch(self) -> list[BackgroundRequest]:
        """Return the most urgent, which are ready no longer."""
        batch, self.ready = self.ready[:_BATCH], self.ready[_BATCH:]
        return [request for _, request in batch]


class RenewalScheduler:
    """Renews the locks of ``registry`` and makes its checks; for one thread or task.

    Others add locks and checks to the registry and remove them: who removes a lock there decides
    what becomes of it.
    """

    # The pipeline to one server.
    new_pipeline: type[RenewalPipeline] = RenewalPipeline

    def __init__(self, registry: RenewalRegistry, io: RenewalIO) -> None:
        self._held, self._checks = registry._held, registry._checks
        self._heartbeats = registry.heartbeats
        self._io = io
        self._pipelines: dict[int, RenewalPipeline] = {}
        self._losses: list[tuple[Renewable, LockLost]] = []
        # What was found by the last look at all locks, and when the first of them ends.
        self._due: dict[int, DueRequests] = {}
        self._looked_at = self._first_end = -math.inf

    def close(self) -> None:
        """Close all connections."""
        while self._pipelines:
            self._pipelines.popitem()[1].close()

    async def run_once(self) -> float:
        """Do what is due. Return when there is more to do: a time, ``inf`` for never."""
        now = clock.now()
        if not self._has_more_ready(now):
            self._look(now)
        self._tell()
        is_busy = False
        for server, due in self._due.items():
            pipeline = self._pipelines.get(server)
            if due.ready and due.first <= now and not (pipeline and pipeline.is_under_way):
                if pipeline is None:
                    pipeline = self.new_pipeline(due.client, self._io)
                    self._pipelines[server] = pipeline
                await pipeline.send([one for one in due.next_batch() if self._is_wanted(one, now)])
                is_busy = True
            else:
                # By the time they can be sent, something else may be true of them.
                due.later, due.ready = due.first, []
        for server, pipeline in list(self._pipelines.items()):
            if pipeline.is_under_way:
                await pipeline.collect(min(now + SLICE, self._first_end))
                is_busy = True
            elif server not in self._due and now - pipeline.used_at > LINGER:
                self._pipelines.pop(server).close()
        self._tell()
        if is_busy:
            return now
        due_at = min([self._first_end, *(due.first for due in self._due.values())])
        return due_at if self._looked_at == now else now

    def _has_more_ready(self, now: float) -> bool:
        """Return whether the last look, a moment ago, found more than could be sent at once.

        To look at thousands of locks again for each batch of them takes longer than to renew them.
        """
        if now >= min(self._looked_at + SLICE, self._first_end):
            return False
        return any(due.ready for due in self._due.values())

    def _look(self, now: float) -> None:
        """Find what is due, by server, and what was not renewed in time."""
        self._looked_at, self._first_end, self._due = now, math.inf, {}
        for number, (handle, key, due) in self._held.copy().items():
            held = handle()
            if held is None:
                self._forget_unreferenced(number, key, due)
                continue
            lease = held.lease
            end = lease.end
            if now >= end:
                self._lose(held, held.ran_out())
            elif lease.due > now or self._still_renews(held):
                self._heartbeats.note(held, now)
                self._first_end = min(self._first_end, end)
                renewal = RenewLease(held, self._lose) if lease.is_ready(now) else None
                self._enter(held.target, lease.due, renewal, now)
        for check in list(self._checks.values()):
            is_ready = check.due - _CHECK_SLACK <= now
            self._enter(check.target, check.due, check if is_ready else None, now)
        for beat in self._heartbeats.due(now):
            is_ready = beat.due - _BEFORE <= now
            self._enter(beat.target, beat.due, beat if is_ready else None, now)
        for server in self._due.values():
            server.ready.sort(key=lambda entry: entry[0])

    def _enter(
        self, target: Target, due: float, request: BackgroundRequest | None, now: float
    ) -> None:
        """Note ``request`` (None: not yet), due at ``due``, for the server of ``target``."""
        client = None
        try:
            client = target.route()
        except Exception as error:  # noqa: BLE001 - one lock's trouble must not stop the others
            if request is not None:
                tell_failure(request, error, now)
                due = max(due, now + SLICE)
            # It has no server: nothing is sent.
            request = None
        server = server_of(client)
        found = self._due.get(server)
        if found is None:
            found = self._due[server] = DueRequests(client)
        if request is None:
            found.later = min(found.later, due)
        else:
            found.ready.append((due, request))

    def _is_wanted(self, request: BackgroundRequest, now: float) -> bool:
        """Return whether the lock was neither let go nor renewed since it was looked at."""
        if not isinstance(request, RenewLease):
            return True
        held = request.held
        return held.number in self._held and held.lease.is_ready(now)

    def _forget_unreferenced(self, number: int, key: str, due: float) -> None:
        if due <= clock.now() and self._held.pop(number, None) is not None:
            logger.warning(
                "nobody refers to the lock %r any more, which was not let go: it is no longer "
                "renewed and ends with its lease; give renew=False where that is meant",
                key,
            )

    def _still_renews(self, held: Renewable) -> bool:
        if not held.is_orphaned:
            return True
        if self._held.pop(held.number, None) is not None:
            # The lock is held yet, and the process lives.
            self._heartbeats.watch(held)
            logger.warning(
                "the %s that took the lock %r has ended without letting it go: it is no "
                "longer renewed and ends with its lease; handover() is for locks that outlive "
                "their %s",
                held.kind_of_owner,
                held.target.key,
                held.kind_of_owner,
            )
        return False

    def _lose(self, held: Renewable, error: LockLost) -> None:
        if self._held.pop(held.number, None) is not None:
            self._losses.append((held, error))

    def _tell(self) -> None:
        while self._losses:
            held, error = self._losses.pop(0)
            with Apart(logger, "what was to be told of the lost lock %r failed", held.target.key):
                if held.on_trouble is None:
                    logger.warning("%s", error)
                held.lose(error)
