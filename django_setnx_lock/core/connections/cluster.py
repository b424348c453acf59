"""Runs requests at the nodes of a Redis Cluster that have the locks, also while slots move.

As all keys of a lock are in one slot, and some of them mostly do not exist, a node refuses
(TRYAGAIN) what needs several of them from the moment that it begins to give the slot away until
it has: that is waited for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockUnavailable
from ..protocol.commands import PlainRequest, Request
from .client_settings import CONNECT_WITHIN
from .cluster_routes import Routes, is_broken, routes_of
from .connection import Command
from .primitives import run_within

if TYPE_CHECKING:
    from .backends import Backend

_Result = TypeVar("_Result")
# How long a slot that moves, or a cluster that is down, is waited for.
PATIENCE = 5.0
# How often an answer may send us elsewhere before there is a pause.
_HOPS = 4
_PAUSE = 0.02
# How many requests go to a node in one write.
_BATCH = 1000
# How long a new map of the slots is waited for after a node gave no answer, or broke in asyncio.
_REFRESHED_WITHIN = 1.0
FAILURES = (redis_exceptions.RedisError, redis_exceptions.RedisClusterException)


async def routed(
    io: Backend,
    client: Any,
    name: str,
    run: Callable[[Any], Awaitable[_Result]],
    *,
    patience: float | None = None,
    repeated: Callable[[], None] | None = None,
    until: float | None = None,
) -> _Result:
    """``run(node)``, with what is to be asked for the key ``name``; again where that is of use.

    ``patience``: for how many seconds a slot that moves is waited for (5). ``repeated`` is called
    if it was run again after it may have had an effect. ``until``: when ``run`` gives up, by
    ``time.monotonic()``. Raises what ``run`` or redis-py raises.
    """
    routes = routes_of(client)
    give_up_at = clock.now() + (PATIENCE if patience is None else patience)
    tries, broken = 0, False
    while True:
        try:
            if not routes.is_connected:
                left = CONNECT_WITHIN if until is None else max(until - time.monotonic(), 0)
                await _connect(io, routes, left)
            result = await run(routes.route(name))
        except FAILURES as error:
            cause = told_by(error)
            if is_broken(cause) and broken:
                raise
            broken = broken or is_broken(cause)
            is_late = until is not None and time.monotonic() >= until
            waits = not (is_late or io.is_asyncio)
            pause = pause_after(routes, name, cause, tries, waits=waits)
            await _look_anew_after(io, routes, [cause])
            if is_late or pause is None or clock.now() + pause > give_up_at:
                if broken and isinstance(error, LockUnavailable):
                    # An earlier copy may have had an effect, whatever became of the last.
                    error.repeated = True
                raise
        else:
            if broken and repeated:
                repeated()
            return result
        tries += 1
        await io.sleep(pause)
        if broken and io.is_asyncio:
            await io.in_thread(routes.refresh, _REFRESHED_WITHIN)


async def _look_anew_after(io: Backend, routes: Routes, causes: Iterable[object]) -> None:
    """Wait for a new map if a node hangs: who comes back at once is not to be sent there again."""
    if any(isinstance(cause, redis_exceptions.TimeoutError) for cause in causes):
        await io.in_thread(routes.refresh, _REFRESHED_WITHIN)


async def _connect(io: Backend, routes: Routes, seconds: float) -> None:
    # Each of its nodes may hang.
    await io.in_thread(run_within, seconds, routes.cluster)


def told_by(error: BaseException) -> BaseException | None:
    """Return the error of redis-py behind ``error``."""
    return error.__cause__ if isinstance(error, LockUnavailable) else error


def pause_after(
    routes: Routes, name: str, cause: BaseException | None, tries: int, *, waits: bool = True
) -> float | None:
    """After how many seconds to ask for ``name`` again, after so many ``tries``; None: not at all.

    ``waits``: as in :meth:`.Routes.learn`.
    """
    if isinstance(cause, redis_exceptions.TimeoutError):
        routes.suspect(name)
    pause = routes.learn(cause, waits=waits)
    if pause is None or (pause == 0 and tries < _HOPS):
        return pause
    return max(pause, _PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, secures nothing


async def exchange(io: Backend, client: Any, requests: Sequence[Request]) -> list[Any]:
    """Return the reply to each of ``requests``, or the error of redis-py in its place.

    Each node gets its requests in one round trip, and all nodes are asked at the same time. A
    request that a node sends elsewhere goes there, as with :func:`routed`.
    """
    routes = routes_of(client)
    replies: list[Any] = [None] * len(requests)
    todo: Sequence[int] = range(len(requests))
    give_up_at = clock.now() + PATIENCE
    unknown: set[str] = set()
    tries, broken = 0, False
    while True:
        await _ask(io, routes, requests, todo, replies, unknown)
        again, pauses, was_broken = [], [0.0], broken
        for number in todo:
            error = replies[number]
            if isinstance(error, redis_exceptions.NoScriptError):
                unknown.add(requests[number].script.sha)
                again.append(number)
            elif isinstance(error, Exception) and not (was_broken and is_broken(error)):
                broken = broken or is_broken(error)
                name = requests[number].keys[0]
                pause = pause_after(routes, name, error, tries, waits=not io.is_asyncio)
                if pause is not None:
                    pauses.append(pause)
                    again.append(number)
        await _look_anew_after(io, routes, [replies[number] for number in todo])
        if not again or clock.now() + max(pauses) > give_up_at:
            return replies
        await io.sleep(max(pauses))
        todo, tries = again, tries + 1


def _by_node(
    routes: Routes, requests: Sequence[Request], todo: Sequence[int], replies: list[Any]
) -> dict[int, tuple[Any, list[int]]]:
    """Return each node with the numbers of the requests for it; put errors into ``replies``."""
    nodes: dict[int, tuple[Any, list[int]]] = {}
    for number in todo:
        try:
            node = routes.route(requests[number].keys[0])
        except FAILURES as error:
            replies[number] = error
        else:
            nodes.setdefault(id(node.connection_pool), (node, []))[1].append(number)
    return nodes


async def _ask(
    io: Backend,
    routes: Routes,
    requests: Sequence[Request],
    todo: Sequence[int],
    replies: list[Any],
    unknown: set[str],
) -> None:
    """Put what is answered to the requests with the numbers ``todo`` into ``replies``."""
    try:
        if not routes.is_connected:
            await _connect(io, routes, CONNECT_WITHIN)
    except FAILURES as error:
        replies[:] = [error if number in todo else reply for number, reply in enumerate(replies)]
        return
    nodes = _by_node(routes, requests, todo, replies)
    while nodes:
        posts = [
            _Post(io, node, [(number, requests[number]) for number in numbers[:_BATCH]], replies)
            for node, numbers in nodes.values()
        ]
        try:
            for post in posts:
                await post.send(unknown)
            for post in posts:
                await post.read()
        finally:
            for post in posts:
                post.close()
        nodes = {
            server: (node, numbers[_BATCH:])
            for server, (node, numbers) in nodes.items()
            if numbers[_BATCH:]
        }


class _Post:
    """The requests to one node, sent and read on a connection of its own."""

    def __init__(
        self,
        io: Backend,
        node: Any,
        asked: Sequence[tuple[int, Request | PlainRequest]],
        replies: list[Any],
    ) -> None:
        self._io = io
        self._node = node
        self._asked = asked
        self._replies = replies
        self._pool = io.idle()
        self._connection = self._pool.checkout(node)
        self._unread = len(asked)

    async def send(self, unknown: set[str]) -> None:
        sent: set[str] = set()
        commands: list[Command] = []
        for _, request in self._asked:
            if isinstance(request, PlainRequest):
                commands.append(request.command)
                continue
            script = request.script
            in_full = script.sha in unknown and script.sha not in sent
            sent.add(script.sha)
            what = ("EVAL", script.source) if in_full else ("EVALSHA", script.sha)
            commands.append((*what, *request.arguments))
        try:
            await self._io.send(self._connection, commands)
        except FAILURES as error:
            self._fail(error)

    async def read(self) -> None:
        while self._unread:
            number = self._asked[-self._unread][0]
            try:
                reply = await self._io.read(self._connection, self._connection.answer_within)
                if reply is None:
                    raise redis_exceptions.TimeoutError("Timeout reading from the server")
                self._replies[number] = reply
            except redis_exceptions.ResponseError as error:
                self._replies[number] = error
            except FAILURES as error:
                self._fail(error)
                return
            self._unread -= 1

    def _fail(self, error: Exception) -> None:
        for number, _ in self._asked[-self._unread :]:
            self._replies[number] = error
        self._connection.close()
        self._unread = 0

    def close(self) -> None:
        """Keep the connection for the next, unless an interrupt has left replies on it."""
        if self._unread:
            self._connection.close()
        else:
            self._pool.checkin(self._node, self._connection)


def scan(client: Any, pattern: str) -> Iterator[Any]:
    """Yield the names of all keys that match ``pattern``, some twice. Raises redis-py's errors."""
    routes = routes_of(client)
    nodes = routes.primaries()
    importing = _importing(nodes)
    for node in nodes:
        yield from _scan(node, pattern)
    # Keys may have moved meanwhile, from a node not yet scanned to one that was: scan that again.
    importing += [node for node in _importing(nodes) if node not in importing]
    for node in importing:
        yield from _scan(node, pattern)


def _scan(node: Any, pattern: str) -> Iterable[Any]:
    found: Iterable[Any] = node.scan_iter(match=pattern, count=1000)
    return found


def _importing(nodes: Iterable[Any]) -> list[Any]:
    """Return those of ``nodes`` that slots are moving to, as far as one may ask."""
    found = []
    for node in nodes:
        with suppress(redis_exceptions.ResponseError):
            known = node.execute_command("CLUSTER NODES")
            if any(
                slot["state"] == "importing" for one in known.values() for slot in one["migrations"]
            ):
                found.append(node)
    return found
