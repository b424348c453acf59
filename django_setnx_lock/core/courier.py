"""Brings errands to one server and their answers back, many in a round trip."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from redis import exceptions as redis_exceptions

from .calling import call, unavailable
from .cluster.asking import kind_of_line
from .errands import Errand
from .errors import LockError
from .events import Apart
from .line import Command, Line
from .place import is_shown, place_of
from .protocol import Request
from .sentinel import follow, leads_elsewhere

logger = logging.getLogger("django_setnx_lock.renewal")

Asked: TypeAlias = tuple[Errand, Request]

_CONNECT_WITHIN = 1.0
# How long to wait for answers before another connection is tried; doubled each time in vain.
_PATIENCE, _LONGEST_PATIENCE = 1.0, 8.0
# How long sending, and the rest of an answer that has begun to come, may keep the other servers.
_BRIEF = 0.05
# So many commands, and bytes, a socket takes at once when nothing else is under way on it.
_FEW, _SHORT = 40, 16_000


def server_of(client: Any) -> int:
    """What the clients of one server have in common.

    Those of one pool, as django-redis makes one for each thread, need one connection only.
    """
    return id(getattr(client, "connection_pool", client))


def tell_failure(errand: Errand, error: Exception, now: float, place: str = "") -> None:
    """Tell ``errand`` that it ended in ``error``, at the server ``place`` if it came so far.

    Nothing is raised, whatever comes of it: others go on.
    """
    with Apart(logger, "what became of the lock %r could not be told", errand.key):
        try:
            errand.target.learn(error)
        finally:
            errand.failed(_readable(error, errand.key, place), now)


def _readable(error: Exception, key: str, place: str) -> Exception:
    if isinstance(error, LockError):
        return error
    told = unavailable(error, key)
    if place and is_shown(place):
        told.args = (f"{told}, at {place}",)
    return told


class _Line(Protocol):
    @property
    def address(self) -> tuple[str, int] | None: ...

    @property
    def is_connected(self) -> bool: ...

    def drop(self) -> None: ...


class _Apart(Protocol):
    """What somebody else does on a line, as it may take long. ``error``: how it ended, if badly."""

    @property
    def error(self) -> BaseException | None: ...

    def abandon(self) -> None:
        """Have the line closed, as soon as nobody is at work on it."""


_AnyLine = TypeVar("_AnyLine", bound=_Line)
_AnyAside = TypeVar("_AnyAside", bound=_Apart)


class Rounds(Generic[_AnyLine, _AnyAside]):
    """What a courier sends to the server of ``client`` in a round, and what becomes of it.

    A connection is made by somebody else, by one at a time. One that takes longer than its round
    waits for it is there for a later one.
    """

    def __init__(
        self, client: Any, now: Callable[[], float], line: Callable[..., _AnyLine]
    ) -> None:
        self.client = client
        self.used_at = now()
        self._now = now
        self._make_line = line
        self._line: _AnyLine | None = None
        self._aside: _AnyAside | None = None
        self._unsent: list[Command] = []
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
        self._close_line()

    def _close_line(self) -> None:
        self._unsent = []
        aside, self._aside = self._aside, None
        line, self._line = self._line, None
        if aside is not None:
            aside.abandon()
        elif line is not None:
            line.drop()

    def _end_aside(self) -> None:
        """What was done aside is done. Raises what it ended in."""
        aside, self._aside = self._aside, None
        if aside is not None and aside.error is not None:
            raise aside.error

    def _left(self, until: float) -> float:
        return max(min(until, self._gives_up_at) - self._now(), 0)

    def _begin_round(self, errands: Sequence[Errand]) -> list[Asked]:
        now = self.used_at = self._now()
        self._is_second = False
        if self._line is not None and leads_elsewhere(self.client, self._line):
            self.close()
        todo: list[Asked] = []
        for errand in errands:
            try:
                todo.append((errand, errand.request(now)))
            except Exception as error:  # noqa: BLE001 - one lock's trouble must not stop the others
                self._tell_failure(errand, error)
        return todo

    def _begin_post(self, todo: Sequence[Asked]) -> _AnyLine:
        """The line to send ``todo`` on."""
        if self._aside is not None and self._aside.error is not None:
            # It has failed since its round was given up.
            self._close_line()
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
        self._unsent = self._commands(todo)
        return self._line

    def _commands(self, todo: Sequence[Asked]) -> list[Command]:
        commands: list[Command] = []
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
            self._tell_failure(errand, reply)
            return
        try:
            errand.answered(reply, self._sent, self._now())
        except Exception as error:  # noqa: BLE001 - as above
            self._tell_failure(errand, error)

    def _tell_failure(self, errand: Errand, error: Exception) -> None:
        tell_failure(errand, error, self._now(), place_of(self.client))

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
        self._waiting.clear()
        self._unsent = []
        if self._aside is None or self._line is None or self._line.is_connected:
            self._close_line()
        for errand, _ in failed:
            self._tell_failure(errand, error)


class _Aside(threading.Thread):
    """Does ``work`` on ``line`` in a thread of its own, as it may take long. ``error``: its end."""

    def __init__(self, line: Line, work: Callable[[], None]) -> None:
        super().__init__(name="setnx-lock-connect", daemon=True)
        self.done = threading.Event()
        self.error: Exception | None = None
        self._line = line
        self._work = work
        self._is_unwanted = False

    def start(self) -> None:
        """As in Thread; does it here where no thread can be had."""
        try:
            super().start()
        except RuntimeError:
            # As when the interpreter is about to end.
            self.run()

    def run(self) -> None:
        """Do it."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
            self.error = error
        except BaseException as error:  # noqa: BLE001 - nobody else hears of it
            self.error = redis_exceptions.ConnectionError(repr(error))
        finally:
            self.done.set()
            if self._is_unwanted:
                self._line.drop()

    def abandon(self) -> None:
        """Have the line closed as soon as nobody is at work on it."""
        self._is_unwanted = True
        if self.done.is_set():
            self._line.drop()


