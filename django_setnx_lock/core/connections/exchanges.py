"""What both ways to ask a server do alike: to send a request again once, and to undo it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from redis import exceptions as redis_exceptions

from .. import clock
from ..protocol.replies import Reply
from ..protocol.requests import Request, Undo

if TYPE_CHECKING:
    from .session import Session

CleanUp: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
First: TypeAlias = Reply | tuple[Any, Sequence[Any]]
# Behind what is no reply of Redis, what comes next is of another request.
_BROKEN = (
    redis_exceptions.ConnectionError,
    redis_exceptions.TimeoutError,
    redis_exceptions.InvalidResponse,
)


class Exchanges(ABC):
    """Asks on lines: connections whose answers come in the order of what was asked."""

    is_asyncio: bool

    @abstractmethod
    async def line(self, session: Session, until: float, *, afresh: bool) -> Any:
        """Return a line that is connected by ``until``; ``afresh``: those at hand may be dead.

        Raises what redis-py raises.
        """

    @abstractmethod
    async def ask(self, line: Any, packed: Sequence[bytes], until: float) -> list[Any]:
        """Return the answer to each of what is ``packed``, or the error of redis-py.

        One that is interrupted has its line dropped, or what is asked next runs behind it.
        """

    @abstractmethod
    def undo(self, line: Any, packed: bytes) -> None:
        """Send what is ``packed`` behind what has no answer, if that can be."""

    def keep(self, session: Session, line: Any) -> None:  # noqa: B027 - a shared line needs nothing
        """Have others use ``line``, on which nothing is under way."""

    def drop(self, line: Any) -> None:  # noqa: B027 - it closes itself
        """Have nobody use ``line``, which may be broken."""

    async def at_once(self, session: Session, request: Request, sent: float) -> First:
        """Ask once. Return the reply, or the line and the error of redis-py in which it ended."""
        until = sent + session.limit
        line, answers = await self._try(session, (request.pack(),), until, afresh=False)
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
                    line, answers = await self._try(session, packed, until, afresh=tries > 0)
                found.update(zip(asked, answers, strict=True))
                broken = next((one for one in answers if isinstance(one, _BROKEN)), None)
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
            self._undo(found.values(), owing, undo)
            return [
                answer
                if isinstance(answer, redis_exceptions.RedisError)
                else Reply(answer, sent, at in copies)
                for at, answer in sorted(found.items())
            ]
        except BaseException as error:
            if owing:
                error.in_doubt = True  # type: ignore[attr-defined]  # for who asked
            raise
        finally:
            # An interrupt may come at any time.
            for one in owing:
                self.drop(one)

    async def _try(
        self, session: Session, packed: Sequence[bytes], until: float, *, afresh: bool
    ) -> tuple[Any, Sequence[Any]]:
        """Return the line on which that was asked, None if there is none, and the answers."""
        by = min(until, clock.now() + session.limit)
        try:
            line = await self.line(session, by, afresh=afresh)
        except redis_exceptions.RedisError as error:
            # Without its frames, which refer to it: they hold the session and the connection.
            return None, [error.with_traceback(None)] * len(packed)
        return line, await self.ask(line, packed, by)

    def _has_broken(self, session: Session, line: Any, error: Exception) -> None:
        session.close_idle()
        if not isinstance(error, redis_exceptions.TimeoutError):
            self.drop(line)

    def _undo(self, answers: Iterable[Any], owing: Sequence[Any], undo: Undo) -> None:
        """Send behind each copy that has no answer what undoes it, if there are errors."""
        kind: Any = redis_exceptions.RedisError
        errors = [one for one in answers if isinstance(one, kind)]
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
        if isinstance(answer, _BROKEN):
            again[at] = packed
        elif isinstance(answer, redis_exceptions.NoScriptError):
            again[at] = requests[at].pack_in_full()
    return again
