"""Exchanges in an event loop: all of its tasks share one connection to a server, in order."""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from redis import exceptions as redis_exceptions

from ... import clock
from ...connections.client_settings import hang_up
from ...errors import LockError
from ..process import here
from ..protocol.requests import AnyRequest
from .failures import ExchangeFailed, Undo

if TYPE_CHECKING:
    from .session import Session

logger = logging.getLogger("django_setnx_lock.lock")

_FOREVER = 1e6
_BROKEN = (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError)
_REFUSED = (redis_exceptions.AuthenticationError, redis_exceptions.AuthorizationError)


class Pipe:
    """One connection of an event loop. Its answers come in the order of what was asked.

    Whoever is cancelled disturbs nobody: the answer is passed over. Where one does not come in
    time, all who wait ask again on another connection; the one before is kept open for as long as
    they do, for what undoes their requests there.
    """

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop
        self.connection: Any = None
        # Those on which an answer did not come in time.
        self._retired: list[Any] = []
        # How many wait for an answer.
        self._asking = 0
        self._is_ending = False
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        at_end_of_loop(self)

    async def ask(self, packed: bytes, until: float) -> Any:
        """Return the reply to what is ``packed``. Raises what redis-py raises.

        ``until``: when it has to be there, on the local clock.
        """
        if self.connection is None:
            await self.open(until)
        (answer,) = self.send(packed)
        self._asking += 1
        timer = self._loop.call_later(max(until - clock.now(), 0), self.expire, answer)
        try:
            return await answer
        finally:
            timer.cancel()
            self._asking -= 1
            self.rest()

    async def open(self, until: float) -> None:
        """Connect, unless it is connected. Raises what redis-py raises."""
        while self.connection is None:
            if self._opening is None:
                # With nobody's context. A task of its own: before Python 3.12 redis-py may swallow
                # a cancellation there, and others wait for it, too.
                opening = Context().run(self._loop.create_task, self._open())
                opening.add_done_callback(_take_note)
                self._opening = opening
            opening = self._opening
            await asyncio.wait({opening}, timeout=max(until - clock.now(), 0))
            if not opening.done():
                raise redis_exceptions.TimeoutError("Timeout connecting to the server")
            if opening.cancelled():
                raise redis_exceptions.ConnectionError("what was to connect was cancelled")
            opening.result()

    def send(self, *packed: bytes) -> list[asyncio.Future[Any]]:
        """Send requests in one write, on a connection that is open; return the future answers."""
        answers: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in packed]
        self._asked += answers
        # Not by redis-py's own method, which closes the connection when it is cancelled.
        self.connection._writer.write(b"".join(packed))
        return answers

    @property
    def is_open(self) -> bool:
        """Whether it can be sent on."""
        return self.connection is not None

    def expire(self, answer: asyncio.Future[Any]) -> None:
        """Give the connection up if there is no ``answer`` yet: its time is over."""
        if not answer.done():
            answer.set_exception(redis_exceptions.TimeoutError("Timeout reading from the server"))
            self.retire()

    def retire(self) -> None:
        """Have another connection from now on; those who wait for an answer get an error."""
        if self.connection is not None:
            self._retired.append(self.connection)
            self._loop.call_later(2 * self._session.limit, self._hang_up_retired)
            self.connection = None
        self.close("Timeout reading from the server")

    def _hang_up_retired(self) -> None:
        if self._retired:
            _close(self._retired.pop(0))

    async def _open(self) -> None:
        connection = None
        try:
            connection = self._session.aio_connection()
            await connection.connect()
            self.connection, connection = connection, None
            reading = self._read(self.connection)
            self._reader = Context().run(self._loop.create_task, reading)
        finally:
            self._opening = None
            if connection is not None:
                hang_up(connection)

    async def _read(self, connection: Any) -> None:
        try:
            while True:
                try:
                    reply = await connection.read_response(
                        timeout=_FOREVER, disconnect_on_error=False
                    )
                except redis_exceptions.ResponseError as error:
                    # Without its frames, in which the connection is.
                    reply = error.with_traceback(None)
                answer = self._asked.popleft()
                if answer.done():
                    continue
                if isinstance(reply, redis_exceptions.ResponseError):
                    answer.set_exception(reply)
                else:
                    answer.set_result(reply)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are to know
            if self.connection is connection:
                self.close(str(error))
        finally:
            # The loop may end, and cancel whatever there is.
            if self.connection is connection:
                self.close()

    def end(self) -> None:
        """Be closed from now on whenever nobody waits for an answer: the loop ends.

        Others may let a lock go even then.
        """
        self._is_ending = True
        while self._retired:
            self._hang_up_retired()
        self.rest()

    def rest(self) -> None:
        """Close the connection if nobody waits for an answer, and the loop ends."""
        if self._is_ending and not self._asking and self.connection is not None:
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        """Close the connection; those who wait for an answer get a ConnectionError."""
        connection, self.connection = self.connection, None
        asked, self._asked = self._asked, deque()
        reader, self._reader = self._reader, None
        if connection is not None:
            _close(connection)
        if reader is not None:
            reader.cancel()
        for answer in asked:
            if not answer.done():
                answer.set_exception(redis_exceptions.ConnectionError(why))
                # Whoever it is for may be gone.
                answer.exception()


