"""A session with several independent servers: the reply to a request is that of their majority.

The rules are those of Redlock: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
"""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from types import coroutine
from typing import Any

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockUnavailable, subject
from ..protocol.replies import Reply
from ..protocol.requests import ACQUIRE, LOCKED, RELEASE, Request, Undo
from .backend import BROKEN, Backend, Blocking
from .connection import refuse_own_calls, take
from .failures import unavailable
from .session import Session

DEFAULT_TIMEOUT = 0.1
# With two, neither could fail.
FEWEST = 3
# So many ms a busy lock has left at the least, for who is to ask again.
_LEAST_MS = 50
_DRIFT_PART, _DRIFT_LEAST = 0.01, 0.002
# How many threads ask servers that have no connection at hand: one that hangs costs each caller
# such a thread, for as long as the server has to answer.
_THREADS = 64
_LATE: Any = redis_exceptions.TimeoutError("no answer in time")


def drift(seconds: float) -> float:
    """Return by how much the servers' clocks may differ from ours in so many ``seconds``."""
    return seconds * _DRIFT_PART + _DRIFT_LEAST


# What the majority says


def decide(request: Request, values: Sequence[Any], count: int, missing: int = 0) -> Any:
    """Return what the ``values`` of some of ``count`` servers come to; None if to nothing.

    ``missing``: how many may answer yet.
    """
    needed = count // 2 + 1
    if request.script is LOCKED:
        # Held is what nobody else can have a majority of.
        held = sum(map(bool, values))
        is_open = missing and held <= count - needed and len(values) - held < needed
        return None if is_open or len(values) < needed else int(held > count - needed)
    values = [
        [b"OK", abs(value), b"listed", None][: 2 if value > 0 else 4]
        if type(value) is int
        else value
        for value in values
    ]
    granted = [value for value in values if value[0] == b"OK"]
    if request.script is ACQUIRE:
        if len(granted) >= needed:
            return granted[0]
        if len(granted) + missing >= needed or len(values) < needed:
            return None
        return busy([value for value in values if value[0] == b"BUSY"], bool(granted))
    if request.script is RELEASE and request.args[1] in ("cancel", "doubt"):
        return [b"OK", None]
    if len(granted) >= needed:
        return [b"OK", None] if request.script is RELEASE else _renewed(granted, needed)
    marks = [value[1] for value in values if value[0] == b"LOST"]
    if len(marks) > count - needed:
        # Of several who were forced out, one says by whom.
        return [b"LOST", next(filter(None, marks), None), None]
    return None


def busy(values: Sequence[Any], has_some: bool) -> list[Any]:
    """Return the reply for the holder of most servers, with the longest time it has left.

    ``has_some``: whether some granted it, which is the last of the reply.
    """
    record = Counter(value[2] for value in values).most_common(1)[0][0] if values else None
    left = [value[1] if value[1] >= 0 else inf for value in values if value[2] == record]
    ms = max([_LEAST_MS, *left])
    return [b"BUSY", -1 if ms == inf else ms, record, None, has_some]


def _renewed(granted: Sequence[Any], needed: int) -> list[Any]:
    """Return the reply of so many servers, with the ms that each has left at the least."""
    left = [value[1] if value[1] >= 0 else inf for value in granted]
    ms = sorted(left, reverse=True)[needed - 1]
    ms = -1 if ms == inf else max(int(ms - drift(ms / 1000) * 1000), 0)
    # An operator may have asked the holder to stop at one server only.
    return [b"OK", ms, *[value[2] for value in granted if len(value) > 2][:1]]


# Asking


@dataclass(frozen=True, eq=False)
class Masters:
    """Independent servers: what a lock on a majority of them has for a client.

    ``pools``: a connection pool of redis-py for each. ``names``: what messages call them.
    ``timeout``: the seconds in which each has to be connected to and to answer, all at once.
    """

    pools: Sequence[Any] = field(repr=False)
    names: Sequence[str]
    timeout: float


