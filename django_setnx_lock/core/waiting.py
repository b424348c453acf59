"""How a waiter sleeps until it is its turn.

The hand-over is that of ``tests/model``: a waiter has a mailbox of its own, which is pushed to
when the lock is left to it. What it then finds out by asking again is what counts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from redis import exceptions as redis_exceptions
from redis.exceptions import RedisError, ResponseError

from . import clock
from .calling import translated
from .cluster.shared import is_cluster
from .errors import LockUnavailable
from .line import CONNECT_WITHIN, Command, Line
from .lines import Lines
from .protocol import Ahead, Busy, Request, read_ahead
from .sentinel import EVERY, follow, leads_elsewhere, primary_of
from .target import Target

# A waiter asks again after so long, whatever it was told: who was to wake it may be gone.
SLICE_MS = 25_000
# A sleep that failed later than that was well begun: proxies cut what is idle for too long.
AT_ONCE = 1.0
# Who has less time than that to sleep connects all the same, if that takes no longer.
CONNECT_AT_LEAST = 0.1
# For how many seconds a caller waits for an answer whose own time, or lease, ends sooner.
ANSWER_WITHIN = 1.0
_FOREIGN_FIRST, _FOREIGN_LONGEST = 0.005, 0.1
_Result = TypeVar("_Result")
_LINES = Lines(Line, connect_timeout=CONNECT_WITHIN)


def time_to_sleep(answer: Busy, tries: int, left: float | None) -> float:
    """How many seconds to sleep at most after ``answer``, the busy one number ``tries``.

    Until the end of the holder's lease, and until the end of the caller's own time (``left``;
    None: without end). A foreign holder wakes nobody: it is polled, with jitter, so that many
    waiters do not ask in step.
    """
    seconds = SLICE_MS / 1000
    if answer.foreign:
        seconds = _jittered(min(_FOREIGN_FIRST * 2.0 ** min(tries, 10), _FOREIGN_LONGEST))
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


def _jittered(longest: float) -> float:
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, secures nothing


@dataclass(slots=True)
class Claim:
    """The lock was taken for the claim time, by what was sent ahead at ``sent``.

    ``line``: what that was sent on, to be given back or dropped. ``whole`` asks for the whole
    lease; ``packed`` is the same as it goes over the wire.
    """

    client: Any
    fence: int
    sent: float
    line: Line
    whole: Request
    packed: bytes

    def give_back(self) -> None:
        """Keep the line, which nothing is outstanding on, for the next who waits."""
        _LINES.give_back(self.client, self.line)


class Mailbox:
    """Where the waiter of one lock is told that it is its turn. To be closed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_of_cluster = is_cluster(target.client)
        # Of the server that it listens at.
        self._client: Any = None
        self._line: Any = None
        self._listening_at = ""
        self._has_answer = False
        self._ahead: Ahead | None = None
        self._packed = b""
        self._sent = 0.0
        self._failed = False

    def sleep(self, token: str, seconds: float, ahead: Ahead | None = None) -> Claim | None:
        """Return when ``token`` was woken, or when ``seconds`` have passed.

        What ``ahead`` takes the lock with is sent along, for the server to carry out as soon
        as it has woken the waiter. Gives the claim if that took the lock, else None: then the
        caller has to ask. Raises LockUnavailable when it could not be listened for at all,
        twice in a row: the first time it returns, so that the caller asks again.
        """
        if not self._target.dialect.wakes():
            time.sleep(seconds)
            return None
        if not hasattr(self._target.client, "connection_pool") and not self._is_of_cluster:
            # One which has no one server to listen at.
            time.sleep(min(seconds, _jittered(_FOREIGN_LONGEST)))
            return None
        if self._has_answer:
            self._try(self._read)
        end = clock.now() + self._target.longest_sleep(seconds)
        return self._try(lambda: self._listen(self._target.keys.wake(token), end, ahead))

    def _try(self, step: Callable[[], _Result]) -> _Result | None:
        began = clock.now()
        try:
            with translated(self._target.key):
                return step()
        except LockUnavailable as error:
            self._drop()
            pause = self._target.moved(error)
            if pause is not None:
                time.sleep(pause)
                return None
            if self._client is not None:
                _LINES.forget(self._client)
            at_once = clock.now() - began < AT_ONCE
            if self._failed and at_once:
                raise
            self._failed = at_once
        return None

    def close(self) -> None:
        """Listen no longer."""
        if self._has_answer:
            with suppress(RedisError):
                self._read()
        if self._line is not None and not self._listening_at:
            _LINES.give_back(self._client, self._line)
            self._line = None
        self._drop()

    def _listen(self, box: str, end: float, ahead: Ahead | None) -> Claim | None:
        if self._listening_at not in ("", box) or self._is_elsewhere():
            self._drop()
        if self._line is None:
            self._client = self._target.home()
            self._line = _LINES.borrow(self._client)
        while (left := end - clock.now()) > 0:
            is_new = not self._listening_at
            if is_new and not self._begin(box, left, ahead):
                break
            # Redis ends a BLPOP up to 0.1 s late: the waiter wakes in time, and hears of it later.
            self._has_answer = self._wait(end)
            # Who has to ask does so at once, and reads afterwards what woke him.
            if not self._has_answer or (is_new and self._ahead is None):
                break
            woken, claim = self._read()
            if woken is not None or claim is not None:
                return claim
        if not self._has_answer:
            self._failed = False
        return None

    def _is_elsewhere(self) -> bool:
        """Whether it listens at a server that is the primary no longer."""
        return self._line is not None and leads_elsewhere(self._client, self._line)

    def _wait(self, end: float) -> bool:
        """Whether there is an answer by ``end``; if it ends before, it is to listen elsewhere."""
        if primary_of(self._client) is None:
            return bool(self._line.wait(end - clock.now()))
        while (left := end - clock.now()) > 0:
            if self._line.wait(min(left, EVERY)):
                return True
            follow(self._client)
            if self._is_elsewhere():
                self._drop()
                break
        return False

    def _begin(self, box: str, seconds: float, ahead: Ahead | None) -> bool:
        """Whether there was time to connect."""
        self._listening_at = box
        self._ahead = ahead
        commands: list[Command] = [("BLPOP", box, f"{max(seconds, 0.001):.3f}")]
        if ahead is not None:
            commands.append(ahead.take.by_sha)
        self._sent = clock.now()
        try:
            self._line.send(*commands, within=max(seconds, CONNECT_AT_LEAST))
        except redis_exceptions.TimeoutError:
            if seconds >= AT_ONCE:
                raise
            self._drop()
            return False
        if ahead is not None:
            # While there is time.
            self._packed = self._line.pack(ahead.whole.by_sha)
        return True

    def _read(self) -> tuple[Any, Claim | None]:
        """What woke the waiter, and the claim if what was sent along took the lock."""
        # Interrupted in the midst of it, the line is not to be read again.
        self._has_answer = False
        woken, claim = self._line.read(), None
        if self._ahead is not None:
            # Who asks in the ordinary way hears of what is wrong.
            with suppress(ResponseError):
                claim = self._claim(read_ahead(self._line.read()), self._ahead.whole)
        self._listening_at = ""
        self._failed = False
        return woken, claim

    def _claim(self, fence: int | None, whole: Request) -> Claim | None:
        if fence is None:
            return None
        line, self._line = self._line, None
        return Claim(self._client, fence, self._sent, line, whole, self._packed)

    def _drop(self) -> None:
        self._listening_at, self._has_answer = "", False
        if self._line is not None:
            self._line.drop()
            self._line = None
