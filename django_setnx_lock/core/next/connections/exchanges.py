"""What both ways to ask a server do alike: to send a request again once, and to undo it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from ... import clock
from ..protocol.requests import AnyRequest
from .failures import ExchangeFailed, Undo

if TYPE_CHECKING:
    from .session import Session

_BROKEN = (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError)
# Errors that another try would not help.
_REFUSED = (redis_exceptions.AuthenticationError, redis_exceptions.AuthorizationError)


class Exchanges(ABC):
    """Asks on lines: connections whose answers come in the order of what was asked."""

    is_asyncio: bool

    @abstractmethod
    async def line(self, session: Session, until: float, *, afresh: bool) -> Any:
        """Return a line that is connected by ``until``; ``afresh``: those at hand may be dead.

        Raises what redis-py raises.
        """

    @abstractmethod
    async def ask(
        self, session: Session, line: Any, packed: Sequence[bytes], until: float
    ) -> list[Any]:
        """Return the answer to each of what is ``packed``, or the error of redis-py.

        One that is interrupted has its line dropped, or what is asked next runs behind it.
        """

    @abstractmethod
    def keep(self, session: Session, line: Any) -> None:
        """Have others use ``line``, on which nothing is under way."""

    @abstractmethod
    def drop(self, line: Any) -> None:
        """Have nobody use ``line``, which may be broken."""

    @abstractmethod
    def undo(self, line: Any, packed: bytes) -> bool:
        """Send what is ``packed`` behind what has no answer; return whether that could be done."""

    async def exchange(
        self,
        session: Session,
        request: AnyRequest,
        sent: float,
        within: float | None,
        undo: Undo,
        line: Any = None,
        answer: Any = None,
    ) -> tuple[Any, bool]:
        """Return the reply, and whether another copy of the request may be carried out yet.

        ``answer``: the error that it has ended in on ``line`` already. Raises ExchangeFailed. See
        :meth:`.Session.call`.
        """
        longest = 2 * session.limit
        until = sent + (longest if within is None else min(within, longest))
        packed, tries = request.pack(), 0
        # Those on which a copy has no answer.
        owing: list[Any] = []
        try:
            while True:
                if line is None:
                    line, answer = await self._try(session, packed, until, afresh=tries > 0)
                if isinstance(answer, _BROKEN):
                    tries += 1
                    owing += self._broken(session, line, answer)
                    if tries == 2 or clock.now() >= until or isinstance(answer, _REFUSED):
                        break
                else:
                    if line is not None:
                        self.keep(session, line)
                    if not isinstance(answer, redis_exceptions.NoScriptError):
                        break
                    packed = request.pack_in_full()
                line = None
            if not isinstance(answer, redis_exceptions.RedisError):
                return answer, bool(owing)
            is_undone = self._undo_each(owing, undo)
        except BaseException as error:
            in_doubt = bool(owing) or getattr(error, "in_doubt", not self.is_asyncio)
            error.in_doubt = in_doubt  # type: ignore[attr-defined]  # for who asked
            raise
        finally:
            # An interrupt may come at any time.
            for one in owing:
                self.drop(one)
        is_refused = isinstance(answer, redis_exceptions.ResponseError)
        raise ExchangeFailed(answer, in_doubt=not is_undone, is_undone=is_undone and not is_refused)

    async def _try(
        self, session: Session, packed: bytes, until: float, *, afresh: bool
    ) -> tuple[Any, Any]:
        """Return the line on which that was asked, None if there is none, and the answer."""
        line = None
        by = min(until, clock.now() + session.limit)
        try:
            line = await self.line(session, by, afresh=afresh)
            (answer,) = await self.ask(session, line, (packed,), by)
        except redis_exceptions.RedisError as error:
            return None, error.with_traceback(None)
        return line, answer

    def _broken(self, session: Session, line: Any, error: Exception) -> list[Any]:
        """Return ``line``, where it ended in ``error``, as one that may owe an answer."""
        if line is None:
            return []
        # One has failed, so all may be dead.
        session.idle.clear()
        if not isinstance(error, redis_exceptions.TimeoutError):
            self.drop(line)
        return [line]

    def _undo_each(self, owing: Sequence[Any], undo: Undo) -> bool:
        """Send behind each copy that has no answer what undoes it; return whether none is left."""
        is_undone = True
        for line in owing:
            is_undone &= undo is not None and self.undo(line, undo().pack_in_full())
        return is_undone

    async def exchange_many(
        self, session: Session, requests: Sequence[AnyRequest], within: float
    ) -> list[Any]:
        """Return the reply to each request, or an ExchangeFailed."""
        until = clock.now() + within
        try:
            line = await self.line(session, until, afresh=False)
            values = await self.ask(session, line, [one.pack() for one in requests], until)
            missing = redis_exceptions.NoScriptError
            unknown = [at for at, value in enumerate(values) if isinstance(value, missing)]
            if unknown:
                in_full = [requests[at].pack_in_full() for at in unknown]
                answers = await self.ask(session, line, in_full, until)
                for at, value in zip(unknown, answers, strict=True):
                    values[at] = value
        except redis_exceptions.RedisError as error:
            return [ExchangeFailed(error, in_doubt=False, is_undone=True)] * len(requests)
        if any(isinstance(value, _BROKEN) for value in values):
            session.idle.clear()
            self.drop(line)
        else:
            self.keep(session, line)
        return [
            ExchangeFailed(value, in_doubt=isinstance(value, _BROKEN), is_undone=False)
            if isinstance(value, redis_exceptions.RedisError)
            else value
            for value in values
        ]
