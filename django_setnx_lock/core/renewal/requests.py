"""The requests of a watchdog, and the pipeline that brings many of them to a server at once."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redis import exceptions as redis_exceptions

from .. import clock, events
from ..connections.connection import Command
from ..connections.endpoints import Target, is_portable, server_id
from ..connections.failures import unavailable
from ..connections.sentinel import leads_elsewhere
from ..errors import LockError, LockLost
from ..events import Apart
from ..protocol import commands, replies

if TYPE_CHECKING:
    from .lease import Lease

logger = logging.getLogger("django_setnx_lock.renewal")

_FIRST_CHECK = 0.02
# Longer than a handed-on lock waits for its waiter.
_AFTER_CLAIM = 1.05
_CHECK_AGAIN_AFTER_ERROR = (0.1, 0.3, 0.6, 1.0)
_CONNECT_WITHIN = 1.0
# How long to wait for answers before another connection is tried; doubled after each failure.
_PATIENCE, _LONGEST_PATIENCE = 1.0, 8.0


AnyRequest: TypeAlias = commands.Request | commands.PlainRequest


class Renewable(Protocol):
    """What the renewal needs to know of a lock, and tells it.

    ``number``: unique in this process. ``taken_at``: when it was, on the local clock.
    ``is_followed``: another process renews the lock, and this one only checks that it stands.
    ``kind_of_owner``: what took it, ``thread`` or ``task``. ``on_trouble``, if set, is called when
    a renewal has failed, and when an operator asks the holder to stop.
    """

    lease: Lease
    number: int
    target: Target
    token: str
    is_followed: bool
    kind_of_owner: str
    taken_at: float

    @property
    def fence(self) -> int | None: ...
    @property
    def is_held(self) -> bool:
        """Whether somebody here has it, and its lease is not over."""

    @property
    def on_trouble(self) -> Callable[[], object] | None: ...

    @property
    def is_orphaned(self) -> bool:
        """True when that has ended without handing the lock over."""

    def renewing(self, lease_ms: int) -> commands.Request:
        """Return the request for at least ``lease_ms`` of the lease."""

    def hear(self, reply: Sequence[Any]) -> None:
        """Take note of what an operator asks for in the answer to a renewal."""

    def ran_out(self) -> LockLost:
        """Return the error for a lease that is over by the local clock."""

    def lose(self, error: LockLost) -> LockLost:
        """Note that the lock is lost, and call who is to be told."""

    def tell_trouble(self) -> None:
        """Call ``on_trouble``."""


class BackgroundRequest(Protocol):
    """A request to send for a lock, and what to do with its answer."""

    target: Target
    key: str

    @property
    def deadline(self) -> float:
        """The time after which the answer is of no use, on the local clock."""

    def request(self, now: float) -> AnyRequest:
        """Return what to send at ``now``."""

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        """Handle the answer to what was sent at ``sent``."""

    def failed(self, error: Exception, now: float) -> None:
        """Handle an error, of Redis or on the way to it."""


class RenewLease:
    """Renew the lease of ``held``. ``lost`` is called when Redis says that the lock is lost."""

    def __init__(self, held: Renewable, lost: Callable[[Renewable, LockLost], None]) -> None:
        self.held = held
        self.target = held.target
        self.key = held.target.key
        self._lost = lost

    @property
    def deadline(self) -> float:
        return self.held.lease.end

    def request(self, now: float) -> commands.Request:
        lease = self.held.lease
        lease.asked = True
        if lease.tried_since is None:
            # A process that was stopped asks later than it should have.
            lease.tried_since = min(now, lease.due)
        held, lease_ms = self.held, lease.to_ask(now)
        if lease.trouble is not None and not held.is_followed:
            alone = self.target.alone(held.token, lease_ms, lease.trouble)
            if alone is not None:
                return alone
        return held.renewing(lease_ms)

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        lease = self.held.lease
        lease.asked = False
        try:
            replies.read_kept(reply, self.key)
        except LockLost as error:
            self._lost(self.held, error)
            return
        # An answer after the end is too late: somebody may have seen that the lock is lost.
        if now < lease.end:
            self._tell_if_late(now)
            lease.confirm(sent, int(reply[1]) / 1000)
            self._log_success()
            lease.trouble = lease.tried_since = None
            lease.plan(sent)
        with Apart(logger, "that an operator asks to stop %r could not be told", self.key):
            self.held.hear(reply)

    def failed(self, error: Exception, now: float) -> None:
        lease = self.held.lease
        if lease.trouble is None and self.held.on_trouble is None:
            left = max(lease.end - now, 0)
            logger.info("cannot renew the lock %r, trying on for %.1f s: %s", self.key, left, error)
        else:
            logger.debug("cannot renew the lock %r: %s", self.key, error)
        lease.failed(now, error)
        self.held.tell_trouble()

    def _tell_if_late(self, now: float) -> None:
        lease = self.held.lease
        late = now - (lease.tried_since or now)
        if late > lease.seconds / 3 and events.RENEWED_LATE.listeners:
            events.RENEWED_LATE.tell(key=self.key, fence=self.held.fence, late=late)

    def _log_success(self) -> None:
        held = self.held
        if held.lease.trouble is not None and held.on_trouble is None:
            logger.info("the lock %r is renewed again", self.key)
        elif logger.isEnabledFor(logging.DEBUG):
            left = held.lease.end - clock.now()
            logger.debug("renewed the lock %r: %.1f s left", self.key, left)


class CheckHandoff:
    """Check whether the waiter ``head`` has claimed the lock that was handed to it.

    If it has not, Redis hands the lock to the next waiter, which is checked in turn. ``done`` is
    called when there is nothing left to check. ``is_last``: no check follows this one.
    """

    deadline = math.inf

    def __init__(
        self, target: Target, head: str, now: float, done: Callable[[CheckHandoff], None]
    ) -> None:
        self.target = target
        self.key = target.key
        self.owed_since = now
        self.due = now + _FIRST_CHECK
        self.is_last = False
        self.head = head
        self._done = done
        self._pauses = list(_CHECK_AGAIN_AFTER_ERROR)

    def request(self, now: float) -> commands.Request:
        return self.target.command_set.check_handoff(
            self.target.keys, self.head, is_last=self.is_last
        )

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        head = replies.read_handed_on(reply)
        if not head or self.is_last:
            self._done(self)
            return
        # If another process has handed it on meanwhile, that one checks as well.
        self.due = now + (_FIRST_CHECK if replies.read_passed_on(reply) else _AFTER_CLAIM)
        self.head = head

    def failed(self, error: Exception, now: float) -> None:
        if self._pauses and not self.is_last:
            self.due = now + self._pauses.pop(0)
        else:
            # The waiters themselves ask now and then.
            self._done(self)


def server_of(client: Any) -> int:
    """Return a number that clients of one pool have in common: they share a pipeline.

    django-redis makes one such client for each thread.
    """
    return id(getattr(client, "connection_pool", client))


def tell_failure(job: BackgroundRequest, error: Exception, now: float, place: str = "") -> None:
    """Tell ``job`` that it ended in ``error``, at the server ``place`` if it was asked.

    Log what that raises: the other jobs go on.
    """
    with Apart(logger, "what became of the lock %r could not be told", job.key):
        try:
            job.target.learn(error)
        finally:
            job.failed(_readable(error, job.key, place), now)


def _readable(error: Exception, key: str, place: str) -> Exception:
    if isinstance(error, LockError):
        return error
    told = unavailable(error, key)
    if place and is_portable(place):
        told.args = (f"{told}, at {place}",)
    return told


class RenewalIO(Protocol):
    """The parts of a pipeline that differ between a thread and an event loop."""

    def connection(self, client: Any, connect_timeout: float) -> Any:
        """Return a connection to the server of ``client``, which is not connected yet."""

    async def follow(self, client: Any) -> None:
        """Ask the Sentinels of ``client``, if it has any, for its primary."""

    def connect(self, connection: Any) -> Any:
        """Begin to connect ``connection``. Return the future, of a thread or a task."""

    async def send(self, connection: Any, commands: Sequence[Command], seconds: float) -> Any:
        """Send ``commands`` in one write; return the future of that if it may take long."""

    async def wait(self, work: Any, seconds: float) -> bool:
        """Wait for such a future, for so long at the most. Return whether it is done."""

    async def read(self, connection: Any, seconds: float) -> Any:
        """Return the next reply, or the error reply; None when it has not come in time."""

    async def call(self, client: Any, request: AnyRequest, key: str) -> Any:
        """Execute ``request`` by ``client`` itself, which has no pool."""


Asked: TypeAlias = tuple[BackgroundRequest, AnyRequest]


class RenewalPipeline:
    """A connection to the server of ``client``, for the requests of one thread or task.

    :meth:`send` sends a round of them; :meth:`collect` takes the answers that have come, and may be
    called again while ``is_under_way``. Neither waits for the connection, which another thread or
    task makes: if that takes longer than a round waits for it, a later round finds it ready.
    """

    def __init__(self, client: Any, io: RenewalIO) -> None:
        self.client = client
        self.used_at = clock.now()
        self._io = io
        self._connection: Any = None
        # The future of what connects, or sends.
        self._aside: Any = None
        self._unsent: list[Command] = []
        self._waiting: deque[Asked] = deque()
        self._missing: list[Asked] = []
        self._sent = self._gives_up_at = 0.0
        self._patience = _PATIENCE
        self._is_spoilt = self._is_second = False

    @property
    def is_under_way(self) -> bool:
        """True while answers are outstanding."""
        return bool(self._waiting)

    def close(self) -> None:
        """Close the connection and forget what is outstanding."""
        self._waiting.clear()
        self._close_line()

    def _close_line(self) -> None:
        self._unsent = []
        aside, self._aside = self._aside, None
        connection, self._connection = self._connection, None
        if aside is not None:
            # Not before nobody is at work on it.
            aside.add_done_callback(lambda _: connection.close())
            aside.cancel()
        elif connection is not None:
            connection.close()

    async def send(self, jobs: Sequence[BackgroundRequest]) -> None:
        """Send ``jobs`` in one write, once there is a connection."""
        await self._io.follow(self.client)
        todo = self._begin_round(jobs)
        if not hasattr(self.client, "connection_pool"):
            await self._call_each(todo)
        elif todo:
            await self._post(todo)

    async def collect(self, until: float) -> None:
        """Take the answers that come by ``until``; those that never come end in an error."""
        while self._waiting and self._connection is not None:
            reply = None
            try:
                if (not self._unsent and self._aside is None) or await self._has_sent(until):
                    reply = await self._io.read(self._connection, self._left(until))
            except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
                self._fail(error)
                return
            if reply is None:
                if clock.now() >= self._gives_up_at:
                    self._fail(redis_exceptions.TimeoutError("no answer to a renewal"))
                return
            self._deliver(*self._waiting.popleft(), reply)
        if not self._waiting and (missing := self._end_round()):
            await self._post(missing)

    def _left(self, until: float) -> float:
        return max(min(until, self._gives_up_at) - clock.now(), 0)

    def _begin_round(self, jobs: Sequence[BackgroundRequest]) -> list[Asked]:
        now = self.used_at = clock.now()
        self._is_second = False
        if self._connection is not None and leads_elsewhere(self.client, self._connection):
            self.close()
        elif self._connection is not None and self._aside is None and self._connection.is_stale:
            # The server has closed it, as some do when it is idle: that is no failure.
            self._close_line()
        todo: list[Asked] = []
        for job in jobs:
            try:
                todo.append((job, job.request(now)))
            except Exception as error:  # noqa: BLE001 - one lock's trouble must not stop the others
                self._tell_failure(job, error)
        return todo

    async def _post(self, todo: Sequence[Asked]) -> None:
        try:
            self._begin_post(todo)
            await self._has_sent(clock.now())
        except Exception as error:  # noqa: BLE001 - as above: the other servers' locks go on
            self._fail(error)

    def _begin_post(self, todo: Sequence[Asked]) -> None:
        if self._aside is not None and _error_of(self._aside) is not None:
            # Connecting has failed since its round was given up.
            self._close_line()
        now = clock.now()
        self._waiting.extend(todo)
        # Half of the time left to the most urgent job, so that it can be tried again.
        left = min(job.deadline for job, _ in todo) - now
        self._gives_up_at = now + min(self._patience, max(left / 2, 0.05))
        self._sent = now
        if self._connection is None:
            longest = max(_CONNECT_WITHIN, self._patience / 4)
            limit = max(min(max(left / 2, 0.25), left, longest), 0.02)
            self._connection = self._io.connection(self.client, limit)
        self._unsent = self._commands(todo)

    def _commands(self, todo: Sequence[Asked]) -> list[Command]:
        found: list[Command] = []
        loaded: set[str] = set()
        for _, request in todo:
            if isinstance(request, commands.PlainRequest):
                found.append(request.command)
                continue
            script = request.script
            if self._is_second and script.sha not in loaded:
                # The commands behind it find the script loaded.
                loaded.add(script.sha)
                found.append(("EVAL", script.source, *request.arguments))
            else:
                found.append(("EVALSHA", script.sha, *request.arguments))
        return found

    async def _has_sent(self, until: float) -> bool:
        """Return whether all is sent by ``until``. Raises what redis-py raises."""
        while self._aside is not None or self._unsent:
            if self._aside is not None:
                if not await self._io.wait(self._aside, self._left(until)):
                    return False
                aside, self._aside = self._aside, None
                if (error := _error_of(aside)) is not None:
                    raise error
            elif not self._connection.is_connected:
                self._aside = self._io.connect(self._connection)
            else:
                unsent, self._unsent = self._unsent, []
                self._sent = clock.now()
                left = self._left(self._gives_up_at)
                self._aside = await self._io.send(self._connection, unsent, left)
        return True

    async def _call_each(self, todo: Sequence[Asked]) -> None:
        """Send ``todo`` by a client that has no pool, one after the other."""
        for job, request in todo:
            self._sent = clock.now()
            try:
                reply = await self._io.call(self.client, request, job.key)
            except LockError as error:
                reply = error
            self._deliver(job, request, reply)

    def _deliver(self, job: BackgroundRequest, request: AnyRequest, reply: Any) -> None:
        if isinstance(reply, redis_exceptions.NoScriptError) and not self._is_second:
            self._missing.append((job, request))
            return
        if isinstance(reply, Exception):
            # A primary that became a replica: the next connection may find the new one.
            self._is_spoilt = True
            self._tell_failure(job, reply)
            return
        try:
            job.answered(reply, self._sent, clock.now())
        except Exception as error:  # noqa: BLE001 - as above
            self._tell_failure(job, error)

    def _tell_failure(self, job: BackgroundRequest, error: Exception) -> None:
        tell_failure(job, error, clock.now(), server_id(self.client))

    def _end_round(self) -> list[Asked]:
        """Return what to send once more: the requests whose script was missing."""
        self._patience = _PATIENCE
        missing, self._missing = self._missing, []
        if missing:
            self._is_second = True
        elif self._is_spoilt:
            self._is_spoilt = False
            self.close()
        return missing

    def _fail(self, error: Exception) -> None:
        if isinstance(error, redis_exceptions.TimeoutError):
            self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        failed = [*self._missing, *self._waiting]
        self._missing = []
        self._waiting.clear()
        self._unsent = []
        if self._aside is None or self._connection is None or self._connection.is_connected:
            self._close_line()
        for job, _ in failed:
            self._tell_failure(job, error)


def _error_of(aside: Any) -> BaseException | None:
    """Return how the work of that future has ended, if badly."""
    if not aside.done():
        return None
    if aside.cancelled():
        return redis_exceptions.ConnectionError("the task that was to connect was cancelled")
    error: BaseException | None = aside.exception()
    return error