class QuorumSession(Session):
    """Several servers, which are asked together. A reply is given once a majority has decided.

    One that has not answered in time is ``late``: from then on it is waited for only where the
    others do not decide. So a server that hangs costs its limit once, until it answers again.
    """

    asks_together = False

    def __init__(self, masters: Masters) -> None:
        self.names = masters.names
        self.servers = [Session(pool, masters.timeout) for pool in masters.pools]
        places: Any = tuple([server.place for server in self.servers])
        self._begin(places, masters.timeout)
        self.is_awaited = any(server.is_awaited for server in self.servers)
        self.late: set[Session] = set()
        self.threads = threading.Semaphore(_THREADS)
        # The first name that is resolved imports this: not in the time of the servers.
        codecs.lookup("idna")

    @classmethod
    def suits(cls, pool: Any) -> bool:
        return isinstance(pool, Masters)

    @property
    def where(self) -> str:
        return ", ".join(self.names)

    def close_idle(self) -> None:
        for server in self.servers:
            server.close_idle()

    async def call(
        self, io: Any, request: Request, key: str, undo: Undo = None, limits: int = 2
    ) -> Reply:
        """Return the majority's reply. Raises LockUnavailable, after one limit at the latest."""
        sent = clock.now()
        (reply,) = await self.call_many(io, [(request, key)], self.limit, undo)
        if isinstance(reply, Reply):
            return reply
        reply.time_left = max(sent + 2 * self.limit - clock.now(), 0)
        raise reply

    async def call_many(
        self,
        io: Any,
        requests: Sequence[tuple[Request, str]],
        within: float,
        undo: Undo = None,
    ) -> list[Reply | LockUnavailable]:
        within = min(within, self.limit)
        asked = _Round(self, [request for request, _ in requests], within, undo)
        await asked.ask(io)
        return [asked.reply(at, key) for at, (_, key) in enumerate(requests)]


class _Round:
    """Requests that all servers of a session are asked at the same time."""

    def __init__(
        self, session: QuorumSession, requests: Sequence[Request], within: float, undo: Undo
    ) -> None:
        self._session = session
        self._requests = requests
        self._undo = undo
        self._sent = clock.now()
        self._until = self._sent + within
        # What lets go is sent to a server that is connected to when nobody waits for it any more.
        insists = requests[0].script is RELEASE
        self._ask_until = self._sent + 2 * session.limit if insists else self._until
        # The answers of each server that has given them, and the tasks or threads that ask others.
        self._found: dict[Session, Any] = {}
        self._under_way: dict[Any, Session] = {}

    def _is_to_wait(self) -> bool:
        """Return whether the answers of those that are under way are still to be waited for."""
        waiting = self._under_way.values()
        if clock.now() >= self._until:
            return False
        is_decided = all(
            self._decided(at, len(waiting)) is not None for at in range(len(self._requests))
        )
        return not self._session.late.issuperset(waiting) or (bool(waiting) and not is_decided)

    def _decided(self, at: int, missing: int = 0) -> Any:
        replies = [answers[at] for answers in self._found.values()]
        values = [reply.value for reply in replies if isinstance(reply, Reply)]
        return decide(self._requests[at], values, len(self._session.servers), missing)

    def reply(self, at: int, key: str) -> Reply | LockUnavailable:
        """Return what the answers to one of the requests come to."""
        request, value = self._requests[at], self._decided(at)
        answers = [self._found.get(server, {at: _LATE})[at] for server in self._session.servers]
        in_doubt = any(
            one.was_retried if isinstance(one, Reply) else getattr(one, "in_doubt", True)
            for one in answers
        )
        if value is None:
            return self._unavailable(answers, key, in_doubt)
        if request.script is ACQUIRE and value[0] == b"OK":
            lease = int(request.args[1]) / 1000
            if clock.now() >= self._sent + lease - drift(lease):
                value = busy([], True)
        return Reply(value, self._sent, in_doubt)

    def _unavailable(self, answers: Sequence[Any], key: str, in_doubt: bool) -> LockUnavailable:
        names = self._session.names
        causes = {
            name: unavailable(answer, key).cause
            for name, answer in zip(names, answers, strict=True)
            if isinstance(answer, Exception)
        }
        why = ", ".join(f"{name}: {cause}" for name, cause in causes.items())
        counted = Counter(causes.values()).most_common(1)
        error = LockUnavailable(
            f"{subject(key)} unavailable: {len(names) - len(causes)} of {len(names)} masters "
            f"answered, which makes no majority that agrees" + (f" ({why})" if why else ""),
            key=key,
            cause=counted[0][0] if counted else "server",
        )
        error.in_doubt = in_doubt
        return error

    async def ask(self, io: Backend) -> None:
        """Ask them until it is decided; those that have not answered go on by themselves."""
        waiting = self._under_way
        try:
            if io.is_asyncio:
                for server in self._session.servers:
                    waiting[asyncio.create_task(self._exchange(io, server))] = server
            else:
                self._ask_from_here()
            while self._is_to_wait():
                left, first = self._until - clock.now(), futures.FIRST_COMPLETED
                if io.is_asyncio:
                    done, _ = await asyncio.wait(waiting, timeout=left, return_when=first)
                else:
                    done, _ = futures.wait(waiting, left, first)
                for one in done:
                    self._found[waiting.pop(one)] = one.result()
        except BaseException as error:
            for task in waiting if io.is_asyncio else ():
                task.cancel()
            error.in_doubt = True  # type: ignore[attr-defined]  # for who asked
            raise
        self._session.late.update(waiting.values())

    async def _exchange(self, io: Backend, server: Session) -> list[Any]:
        """Return the answers of ``server``, which is late if it has given none."""
        until = self._ask_until
        found = await io.exchange(server, self._requests, self._sent, until, self._undo)
        is_late = any(isinstance(answer, BROKEN) for answer in found)
        (self._session.late.add if is_late else self._session.late.discard)(server)
        return found

    def _ask_from_here(self) -> None:
        """Send to all that are connected to, then read; what else there is to do a thread does."""
        exchanges = {server: self._exchange(_STEPS, server) for server in self._session.servers}
        try:
            for is_first in (True, False):
                for server, exchange in tuple(exchanges.items()):
                    try:
                        was_sent = server not in self._session.late and exchange.send(None)
                    except StopIteration as done:
                        self._found[server] = done.value
                        del exchanges[server]
                        continue
                    if not (is_first and was_sent):
                        self._in_thread(server, exchanges.pop(server))
        except BaseException:
            for exchange in exchanges.values():
                exchange.close()
            raise

    def _in_thread(self, server: Session, exchange: Coroutine[Any, None, list[Any]]) -> None:
        """Have a thread end the ``exchange`` with ``server``."""
        ended: futures.Future[list[Any]] = futures.Future()
        threads = self._session.threads

        def work() -> None:
            if not threads.acquire(blocking=False):
                exchange.close()
                ended.set_result([_LATE] * len(self._requests))
                return
            try:
                while True:
                    exchange.send(None)
            except StopIteration as done:
                ended.set_result(done.value)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                ended.set_exception(error.with_traceback(None))
            finally:
                threads.release()

        self._under_way[ended] = server
        try:
            threading.Thread(target=work, name="setnx-lock-connect", daemon=True).start()
        except RuntimeError as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                # It came as the thread began, and this is what threading has made of it.
                raise error.__context__ from None
            # No thread can be had, as when the interpreter is about to end.
            work()