def join_asides(seconds: float) -> None:
    """Wait until none is at work, for so long at the most."""
    give_up_at = time.monotonic() + seconds
    for thread in threading.enumerate():
        if isinstance(thread, _Aside):
            thread.join(max(give_up_at - time.monotonic(), 0))


class Courier(Rounds[Line, _Aside]):
    """Speaks to the server of ``client`` on a connection of its own; for one thread.

    A round of errands is sent by :meth:`send`; :meth:`collect` takes the answers that have
    come by then and may be called again while ``is_under_way``. Neither waits for a connection,
    nor for a server that takes in nothing: a thread does that, one at a time, unless
    ``has_threads`` is False.
    """

    def __init__(
        self,
        client: Any,
        now: Callable[[], float],
        line: Callable[..., Line] = Line,
        *,
        has_threads: bool = True,
    ) -> None:
        super().__init__(client, now, line)
        self._has_threads = has_threads

    def send(self, errands: Sequence[Errand]) -> None:
        """Send ``errands`` in one write, as soon as there is a connection."""
        follow(self.client)
        todo = self._begin_round(errands)
        if not hasattr(self.client, "connection_pool"):
            self._call_each(todo)
        elif todo:
            self._post(todo)

    def collect(self, until: float) -> None:
        """Take the answers that come by ``until``. Those that never come end in an error."""
        while self._waiting and self._line is not None:
            reply = None
            try:
                if self._has_sent(self._line, until) and self._line.wait(self._left(until)):
                    reply = self._read(self._line)
            except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
                self._fail(error)
                return
            if reply is None:
                self._give_up_if_late()
                return
            self._deliver(*self._waiting.popleft(), reply)
        if not self._waiting and (missing := self._end_round()):
            self._post(missing)

    def _read(self, line: Line) -> Any:
        """The next answer; None as long as only the beginning of it has come."""
        try:
            with line.within(_BRIEF):
                return line.read()
        except redis_exceptions.ResponseError as error:
            return error
        except redis_exceptions.TimeoutError:
            return None

    def _post(self, todo: Sequence[Asked]) -> None:
        try:
            line = self._begin_post(todo)
            self._has_sent(line, self._now())
        except Exception as error:  # noqa: BLE001 - as above: the other servers' locks go on
            self._fail(error)

    def _has_sent(self, line: Line, until: float) -> bool:
        """Whether all is sent by ``until``. Raises what redis-py raises."""
        while self._aside is not None or self._unsent:
            if self._aside is not None:
                if not self._aside.done.wait(self._left(until)):
                    return False
                self._end_aside()
            elif not line.is_connected:
                self._do_aside(line, line.connect)
            else:
                self._send_on(line)
        return True

    def _send_on(self, line: Line) -> None:
        commands, self._unsent = self._unsent, []
        self._sent = self._now()
        if _are_short(commands):
            _send(line, commands, _BRIEF)
        else:
            seconds = max(self._left(self._gives_up_at), _BRIEF)
            self._do_aside(line, partial(_send, line, commands, seconds))

    def _do_aside(self, line: Line, work: Callable[[], None]) -> None:
        self._aside = aside = _Aside(line, work)
        if self._has_threads:
            aside.start()
        else:
            aside.run()

    def _call_each(self, todo: Sequence[Asked]) -> None:
        """For clients without a pool."""
        for errand, request in todo:
            self._sent = self._now()
            try:
                reply = call(self.client, request, errand.key)
            except LockError as error:
                reply = error
            self._deliver(errand, request, reply)


def _send(line: Line, commands: Sequence[Command], seconds: float) -> None:
    with line.within(seconds):
        line.send(*commands)


def _are_short(commands: Sequence[Command]) -> bool:
    """Whether a connection on which nothing is under way takes ``commands`` in at once."""
    if len(commands) > _FEW:
        return False
    return sum(len(part) for command in commands for part in command) <= _SHORT
