"""Exchanges in the calling thread."""

from __future__ import annotations

import time
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockError
from ..protocol.replies import Reply
from ..protocol.requests import Request
from .connection import close, limit_to, take
from .exchanges import CleanUp, Exchanges, First

if TYPE_CHECKING:
    from .session import Session

_Result = TypeVar("_Result")
# Python warns of a coroutine that is thrown away. Ctrl-C, or a handler of a signal that raises, may
# come between making one of ours and awaiting it: it has done nothing then.
_OURS = __name__.rpartition(".connections.")[0].replace(".", r"\.") + r"\."
warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning, _OURS)

# How many requests are in one write: with more, each side may wait for the other to read.
BATCH = 1000
# How long sending may take that nobody is to wait for.
_AT_ONCE = 0.1


class Blocking(Exchanges):
    """Sends, receives and sleeps in the calling thread: none of its coroutines suspends."""

    is_asyncio = False

    async def at_once(self, session: Session, request: Request, sent: float) -> First:
        """Ask once, in as few steps as can be where a connection is at hand."""
        line = None
        try:
            line = session.idle.pop()
            line.send_packed_command((request.pack(),), check_health=False)
            value = line.read_response(disconnect_on_error=False)
        except IndexError:
            return await super().at_once(session, request, sent)
        except redis_exceptions.RedisError as error:
            # Without its frames, which refer to it: they hold the session and the connection.
            return line, (error.with_traceback(None),)
        except BaseException:
            close(line)
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
                self.read(line, answers, len(batch), until)
        except redis_exceptions.RedisError as error:
            answers += [error.with_traceback(None)] * (len(packed) - len(answers))
        except BaseException:
            close(line)
            raise
        return answers

    def read(self, line: Any, answers: list[Any], count: int, until: float) -> None:
        """Add so many answers, or error replies, to ``answers``. Raises what redis-py raises."""
        for _ in range(count):
            limit_to(line, until - clock.now())
            try:
                answers.append(line.read_response(disconnect_on_error=False))
            except redis_exceptions.ResponseError as error:
                answers.append(error.with_traceback(None))

    def keep(self, session: Session, line: Any) -> None:
        limit_to(line, session.limit)
        session.idle.append(line)

    def drop(self, line: Any) -> None:
        close(line)

    def undo(self, line: Any, packed: bytes) -> None:
        # The fake's has no time limit, and one that is closed would be opened again.
        if hasattr(line._sock, "settimeout"):
            with suppress(redis_exceptions.RedisError, OSError):
                limit_to(line, _AT_ONCE)
                line.send_packed_command((packed,), check_health=False)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(max(seconds, 0))  # noqa: ASYNC251 - it never runs in an event loop

    async def shield(self, clean_up: CleanUp, seconds: float, after: BaseException) -> None:
        """Run ``clean_up``. What Redis cannot be told is dropped: it ends with its lease."""
        with suppress(LockError):
            await clean_up()


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