class _Steps(Blocking):
    """Suspends before what may take long, and gives whether a request was sent just now.

    So several servers are asked at the same time, and a thread can go on with one that is slow.
    """

    async def line(self, session: Session, until: float, *, afresh: bool) -> Any:
        found = None if afresh else take(session.idle)
        if found is None:
            await _step(was_sent=False)
            found = session.connection(until)
        return found

    async def sent(self, line: Any, until: float) -> None:
        await _step(was_sent=True)
        if not line.can_read(max((until - clock.now()) / 2, 0)):
            await _step(was_sent=False)


@coroutine
def _step(*, was_sent: bool) -> Generator[bool, None, None]:
    yield was_sent


_STEPS = _Steps()

# Which servers


def masters_of(
    clients: Sequence[Any], names: Sequence[str] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> Masters:
    """Return the servers behind ``clients``: the same object for the same connection pools.

    Raises ValueError for fewer than three and for two clients of one server; TypeError for clients
    of a cluster; LockUnsupported for those whose class sends commands in its own way.
    """
    for client in clients:
        if getattr(client, "connection_pool", None) is None:
            raise TypeError(
                f"each master of a Redlock is one server, which {type(client).__name__} is not"
            )
        refuse_own_calls(client.__class__)
    pools = tuple([client.connection_pool for client in clients])
    return _masters(pools, None if names is None else tuple(names), timeout)


# So many are kept, with their connections, also while no lock of theirs is there.
@lru_cache(maxsize=64)
def _masters(pools: Sequence[Any], names: Sequence[str] | None, timeout: float) -> Masters:
    servers = [Session(pool, timeout) for pool in pools]
    names = names or [server.where for server in servers]
    if len(servers) < FEWEST:
        raise ValueError(
            f"a Redlock needs {FEWEST} masters at least, better 5, not {len(servers)}: "
            "with fewer none of them may fail, so take the ordinary lock on one"
        )
    seen: dict[object, str] = {}
    for name, server in zip(names, servers, strict=True):
        # Without the database: two of one server fail together.
        fake, at, _ = server.place
        other = seen.setdefault(at if fake == id(None) else fake, name)
        if other is not name or list(names).count(name) > 1:
            raise ValueError(
                f"the masters {other!r} and {name!r} of a Redlock are one server, "
                f"{server.where.rpartition('/')[0]}: they would fail together"
            )
    return Masters(pools, names, timeout)
