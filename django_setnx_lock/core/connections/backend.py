"""The two ways to run an operation: in a thread, or in an event loop.

Operations are coroutines over a backend. On the blocking one nothing suspends, so the synchronous
method runs its operation with one ``send(None)``: :func:`run`. That of event loops is in
:mod:`.pipe`.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockError
from ..protocol.replies import Reply
from ..protocol.requests import Request, Undo
from .connection import close, limit_to, take

if TYPE_CHECKING:
    from .session import Session

CleanUp: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
First: TypeAlias = Reply | tuple[Any, Sequence[Any]]
_Result = TypeVar("_Result")
# Python warns of a coroutine that is thrown away. Ctrl-C, or a handler of a signal that raises, may
# come between making one of ours and awaiting it: it has done nothing then.
_OURS = __name__.rpartition(".connections.")[0].replace(".", r"\.") + r"\."
warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning, _OURS)

# How many requests are in one write: with more, each side may wait for the other to read.
BATCH = 1000
# How long sending may take that nobody is to wait for.
_AT_ONCE = 0.1
# Behind what is no reply of Redis, what comes next is of another request.
BROKEN = (
    redis_exceptions.ConnectionError,
    redis_exceptions.TimeoutError,
    redis_exceptions.InvalidResponse,
)
# What reading ends in. Whatever else has come from a handler of a signal, as from another lock that
# it uses: an interrupt, behind which the answer is still to come.
ANSWERED = (*BROKEN, redis_exceptions.ResponseError)


class Backend(ABC):
    """Asks on lines: connections whose answers come in the order of what was asked."""

    is_asyncio: bool

    @abstractmethod
    async def line(self, session: Session, until: float, *, afresh: bool) -> Any:
        """Return a line that is connected by ``until``; ``afresh``: those at hand may be dead.

        Raises what redis-py raises.
        """

    @abstractmethod
    async def ask(self, line: Any, packed: Sequence[bytes], until: float) -> list[Any]:
        """Return the answer to each of what is ``packed``, or the error of redis-py."""

    @abstractmethod
    def undo(self, line: Any, packed: bytes) -> None:
        """Send what is ``packed`` behind what has no answer, if that can be."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Sleep."""

    @abstractmethod
    async def shield(self, clean_up: CleanUp, seconds: float, after: BaseException) -> None:
        """Run ``clean_up``, for ``seconds`` at most; it follows the exception ``after``."""

    def keep(self, session: Session, line: Any) -> None:  # noqa: B027 - a shared line needs nothing
        """Have others use ``line``, on which nothing is under way."""

    def drop(self, line: Any) -> None:  # noqa: B027 - it closes itself
        """Have nobody use ``line``, which may be broken."""

    def leave(self, line: Any, undo: Undo) -> None:  # noqa: B027 - what is asked next runs behind
        """Undo what was asked on ``line`` by who was interrupted, and have nobody use it."""

    async def at_once(
        self, session: Session, request: Request, sent: float, undo: Undo = None
    ) -> First:
        """Ask once. Return the reply, or the line and the error of redis-py in which it ended."""
        until = sent + session.limit
        line, answers = await self._try(session, (request.pack(),), until, undo, afresh=False)
        if isinstance(answers[0], redis_exceptions.RedisError):
            return line, answers
        self.keep(session, line)
        return Reply(answers[0], sent, False)

    async def exchange(
        self,
        session: Session,
        requests: Sequence[Request],
        sent: float,
        until: float,
        undo: Undo = None,
        line: Any = None,
        answers: Sequence[Any] = (),
    ) -> list[Reply | redis_exceptions.RedisError]:
        """Return the reply to each request, or an error of redis-py. See :meth:`.Session.call`.

        An error has the attribute ``in_doubt``: whether its request may be carried out yet.
        ``answers``: what was answered on ``line`` already.
        """
        asked = {at: request.pack() for at, request in enumerate(requests)}
        found: dict[int, Any] = {}
        tries = 0
        # Those of which another copy has no answer, and the lines on which that is.
        copies: set[int] = set()
        owing: list[Any] = []
        try:
            while asked:
                if not answers:
                    packed = list(asked.values())
                    line, answers = await self._try(session, packed, until, undo, afresh=tries > 0)
                found.update(zip(asked, answers, strict=True))
                broken = next((one for one in answers if isinstance(one, BROKEN)), None)
                asked, answers = _to_repeat(requests, asked, answers), ()
                if broken is None:
                    if line is not None:
                        self.keep(session, line)
                    continue
                tries += 1
                if line is not None:
                    copies.update(asked)
                    owing.append(line)
                    self._has_broken(session, line, broken)
                if tries == 2 or clock.now() >= until:
                    break
            kind: Any = redis_exceptions.RedisError
            self._undo([one for one in found.values() if isinstance(one, kind)], owing, undo)
            return [
                answer
                if isinstance(answer, redis_exceptions.RedisError)
                else Reply(answer, sent, at in copies)
                for at, answer in sorted(found.items())
            ]
        except BaseException as error:
            if owing:
                self._undo([error], owing, undo)
            raise
        finally:
            # An interrupt may come at any time.
            for one in owing:
                self.drop(one)

    async def _try(
        self, session: Session, packed: Sequence[bytes], until: float, undo: Undo, *, afresh: bool
    ) -> tuple[Any, Sequence[Any]]:
        """Return the line on which that was asked, None if there is none, and the answers."""
        by = min(until, clock.now() + session.limit)
        try:
            line = await self.line(session, by, afresh=afresh)
        except redis_exceptions.LockError:
            # Of a handler of a signal, too.
            raise
        except redis_exceptions.RedisError as error:
            # Without its frames, which refer to it: they hold the session and the connection.
            return None, [error.with_traceback(None)] * len(packed)
        try:
            return line, await self.ask(line, packed, by)
        except BaseException:
            self.leave(line, undo)
            raise

    def _has_broken(self, session: Session, line: Any, error: Exception) -> None:
        session.close_idle()
        if not isinstance(error, redis_exceptions.TimeoutError):
            self.drop(line)

    def _undo(self, errors: Sequence[Any], owing: Sequence[Any], undo: Undo) -> None:
        """Send behind each copy that has no answer what undoes it, if there are ``errors``."""
        for error in errors:
            error.in_doubt = bool(owing)
        if errors and undo is not None:
            for line in owing:
                self.undo(line, undo())


