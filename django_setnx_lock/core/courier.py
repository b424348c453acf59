"""Brings errands to one server and their answers back, many in a round trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from redis import exceptions as redis_exceptions

from .calling import call, unavailable
from .cluster.asking import kind_of_line
from .errands import Errand
from .errors import LockError
from .line import Line
from .protocol import Request
from .sentinel import follow, leads_elsewhere

Asked: TypeAlias = tuple[Errand, Request]

_CONNECT_WITHIN = 1.0
# How long to wait for answers before another connection is tried; doubled each time in vain.
_PATIENCE, _LONGEST_PATIENCE = 1.0, 8.0


def server_of(client: Any) -> int:
    """What the clients of one server have in common.

    Those of one pool, as django-redis makes one for each thread, need one connection only.
    """
    return id(getattr(client, "connection_pool", client))


class _Line(Protocol):
    @property
    def address(self) -> tuple[str, int] | None: ...

    def drop(self) -> None: ...


_AnyLine = TypeVar("_AnyLine", bound=_Line)


class Rounds(Generic[_AnyLine]):
    """What a courier sends to the server of ``client`` in a round, and what becomes of it."""

    def __init__(
        self, client: Any, now: Callable[[], float], line: Callable[..., _AnyLine]
    ) -> None:
        self.client = client
        self.used_at = now()
        self._now = now
        self._make_line = line
        self._line: _AnyLine | None = None
        self._waiting: deque[Asked] = deque()
        self._missing: list[Asked] = []
        self._sent = self._gives_up_at = 0.0
        self._patience = _PATIENCE
        self._is_spoilt = self._is_second = False

    @property
    def is_under_way(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._waiting)

    def close(self) -> None:
        """Close the connection. What is outstanding is forgotten."""
        self._waiting.clear()
        if self._line is not None:
            self._line.drop()
            self._line = None

    def _begin_round(self, errands: Sequence[Errand]) -> list[Asked]:
        now = self.used_at = self._now()
        self._is_second = False
        if self._line is not None and leads_elsewhere(self.client, self._line):
            self.close()
        return [(errand, errand.request(now)) for errand in errands]

    def _begin_post(self, todo: Sequence[Asked]) -> _AnyLine:
        """The line to send ``todo`` on."""
        now = self._now()
        self._waiting.extend(todo)
        # Half of what is left to the most urgent, so that there is time to try again.
        left = min(errand.deadline for errand, _ in todo) - now
        self._gives_up_at = now + min(self._patience, max(left / 2, 0.05))
        self._sent = now
        if self._line is None:
            longest = max(_CONNECT_WITHIN, self._patience / 4)
            limit = max(min(max(left / 2, 0.25), left, longest), 0.02)
            make = kind_of_line(self.client, self._make_line)
            self._line = make(self.client, connect_timeout=limit)
        return self._line

    def _commands(self, todo: Sequence[Asked]) -> list[tuple[str | bytes, ...]]:
        commands: list[tuple[str | bytes, ...]] = []
        loaded: set[str] = set()
        for _, request in todo:
            script = request.script
            if self._is_second and script.sha not in loaded:
                # From then on the server knows it.
                loaded.add(script.sha)
                commands.append(("EVAL", script.source, *request.arguments))
            else:
                commands.append(("EVALSHA", script.sha, *request.arguments))
        return commands

    def _deliver(self, errand: Errand, request: Request, reply: Any) -> None:
        if isinstance(reply, redis_exceptions.NoScriptError) and not self._is_second:
            self._missing.append((errand, request))
            return
        if isinstance(reply, Exception):
            # A primary that became a replica: the next connection may find the new one.
            self._is_spoilt = True
            errand.target.learn(reply)
            errand.failed(_readable(reply, errand.key), self._now())
            return
        try:
            errand.answered(reply, self._sent, self._now())
        except Exception as error:  # noqa: BLE001 - one lock's trouble must not stop the others
            errand.failed(_readable(error, errand.key), self._now())

    def _end_round(self) -> list[Asked]:
        """What is to be sent once more: requests whose script was missing."""
        self._patience = _PATIENCE
        missing, self._missing = self._missing, []
        if missing:
            self._is_second = True
        elif self._is_spoilt:
            self._is_spoilt = False
            self.close()
        return missing

    def _give_up_if_late(self) -> None:
        if self._now() >= self._gives_up_at:
            self._fail(redis_exceptions.TimeoutError("no answer to a renewal"))

    def _fail(self, error: Exception) -> None:
        if isinstance(error, redis_exceptions.TimeoutError):
            self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        failed = [*self._missing, *self._waiting]
        self._missing = []
        self.close()
        now = self._now()
        for errand, _ in failed:
            errand.target.learn(error)
            errand.failed(_readable(error, errand.key), now)


class Courier(Rounds[Line]):
    """Speaks to the server of ``client`` on a connection of its own; for one thread.

    A round of errands is sent by :meth:`send`; :meth:`collect` takes the answers that have
    come by then and may be called again while ``is_under_way``.
    """

    def __init__(
        self, client: Any, now: Callable[[], float], line: Callable[..., Line] = Line
    ) -> None:
        super().__init__(client, now, line)

    def send(self, errands: Sequence[Errand]) -> None:
        """Send ``errands`` in one write."""
        follow(self.client)
        todo = self._begin_round(errands)
        if hasattr(self.client, "connection_pool"):
            self._post(todo)
        else:
            self._call_each(todo)

    def collect(self, until: float) -> None:
        """Take the answers that come by ``until``. Those that never come end in an error."""
        while self._waiting and self._line is not None:
            reply = None
            try:
                if not self._line.wait(max(min(until, self._gives_up_at) - self._now(), 0)):
                    self._give_up_if_late()
                    return
                reply = self._line.read()
            except redis_exceptions.ResponseError as error:
                reply = error
            except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
                self._fail(error)
                return
            self._deliver(*self._waiting.popleft(), reply)
        if not self._waiting and (missing := self._end_round()):
            self._post(missing)

    def _post(self, todo: Sequence[Asked]) -> None:
        try:
            self._begin_post(todo).send(*self._commands(todo))
        except Exception as error:  # noqa: BLE001 - as above: the other servers' locks go on
            self._fail(error)

    def _call_each(self, todo: Sequence[Asked]) -> None:
        """For clients without a pool."""
        for errand, request in todo:
            self._sent = self._now()
            try:
                reply = call(self.client, request, errand.key)
            except LockError as error:
                reply = error
            self._deliver(errand, request, reply)


def _readable(error: Exception, key: str) -> Exception:
    return error if isinstance(error, LockError) else unavailable(error, key)
