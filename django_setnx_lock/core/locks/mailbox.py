"""Where a waiter sleeps until it is its turn.

The scripts write to its mailbox when the lock is left to it. What it then finds out by asking again
is what counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from redis import exceptions as redis_exceptions

from .. import clock
from ..connections.backends import ASYNCIO, BLOCKING, Backend
from ..connections.cluster_routes import is_cluster
from ..connections.endpoints import Target
from ..connections.failures import translated
from ..connections.pool import loop_state
from ..connections.sentinel import (
    EVERY,
    follow,
    leads_elsewhere,
    primary_of,
)
from ..errors import LockUnavailable
from ..protocol.replies import Busy
from .listener import listener_of

# A waiter asks again after so long, whatever it was told: who was to wake it may be gone.
SLICE_MS = 25_000
# The same behind several who hold it together, as the scripts have it.
GROUP_SLICE_MS = 5_000
# A thread listens for so many seconds at least: who sleeps again then has not to send it anew.
_LISTENS = 100.0
# A sleep that failed later than that was well begun: proxies cut what is idle for too long.
AT_ONCE = 1.0
# A waiter with less time than that still connects, if connecting takes no longer.
CONNECT_AT_LEAST = 0.1
# For how many seconds a caller waits for an answer whose own time, or lease, ends sooner.
ANSWER_WITHIN = 1.0
_FOREIGN_FIRST, _FOREIGN_LONGEST = 0.005, 0.1
# Where listening failed and asking did not: the caller asks after pauses from the first to the last
# of these, which is less than a lock that was handed to it stays its own.
_BROKEN = ("unreachable", "timeout")
_PAUSE, _PAUSE_LONGEST = 0.025, 0.4


def time_to_sleep(answer: Busy, tries: int, left: float | None) -> float:
    """How many seconds to sleep at most after ``answer``, the busy one number ``tries``.

    Until the end of the holder's lease, and until the end of the caller's own time (``left``;
    None: without end). A foreign holder wakes nobody: it is polled. All sleeps are of random
    length, so that many waiters do not ask in step, each on a connection of its own.
    """
    seconds = _jittered(SLICE_MS / 1000, 0.9)
    if answer.foreign:
        seconds = _jittered(min(_FOREIGN_FIRST * 2.0 ** min(tries, 10), _FOREIGN_LONGEST), 0.5)
    if answer.is_group:
        seconds = min(seconds, GROUP_SLICE_MS / 1000)
    if answer.remaining is not None:
        seconds = min(seconds, answer.remaining + 0.001)
    if left is not None:
        seconds = min(seconds, left)
    return max(seconds, 0.001)


def time_to_ask(limit: float | None, left: float | None) -> float | None:
    """How many seconds an answer may take when the caller has ``left`` of his ``limit``.

    None is the limit of the client: where he has none himself, or asks without waiting for others.
    """
    return max(left, ANSWER_WITHIN) if limit and left is not None else None


def _jittered(longest: float, least: float) -> float:
    return longest * random.uniform(least, 1.0)  # noqa: S311 - spreads load, secures nothing


class Mailbox:
    """Where the waiter of one lock is told that it is its turn. To be closed."""

    _io: Backend

    def __init__(self, target: Target) -> None:
        self._target = target
        self._failures = 0

    async def sleep(self, token: str, seconds: float) -> None:
        """Return when ``token`` was woken, or when ``seconds`` have passed.

        When the connection broke it returns, so that the caller asks, and finds out whether Redis
        can be reached. Raises LockUnavailable when Redis refused twice in a row.
        """
        client = self._target.client
        if not self._target.command_set.wakes_waiters:
            await self._io.sleep(seconds)
        elif not hasattr(client, "connection_pool") and not is_cluster(client):
            # One which has no one server to listen at.
            await self._io.sleep(min(seconds, _jittered(_FOREIGN_LONGEST, 0.5)))
        else:
            end = clock.now() + self._target.longest_sleep(seconds)
            await self._try(lambda: self._listen(token, end), end)

    async def _try(self, step: Callable[[], Coroutine[Any, Any, None]], end: float) -> None:
        began = clock.now()
        try:
            with translated(self._target.key):
                await step()
        except LockUnavailable as error:
            self._drop()
            pause = self._target.moved(error)
            if pause is not None:
                await self._io.sleep(pause)
                return
            self._forget()
            if clock.now() - began >= AT_ONCE:
                self._failures = 0
                return
            if self._failures and error.cause not in _BROKEN:
                raise
            self._failures += 1
            if self._failures > 1:
                pause = _jittered(min(_PAUSE * 2.0 ** min(self._failures, 10), _PAUSE_LONGEST), 0.5)
                await self._io.sleep(max(min(pause, end - clock.now()), 0.0))

    async def _listen(self, token: str, end: float) -> None:
        """Return when there is mail for ``token``, and at ``end`` at the latest."""
        raise NotImplementedError

    def close(self) -> None:
        """Listen no longer."""

    def _drop(self) -> None:
        """Close the connection on which it listens."""

    def _forget(self) -> None:
        """Keep no connection to its server: one has failed, so all may be dead."""


class BlockingMailbox(Mailbox):
    """The mailbox of a thread, which listens on a connection of its own."""

    _io = BLOCKING

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        # The client of the server that it listens at.
        self._client: Any = None
        self._connection: Any = None
        # Where, while there is an answer to come on the connection.
        self._listening_at = ""

    def close(self) -> None:
        if self._connection is not None and not self._listening_at:
            self._io.listening().checkin(self._client, self._connection)
            self._connection = None
        self._drop()

    def _open(self, token: str) -> str:
        """Connect to the server that is the primary now, and return the mailbox there."""
        box = self._target.keys.wake(token)
        if self._listening_at not in ("", box) or self._is_elsewhere():
            self._drop()
        if self._connection is None:
            self._client = self._target.home()
            self._connection = self._io.listening().checkout(self._client)
        return box

    def _is_elsewhere(self) -> bool:
        """Whether it listens at a server that is the primary no longer."""
        return self._connection is not None and leads_elsewhere(self._client, self._connection)

    def _drop(self) -> None:
        self._listening_at = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _forget(self) -> None:
        if self._client is not None:
            self._io.listening().forget(self._client)

    async def _listen(self, token: str, end: float) -> None:
        box = self._open(token)
        while (left := end - clock.now()) > 0:
            if not self._listening_at and not self._begin(box, left):
                break
            # Redis ends a BLPOP up to 0.1 s late: the waiter wakes in time, and hears of it later.
            if not self._wait(end):
                break
            woken = self._connection.read()
            self._listening_at = ""
            # A BLPOP of an earlier sleep may have ended by itself.
            if woken is not None:
                break
        self._failures = 0

    def _wait(self, end: float) -> bool:
        """Whether there is an answer by ``end``; if it ends before, it is to listen elsewhere."""
        if primary_of(self._client) is None:
            return bool(self._connection.wait(end - clock.now()))
        while (left := end - clock.now()) > 0:
            if self._connection.wait(min(left, EVERY)):
                return True
            follow(self._client)
            if self._is_elsewhere():
                self._drop()
                break
        return False

    def _begin(self, box: str, seconds: float) -> bool:
        """Whether there was time to connect."""
        self._listening_at = box
        # The fake, which has no socket, blocks as this is sent.
        longest = seconds if self._connection.fileno() is None else max(seconds, _LISTENS)
        command = ("BLPOP", box, f"{max(longest, 0.001):.3f}")
        try:
            self._connection.send(command, within=max(seconds, CONNECT_AT_LEAST))
        except redis_exceptions.TimeoutError:
            if seconds >= AT_ONCE:
                raise
            self._drop()
            return False
        return True


class TaskMailbox(Mailbox):
    """The mailbox of a task whose token names none that it shares."""

    _io = ASYNCIO

    async def _listen(self, token: str, end: float) -> None:
        client, seconds = self._target.home(), max(end - clock.now(), 0.001)
        idle, mail = loop_state().waiting, None
        connection = idle.checkout(client)
        try:
            command = ("BLPOP", self._target.keys.wake(token), f"{seconds:.3f}")
            await self._io.send(connection, [command])
            mail = await self._io.read(connection, seconds + AT_ONCE)
            self._failures = 0
        finally:
            # Without mail its answer may be still to come.
            if mail is None:
                connection.close()
            else:
                idle.checkin(client, connection)


class LoopMailbox(Mailbox):
    """The mailbox of a task, which its event loop listens at for all of its tasks."""

    _io = ASYNCIO

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._listener = listener_of(target)
        self._cuts = self._listener.cuts
        self.key = self._listener.box

    def expect_mail(self) -> None:
        """Take note that the caller asks, so that mail for it may come from now on."""
        self._cuts = self._listener.cuts

    async def _listen(self, token: str, end: float) -> None:
        if self._cuts == self._listener.cuts:
            await self._listener.wait(self._target.home(), token, end - clock.now())
        self._failures = 0