def _to_repeat(
    requests: Sequence[Request], asked: dict[int, bytes], answers: Sequence[Any]
) -> dict[int, bytes]:
    """Return what broke, and in full what the server has no script for."""
    again: dict[int, bytes] = {}
    for (at, packed), answer in zip(asked.items(), answers, strict=True):
        if isinstance(answer, BROKEN):
            again[at] = packed
        elif isinstance(answer, redis_exceptions.NoScriptError):
            again[at] = requests[at].pack_in_full()
    return again


class Blocking(Backend):
    """Sends, receives and sleeps in the calling thread: none of its coroutines suspends."""

    is_asyncio = False

    async def at_once(
        self, session: Session, request: Request, sent: float, undo: Undo = None
    ) -> First:
        """Ask once, in as few steps as can be where a connection is at hand."""
        line = None
        try:
            line = session.idle.pop()
            line.send_packed_command((request.pack(),), check_health=False)
            value = line.read_response(disconnect_on_error=False)
        except IndexError as error:
            # Without its frames, too: the fake keeps it as long as a connection that is made now.
            error.with_traceback(None)
            return await super().at_once(session, request, sent, undo)
        except ANSWERED as error:
            # Without its frames, which refer to it: they hold the session and the connection.
            return line, (error.with_traceback(None),)
        except BaseException:
            self.leave(line, undo)
            raise
        session.idle.append(line)
        return Reply(value, sent, False)

    async def line(self, session: Session, until: float, *, afresh: bool) -> Any:
        return (None if afresh else take(session.idle)) or session.connection(until)

    async def ask(self, line: Any, packed: Sequence[bytes], until: float) -> list[Any]:
        answers: list[Any] = []
        try:
            for at in range(0, len(packed), BATCH):
                batch = packed[at : at + BATCH]
                limit_to(line, until - clock.now())
                line.send_packed_command((b"".join(batch),), check_health=False)
                await self.sent(line, until)
                for _ in batch:
                    limit_to(line, until - clock.now())
                    try:
                        answers.append(line.read_response(disconnect_on_error=False))
                    except redis_exceptions.ResponseError as error:
                        answers.append(error.with_traceback(None))
        except ANSWERED as error:
            answers += [error.with_traceback(None)] * (len(packed) - len(answers))
        return answers

    async def sent(self, line: Any, until: float) -> None:
        """Do nothing, now that a request was sent on ``line``."""

    def keep(self, session: Session, line: Any) -> None:
        limit_to(line, session.limit)
        session.idle.append(line)

    def drop(self, line: Any) -> None:
        close(line)

    def leave(self, line: Any, undo: Undo) -> None:
        try:
            if line is not None and undo is not None:
                self.undo(line, undo())
        finally:
            close(line)

    def undo(self, line: Any, packed: bytes) -> None:
        # The fake's has no time limit, and one that is closed would be opened again.
        if hasattr(line._sock, "settimeout"):
            with suppress(redis_exceptions.RedisError, OSError):
                limit_to(line, _AT_ONCE)
                line.send_packed_command((packed,), check_health=False)

    async def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0))

    async def shield(self, clean_up: CleanUp, seconds: float, after: BaseException) -> None:
        """Run ``clean_up``. What Redis cannot be told is dropped: it ends with its lease."""
        with suppress(LockError):
            await clean_up()


BLOCKING = Blocking()
BLOCKS_THE_LOOP = (
    "This call waits for Redis, and nothing else runs in the event loop of this thread meanwhile: "
    "use the method with the prefix a (async with, aacquire, arelease), or another thread."
)


def refuse_blocking(message: str) -> None:
    raise RuntimeError(message)


# Called for a blocking call in an event loop. It raises, or lets the call pass.
refuse: Callable[[str], None] = refuse_blocking


def run(operation: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``operation``, which blocks and so never suspends, to its end in one step.

    Raises what it raises, and RuntimeError where an event loop runs in this thread, unless blocking
    it is allowed there.
    """
    try:
        # Much quicker than get_running_loop(), which raises where there is none.
        if _get_running_loop() is not None:
            refuse(BLOCKS_THE_LOOP)
        operation.send(None)
    except StopIteration as done:
        # No call from here on: none in which a handler of a signal could lose what was granted.
        return done.value  # type: ignore[no-any-return]  # StopIteration has no type for it
    except BaseException:
        # An interrupt may come before it has begun.
        operation.close()
        raise
    operation.close()
    raise RuntimeError("an operation on the blocking backend has suspended")
