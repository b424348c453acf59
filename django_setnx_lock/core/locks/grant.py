"""What Redis granted: one for each acquisition, however many handles refer to it."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import ref

from .. import clock, events
from ..connections.endpoints import Target
from ..errors import LockLost
from ..protocol import commands, replies
from ..renewal import watchdog
from ..renewal.lease import Lease
from ..stop_request import StopRequest
from .operations import Scope
from .options import CoreOptions
from .owner import Owner, ThreadOrGreenlet, running_task

if TYPE_CHECKING:
    from ..renewal.scheduler import RenewalRegistry

logger = logging.getLogger("django_setnx_lock.events")

_PLAIN = CoreOptions()
_numbers = itertools.count()
# Deciding takes no time. Where it lasts, an interrupt came between having decided and saying so.
_PATIENCE = 1.0
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Handle(Protocol):
    """What a grant has to know of its handles, which are each a :class:`.handle.LockHandle`."""

    target: Target
    on_trouble: Callable[[], object] | None
    is_put_off: bool
    # Set on all of them when the lock is given away.
    _released: bool

    @property
    def wants_renewal(self) -> bool: ...
    def tell_loss(self) -> None: ...
    def tell_trouble(self) -> None: ...


class Grant:
    """A lock that Redis granted, with what is the same for all of its handles.

    It asks nobody itself: the handles do, and the ``watchdog``, which renews it. The lease is
    counted on a local clock from before the request for it was sent, so it ends here before it ends
    in Redis. ``options``: what was asked for when it was taken. ``kind_of_owner``: what took it,
    ``thread`` or ``task``; then ``loop_watchdog`` renews it. ``in_doubt``: whether a copy of a
    request of its token may be under way, apart from its release.

    It refers to its handles weakly: one that nobody can release counts no longer.
    """

    # For how many ms from the grant on its name stays taken, however soon it is let go.
    min_hold_ms = 0
    # For how many seconds its holder had waited for it; None: it was free.
    waited: float | None = None
    # The holder record, for the history.
    record = ""
    # The owner, for as long as it can have the lock again.
    owner: Owner | None = None
    # Whether somebody else renews and releases it, and this process only looks after it.
    is_followed = False
    # Whether its release was asked for before, while its lease lasted.
    _was_releasing = False
    # Why it was given up while it was held.
    given_up = ""
    # Whether Redis may still have it, though its lease is over here: a renewal may have been
    # carried out whose answer never came.
    may_still_stand = False

    def __init__(
        self,
        target: Target,
        *,
        token: str,
        fence: int,
        timeout: float,
        deadline: float,
        options: CoreOptions = _PLAIN,
        loop_watchdog: RenewalRegistry | None = None,
        in_doubt: bool = True,
    ) -> None:
        self.lease = Lease(timeout, deadline, options.max_hold)
        self.in_doubt = in_doubt
        self.number = next(_numbers)
        self.target = target
        # The name that the caller wrote, and the one in Redis.
        self.key, self.name = target.key, target.keys.name
        self.token = token
        self.fence = fence
        self.timeout = timeout
        self.options = options
        self.pid = os.getpid()
        self.taken_at = deadline - timeout
        # The first tells why it is lost. Several threads may find it lost at once.
        self.losses: list[LockLost] = []
        # The first counts, here too.
        self.stop_requests: list[StopRequest] = []
        # In the order in which they were entered.
        self._handles: list[ref[Handle]] = []
        # Whether a handle is the last, or another can still be had, is decided by one thread at a
        # time. Reentrant, for handlers of signals.
        self._deciding = threading.RLock()
        # The parts of tasks that run under it.
        self._scopes: list[Scope] = []
        self.kind_of_owner = "thread" if loop_watchdog is None else "task"
        self.watchdog: RenewalRegistry = loop_watchdog or watchdog.WATCHDOG
        # The thread or task whose end ends the renewal; None: none, or the lock was handed over.
        self._taken_by: ThreadOrGreenlet | Owner | None = None
        if loop_watchdog is not None:
            self._taken_by = running_task()
        elif options.renew:
            self._taken_by = ThreadOrGreenlet()

    @property
    def client(self) -> Any:
        """The redis-py client it was taken with."""
        return self.target.client

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self.pid == os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether the lock is lost or its lease over, whoever has been told."""
        return bool(self.losses) or self.lease.is_over(clock.now())

    @property
    def is_held(self) -> bool:
        """Whether somebody here has it, and its lease is not over."""
        return bool(self.handles) and not self.is_over

    # Handles

    @property
    def handles(self) -> list[Handle]:
        """Those that were not released, nor counted out."""
        found = [one() for one in list(self._handles)]
        return [one for one in found if one is not None and not one._released]

    def begin(self, handle: Handle) -> None:
        """Count in ``handle``, the first."""
        self._handles = [ref(handle)]

    def add(self, handle: Handle) -> bool:
        """Count in ``handle``, one more, unless the lock is being let go."""
        return self._alone(self._add, handle)

    def _add(self, handle: Handle) -> bool:
        if self.owner is None:
            return False
        self._handles.append(ref(handle))
        if handle.wants_renewal or self.is_followed:
            self._begin_renewal()
        return True

    def remove(self, handle: Handle) -> bool:
        """Count ``handle`` out. Gives whether the lock is to be let go in Redis.

        It is when no other is left, and when its time is over: then nobody may rely on it.
        If not, it is renewed as long as one of the others wants it to be.
        """
        if self.owner is None and self._is_alone(handle):
            return True
        return self._alone(self._remove, handle)

    def _alone(self, decide: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        is_alone = self._deciding.acquire(timeout=_PATIENCE)
        try:
            return decide(*args, **kwargs)
        finally:
            if is_alone:
                self._deciding.release()

    def _is_alone(self, handle: Handle) -> bool:
        known = self._handles
        return len(known) == 1 and known[0]() is handle and not self.is_followed

    def _remove(self, handle: Handle) -> bool:
        if not self._is_alone(handle):
            others = [one for one in self.handles if one is not handle]
            if self.is_followed or (others and not self.is_over):
                # Without those that were thrown away, too.
                self._handles = [ref(one) for one in others]
                if not any(one.wants_renewal for one in others):
                    self.end_renewal()
                    if others and not self.is_followed:
                        self.watchdog.watch_unrenewed(self)
                if not others:
                    # The process that holds the lock releases it.
                    self._close()
                return False
        # It counts until it is released: a loss is told to it.
        self._close()
        return True

    def close(self) -> None:
        """Let nobody have the lock again, however long it is held."""
        self._alone(self._close)

    def _close(self) -> None:
        here = self.owner
        if here is not None:
            self.owner = None
            noted = here.holds.pop(self.name, ())
            if len(noted) > 1:
                here.holds[self.name] = [one for one in noted if one() not in (None, self)]

    @property
    def is_put_off(self) -> bool:
        """Whether all who had the lock let it go, which has effect later only."""
        handles = self.handles
        return bool(handles) and all(one.is_put_off for one in handles)

    # Renewal

    @property
    def is_renewed(self) -> bool:
        """Whether one of the handles wants it to be renewed."""
        return any(one.wants_renewal for one in self.handles)

    @property
    def is_orphaned(self) -> bool:
        """Whether the thread or task that took it has ended, and did not hand it over."""
        return self._taken_by is not None and self._taken_by.has_ended

    def begin_upkeep(self) -> None:
        """Begin to renew it, if that was asked for, and to say that this process lives."""
        if self.options.renew:
            self.watchdog.watch(self)
        elif self.target.heartbeat_prefix is not None:
            self.watchdog.watch_unrenewed(self)

    def _begin_renewal(self) -> None:
        if self._taken_by is None and self.kind_of_owner == "thread":
            self._taken_by = ThreadOrGreenlet()
        self.watchdog.watch(self)

    def end_renewal(self) -> None:
        """Stop renewing it."""
        self.watchdog.forget(self)

    def hand_over(self) -> None:
        """Let it outlive the thread or task that took it. Nobody has it again from then on."""
        self._taken_by = None
        self.close()

    def give_up(self, why: str) -> None:
        """Stop renewing it, and let nobody have it again."""
        self.close()
        self.end_renewal()
        self.given_up = why

    # Requests

    def checking(self) -> commands.Request:
        """Return the request that asks whether the lock is still ours."""
        return self.target.command_set.check(self.target.keys, self.token)

    def renewing(self, lease_ms: int) -> commands.Request:
        """Return the request for at least ``lease_ms`` of the lease."""
        if self.is_followed:
            return self.checking()
        target = self.target
        return target.command_set.renew(target.keys, target.index, self.token, lease_ms)

    def releasing(self) -> commands.Request:
        """Return the request that releases the lock, which is no longer renewed."""
        self.watchdog.forget(self)
        self.watchdog.heartbeats.forget(self.number)
        is_over = self.lease.is_over(clock.now())
        # The watchdog may have found it over at the same time, and not have told of it yet.
        if is_over and self.is_renewed:
            self.lose(self.ran_out())
        target = self.target
        if self.min_hold_ms:
            return commands.release_kept(
                target.keys, target.index, self.token, self.min_hold_ms, self.fence
            )
        # What Redis remembers of a loss it does not remember for ever.
        self.in_doubt = self.in_doubt or (is_over and not self._was_releasing)
        request = target.command_set.release(
            target.keys, target.index, self.token, in_doubt=self.in_doubt
        )
        was_releasing, self._was_releasing = self._was_releasing, True
        return request.repeat if was_releasing else request

    def tell_end(self, error: LockLost | None = None) -> None:
        """Tell of the end of the hold who keeps a history."""
        if events.ENDED.listeners:
            events.ENDED.tell(
                target=self.target,
                record=self.record,
                held_for=clock.now() - self.taken_at,
                waited=self.waited,
                fence=self.fence,
                error=error,
            )

    # What operators want

    def hear(self, reply: Sequence[Any]) -> None:
        """Take note of what an operator asks for, by the ``reply`` to a check or a renewal.

        Tells of it the first time.
        """
        if self.stop_requests:
            return
        stop_request = replies.read_stop(reply)
        if stop_request is None:
            return
        self.stop_requests.append(stop_request)
        if self.stop_requests[0] is not stop_request:
            return
        with ExitStack() as rest:
            rest.callback(self.tell_trouble)
            if events.STOP_REQUESTED.listeners:
                events.STOP_REQUESTED.tell(**self.about(), stop_request=stop_request)

    # Loss

    @property
    def on_trouble(self) -> Callable[[], object] | None:
        """What one of the handles wants called; None: nobody is told, so it is logged."""
        return next((one.on_trouble for one in self.handles if one.on_trouble is not None), None)

    def tell_trouble(self) -> None:
        """Call ``on_trouble`` of all handles."""
        for one in self.handles:
            one.tell_trouble()

    def lose(self, error: LockLost) -> LockLost:
        """Take note that the lock is lost, because of ``error``. Gives the first reason known.

        Calls ``on_lost`` and ``on_trouble`` of all handles the first time.
        """
        self.watchdog.forget(self)
        self.losses.append(error)
        handles = self.handles
        if self.losses[0] is not error or not handles:
            return self.losses[0]
        self.close()
        self._cancel_tasks()
        # Whatever one raises, such as SystemExit, the others are called before.
        with ExitStack() as rest:
            for one in reversed(handles):
                rest.callback(one.tell_loss)
            if events.LOST.listeners:
                events.LOST.tell(**self.about(), error=error)
            self.tell_end(error)
        return self.losses[0]

    def enter(self, scope: Scope) -> None:
        """Cancel ``scope``, which a task has entered, when the lock is lost."""
        self._scopes.append(scope)

    def leave(self, scope: Scope) -> None:
        """Take note that the task has left ``scope``."""
        with suppress(ValueError):
            self._scopes.remove(scope)

    def _cancel_tasks(self) -> None:
        # Only the outermost scope of each task: to cancel it cancels those within.
        outermost: dict[object, Scope] = {}
        for scope in self._scopes:
            outermost.setdefault(scope.task, scope)
        for scope in outermost.values():
            scope.cancel()

    def about(self) -> dict[str, Any]:
        """Return what listeners are told of a lock that is, or was, held."""
        return {
            "key": self.key,
            "fence": self.fence,
            "held_for": clock.now() - self.taken_at,
        }

    def ran_out(self) -> LockLost:
        """Return the error for a lease that is over by the local clock; Redis may still have it."""
        self.may_still_stand = self.is_renewed
        return LockLost(self._why_over(), key=self.key)

    def _why_over(self) -> str:
        lease, max_hold = self.lease, self.options.max_hold
        if max_hold is not None and lease.reached_max_hold:
            return f"the lock {self.key!r} was held for its max_hold of {max_hold:g} s"
        over = f"the lease of the lock {self.key!r} ran out"
        if self.given_up:
            return f"{over}: {self.given_up}"
        if not self.is_renewed:
            return over
        if lease.trouble or lease.asked:
            why = lease.trouble or "Redis does not answer"
            return f"the lock {self.key!r} could not be renewed before its lease ended: {why}"
        if self.is_orphaned:
            return f"{over}: the {self.kind_of_owner} that took it has ended"
        return f"{over}: this process stood still and did not renew it"


def call_back(what: str, key: str, callback: Callable[[], object]) -> None:
    """Run ``callback``, which a user gave as ``what``. What it raises is logged."""
    try:
        callback()
    except (Exception, SystemExit):
        logger.exception("%s of the lock %r failed", what, key)