class Asyncio:
    """Sends, receives and sleeps in the running event loop."""

    is_asyncio = True

    async def exchange(
        self,
        session: Session,
        request: AnyRequest,
        sent: float,
        within: float | None,
        undo: Undo,
    ) -> tuple[Any, bool]:
        """Return the reply, and whether another copy of the request may be carried out yet.

        Raises ExchangeFailed. See :meth:`.Session.call`.
        """
        pipe = pipe_of(session)
        longest = 2 * session.limit
        until = sent + (longest if within is None else min(within, longest))
        packed, tries = request.pack(), 0
        # Connections on which a copy has no answer.
        owing: list[Any] = []
        while True:
            connection = None
            try:
                await pipe.open(min(until, clock.now() + session.limit))
                connection = pipe.connection
                value = await pipe.ask(packed, min(until, clock.now() + session.limit))
                return value, bool(owing)
            except redis_exceptions.NoScriptError:
                packed = request.pack_in_full()
            except redis_exceptions.ResponseError as error:
                in_doubt = not _undo_behind(owing, undo)
                raise ExchangeFailed(error, in_doubt=in_doubt, is_undone=False) from None
            except redis_exceptions.RedisError as error:
                tries += 1
                if connection is not None:
                    owing.append(connection)
                is_broken = isinstance(error, _BROKEN) and not isinstance(error, _REFUSED)
                if tries == 2 or clock.now() >= until or not is_broken:
                    is_undone = _undo_behind(owing, undo)
                    raise ExchangeFailed(
                        error, in_doubt=not is_undone, is_undone=is_undone
                    ) from None
            except asyncio.CancelledError as error:
                # What undoes it runs behind it, unless that is another connection by then.
                is_behind = connection is None or connection is pipe.connection
                error.in_doubt = bool(owing) or not is_behind  # type: ignore[attr-defined]  # for who asked
                raise
            except (OSError, RuntimeError) as error:
                # The loop or the transport is closed.
                failure = redis_exceptions.ConnectionError(str(error))
                raise ExchangeFailed(failure, in_doubt=True, is_undone=False) from error

    async def exchange_many(
        self, session: Session, requests: Sequence[AnyRequest], within: float
    ) -> list[Any]:
        """Return the reply to each request, or an ExchangeFailed."""
        pipe, until = pipe_of(session), clock.now() + within
        try:
            await pipe.open(until)
            answers = pipe.send(*[request.pack() for request in requests])
            await asyncio.wait(answers, timeout=max(until - clock.now(), 0))
            if not all(answer.done() for answer in answers):
                pipe.retire()
        except redis_exceptions.RedisError as error:
            return [ExchangeFailed(error, in_doubt=False, is_undone=True)] * len(requests)
        finally:
            pipe.rest()
        values = []
        for answer, request in zip(answers, requests, strict=True):
            try:
                try:
                    values.append(answer.result())
                except redis_exceptions.NoScriptError:
                    values.append(await pipe.ask(request.pack_in_full(), until))
            except redis_exceptions.RedisError as error:
                is_refused = isinstance(error, redis_exceptions.ResponseError)
                values.append(ExchangeFailed(error, in_doubt=not is_refused, is_undone=False))
        return values

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def shield(
        self,
        clean_up: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
        after: BaseException,
    ) -> None:
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
        cancelled: asyncio.CancelledError | None = None
        give_up_at = loop.time() + seconds
        while not isinstance(after, GeneratorExit) and not task.done():
            if (left := give_up_at - loop.time()) <= 0:
                task.cancel()
                break
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


_LATER: set[asyncio.Task[None]] = set()


def _has_cleaned_up(task: asyncio.Task[None]) -> None:
    _LATER.discard(task)
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LockError):
        logger.error("a lock could not be given up: %r", error)


def _undo_behind(owing: Sequence[Any], undo: Undo) -> bool:
    """Send what undoes a request behind each copy; return whether that is done for all."""
    is_undone = True
    for connection in owing:
        # The fake's has none.
        transport = getattr(connection._writer, "transport", None)
        if undo is None or transport is None or transport.is_closing():
            is_undone = False
        else:
            connection._writer.write(undo().pack_in_full())
    return is_undone


def _close(connection: Any) -> None:
    with suppress(Exception):
        # What was written is sent, if the socket takes it.
        connection._close()


def _take_note(task: asyncio.Task[Any]) -> None:
    """Take note of an error of ``task`` that nobody may wait for any more."""
    if not task.cancelled():
        task.exception()


def pipe_of(session: Session) -> Pipe:
    """Return the connection of the running event loop to the server of ``session``."""
    pipe: Pipe = of_loop(session.pipes, lambda loop: Pipe(session, loop))
    return pipe


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


class Closing(Protocol):
    """A pipe or a renewal, which ends when its event loop does."""

    def end(self) -> None: ...


class EndOfLoop:
    """Closes the connections and renewals of an event loop when the loop ends.

    asyncio has no public hook for that. But asyncio.run() closes the asynchronous generators of its
    loop, and this object has begun one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closing: list[Closing] = []
        self.is_over = False
        self._at_end = self._close_at_end()
        with suppress(StopIteration):
            self._at_end.asend(None).send(None)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.is_over = True
            for closing in self.closing:
                closing.end()
            # Transports are closed in the loop's next turn.
            await asyncio.sleep(0)


def at_end_of_loop(closing: Closing) -> None:
    """Have ``closing`` closed at the end of the running event loop."""
    end: EndOfLoop = of_loop(here().loops, EndOfLoop)
    if end.is_over:
        closing.end()
    end.closing.append(closing)
