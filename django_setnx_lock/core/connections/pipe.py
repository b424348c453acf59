"""Exchanges in an event loop: all of its tasks share one connection to a server, in order."""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockError
from ..process import here
from .backend import Backend, CleanUp
from .connection import hang_up

if TYPE_CHECKING:
    from .session import Session

logger = logging.getLogger("django_setnx_lock.lock")

_FOREVER = 1e6


class Line:
    """One connection of an event loop. Its answers come in the order of what was asked.

    Whoever is cancelled disturbs nobody: the answer is passed over. Where one does not come in
    time, all who wait get an error; the connection is kept open for a while, for what undoes their
    requests there.
    """

    def __init__(self, connection: Any, limit: float, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._limit = limit
        self._loop = loop
        # The fake's writer has less, and what it blocks for outlives the loop if more waits behind.
        self.is_real = hasattr(connection._writer, "write")
        self._asked: deque[asyncio.Future[Any]] = deque()
        # Whether to be closed as soon as nobody waits for an answer: others may let a lock go even
        # when the loop ends.
        self._is_last = at_end_of_loop(self)
        # None: it is read no more.
        self._reader: asyncio.Task[None] | None = task_of(loop, self._read())

    @property
    def is_open(self) -> bool:
        """Whether it can be asked on."""
        return self._reader is not None

    def send(self, packed: Sequence[bytes], seconds: float) -> list[asyncio.Future[Any]]:
        """Send requests in one write; return the future answers, each a reply or an error.

        If the last is not there after so many ``seconds``, the connection is given up. Raises
        ConnectionError.
        """
        if not self.is_open:
            raise redis_exceptions.ConnectionError("the connection was closed")
        answers: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in packed]
        self._asked += answers
        # Not by redis-py's own method, which closes the connection when it is cancelled. Nor by
        # writelines(), which Python 3.12 has write to a transport that is lost, and to whoever has
        # its number by then; the fake's has that alone.
        writer = self._connection._writer
        if self.is_real:
            writer.write(b"".join(packed))
        else:
            writer.writelines(packed)
        timer = self._loop.call_later(seconds, self._expire, answers[-1])
        answers[-1].add_done_callback(lambda _: timer.cancel())
        return answers

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            self._stop(redis_exceptions.TimeoutError("Timeout reading from the server"))
            self._loop.call_later(2 * self._limit, self.close)

    def undo(self, packed: bytes) -> None:
        """Send what is ``packed`` behind all, if it can be, and read no answer."""
        writer = self._connection._writer
        if self.is_real and writer is not None and not writer.transport.is_closing():
            writer.transport.write(packed)

    def end(self) -> None:
        """Be closed as soon as nobody waits for an answer."""
        self._is_last = True
        if not self._asked:
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection; those who wait for an answer get a ConnectionError."""
        self._stop(redis_exceptions.ConnectionError(why))
        with suppress(Exception):
            # What was written is sent, if the socket takes it.
            self._connection._close()

    def _stop(self, error: redis_exceptions.RedisError) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            while self._asked:
                self._answer(error)

    def _answer(self, answer: Any) -> None:
        future = self._asked.popleft()
        if not future.done():
            future.set_result(answer)

    async def _read(self) -> None:
        why = "the connection was closed"
        try:
            while True:
                try:
                    reply = await self._connection.read_response(
                        timeout=_FOREVER, disconnect_on_error=False
                    )
                except redis_exceptions.ResponseError as error:
                    # Without its frames, in which the connection is.
                    reply = error.with_traceback(None)
                self._answer(reply)
                if self._is_last and not self._asked:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are to know
            why = str(error)
        finally:
            # The loop may end, and cancel whatever there is. Else it is kept for what undoes.
            if self.is_open:
                self.close(why)


class Pipe:
    """The line that the tasks of an event loop share, and the next one where that has broken.

    It ends with the session, and so with the client: of the two, it knows neither. ``listens``:
    whether what it is asked has no answer for long, and need not have one at the end of the loop.
    """

    def __init__(
        self, session: Session, loop: asyncio.AbstractEventLoop, *, listens: bool = False
    ) -> None:
        self._make = session.aio_connection
        self._limit = session.limit
        self._loop = loop
        self.line: Line | None = None
        self._listens = listens
        self._opening: asyncio.Task[None] | None = None
        at_end_of_loop(self)

    def end(self) -> None:
        """Connect no longer: the loop ends."""
        if self._opening is not None:
            self._opening.cancel()
        if self._listens and self.line is not None:
            self.line.close()

    async def open(self, until: float) -> Line:
        """Return the line, connected by ``until``. Raises what redis-py raises.

        Who waits is bounded, however slowly the server answers what redis-py says at first, and the
        system looks up the name of the host.
        """
        while self.line is None or not self.line.is_open:
            if self._opening is None:
                # A task of its own: before Python 3.12 redis-py may swallow a cancellation there,
                # and others wait for it, too.
                self._opening = task_of(self._loop, self._open())
                # Perhaps nobody waits for it by then.
                self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            opening = self._opening
            await asyncio.wait({opening}, timeout=max(until - clock.now(), 0))
            if not opening.done():
                raise redis_exceptions.TimeoutError("Timeout connecting to the server")
            if opening.cancelled():
                raise redis_exceptions.ConnectionError("what was to connect was cancelled")
            opening.result()
        return self.line

    async def _open(self) -> None:
        connection = None
        try:
            connection = self._make()
            await connection.connect()
            self.line, connection = Line(connection, self._limit, self._loop), None
        finally:
            self._opening = None
            if connection is not None:
                hang_up(connection)

    def __del__(self) -> None:
        # In any thread. Nobody waits for an answer: whoever does has this.
        if self.line is not None:
            try:  # noqa: SIM105 - at the end of the interpreter there is no suppress() any more
                self._loop.call_soon_threadsafe(self.line.close)
            except RuntimeError:
                pass


class Asyncio(Backend):
    """Sends, receives and sleeps in the running event loop."""

    is_asyncio = True

    async def line(self, session: Session, until: float, *, afresh: bool) -> Line:
        pipe: Pipe = of_loop(session.pipes, lambda loop: Pipe(session, loop))
        try:
            return await pipe.open(until)
        except (OSError, RuntimeError) as error:
            # The loop is closed.
            raise redis_exceptions.ConnectionError(str(error)) from error

    async def ask(self, line: Line, packed: Sequence[bytes], until: float) -> list[Any]:
        try:
            answers = line.send(packed, max(until - clock.now(), 0))
        except (OSError, RuntimeError, redis_exceptions.ConnectionError) as error:
            # The loop or the transport is closed.
            return [redis_exceptions.ConnectionError(str(error))] * len(packed)
        try:
            for answer in answers:
                await answer
        except asyncio.CancelledError as error:
            # What undoes it runs behind it, unless that is another line by then.
            error.in_doubt = not line.is_open  # type: ignore[attr-defined]  # for who asked
            raise
        finally:
            for answer in answers:
                answer.cancel()
        return [answer.result() for answer in answers]

    def undo(self, line: Line, packed: bytes) -> None:
        line.undo(packed)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def shield(self, clean_up: CleanUp, seconds: float, after: BaseException) -> None:
        """Run ``clean_up`` to its end, for ``seconds`` at most, though the task may be cancelled.

        A coroutine that is closed (``after`` is GeneratorExit) cannot await: then a task of its own
        runs it. Raises CancelledError afterwards when the task was cancelled meanwhile.
        """
        loop = _get_running_loop()
        if loop is None:
            return
        task = loop.create_task(clean_up())
        _LATER.add(task)
        task.add_done_callback(_has_cleaned_up)
        timer = loop.call_later(seconds, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())
        cancelled: asyncio.CancelledError | None = None
        while not isinstance(after, GeneratorExit) and not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


ASYNCIO = Asyncio()
_LATER: set[asyncio.Task[None]] = set()


def _has_cleaned_up(task: asyncio.Task[None]) -> None:
    _LATER.discard(task)
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LockError):
        logger.error("a lock could not be given up: %r", error)


def task_of(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have ``loop`` run ``work``, with nobody's context and from its next turn on.

    What makes the loop's own tasks may begin them at once, before we know the task.
    """
    return Context().run(partial(asyncio.Task, work, loop=loop))


def of_loop(known: dict[Any, Any], make: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
    """Return what is ``known`` of the running event loop; at first, what ``make`` makes for it."""
    loop = asyncio.get_running_loop()
    found = known.get(loop)
    if found is None:
        for other in list(known):
            if other.is_closed():
                known.pop(other, None)
        found = known[loop] = make(loop)
    return found


class _EndOfLoop:
    """Closes the connections and renewals of an event loop when the loop ends.

    asyncio has no public hook for that. But asyncio.run() closes the asynchronous generators of its
    loop, and this object has begun one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A line lives as long as the loop reads it, a renewal as long as its session.
        self.closing: WeakSet[Any] = WeakSet()
        self.is_over = False
        self._at_end = self._close_at_end()
        with suppress(StopIteration):
            self._at_end.asend(None).send(None)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.is_over = True
            for one in list(self.closing):
                one.end()
            # Who is cancelled goes on in the loop's next turn; transports are closed after that.
            for _ in range(3):
                await asyncio.sleep(0)


def at_end_of_loop(one: Any) -> bool:
    """Have ``one.end()`` called as the running event loop ends; return whether it does already."""
    end: _EndOfLoop = of_loop(here().loops, _EndOfLoop)
    end.closing.add(one)
    return end.is_over
