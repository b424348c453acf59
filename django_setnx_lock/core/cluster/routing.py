"""Runs requests at the node of a Redis Cluster that has the lock, also while its slot moves.

As all keys of a lock are in one slot, and some of them mostly do not exist, a node refuses
(TRYAGAIN) what needs several of them from the moment that it begins to give the slot away until
it has: that is waited for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..errors import LockUnavailable
from ..line import CONNECT_WITHIN, Command, Line, run_within
from ..lines import Lines
from ..protocol import Request
from .routes import Routes, is_broken, routes_of

_Result = TypeVar("_Result")
# How long a slot that moves, or a cluster that is down, is waited for.
PATIENCE = 5.0
# How often an answer may send us elsewhere before there is a pause.
_HOPS = 4
_PAUSE = 0.02
# How many requests go to a node in one write.
_BATCH = 1000
FAILURES = (redis_exceptions.RedisError, redis_exceptions.RedisClusterException)
_LINES = Lines(Line)


def routed(
    client: Any,
    name: str,
    run: Callable[[Any], _Result],
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
                # Each of its nodes may hang.
                left = CONNECT_WITHIN if until is None else max(until - time.monotonic(), 0)
                run_within(left, routes.cluster)
            result = run(routes.route(name))
        except FAILURES as error:
            cause = told_by(error)
            if is_broken(cause) and broken:
                raise
            broken = broken or is_broken(cause)
            is_late = until is not None and time.monotonic() >= until
            pause = pause_after(routes, cause, tries, waits=not is_late)
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
        time.sleep(pause)


def told_by(error: BaseException) -> BaseException | None:
    """What redis-py raised that ``error`` is about."""
    return error.__cause__ if isinstance(error, LockUnavailable) else error


def pause_after(
    routes: Routes, cause: BaseException | None, tries: int, *, waits: bool = True
) -> float | None:
    """After how many seconds to try again, with so many ``tries`` before; None: not at all."""
    pause = routes.learn(cause, waits=waits)
    if pause is None or (pause == 0 and tries < _HOPS):
        return pause
    return max(pause, _PAUSE) * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load, secures nothing


def exchange(client: Any, requests: Sequence[Request]) -> list[Any]:
    """The replies to ``requests``, or what redis-py raised for each: those of a node in one trip.

    All nodes are asked at the same time. Those that are to be asked elsewhere are, as by
    :func:`routed`.
    """
    routes = routes_of(client)
    replies: list[Any] = [None] * len(requests)
    todo: Sequence[int] = range(len(requests))
    give_up_at = clock.now() + PATIENCE
    unknown: set[str] = set()
    tries, broken = 0, False
    while True:
        _ask(routes, requests, todo, replies, unknown)
        again, pauses, was_broken = [], [0.0], broken
        for number in todo:
            error = replies[number]
            if isinstance(error, redis_exceptions.NoScriptError):
                unknown.add(requests[number].script.sha)
                again.append(number)
            elif isinstance(error, Exception) and not (was_broken and is_broken(error)):
                broken = broken or is_broken(error)
                pause = pause_after(routes, error, tries)
                if pause is not None:
                    pauses.append(pause)
                    again.append(number)
        if not again or clock.now() + max(pauses) > give_up_at:
            return replies
        time.sleep(max(pauses))
        todo, tries = again, tries + 1


def _ask(
    routes: Routes,
    requests: Sequence[Request],
    todo: Sequence[int],
    replies: list[Any],
    unknown: set[str],
) -> None:
    """Put what is answered to the requests with the numbers ``todo`` into ``replies``."""
    nodes: dict[int, tuple[Any, list[int]]] = {}
    for number in todo:
        try:
            node = routes.route(requests[number].keys[0])
        except FAILURES as error:
            replies[number] = error
        else:
            nodes.setdefault(id(node.connection_pool), (node, []))[1].append(number)
    while nodes:
        posts = [
            _Post(node, [(number, requests[number]) for number in numbers[:_BATCH]], replies)
            for node, numbers in nodes.values()
        ]
        try:
            for post in posts:
                post.send(unknown)
            for post in posts:
                post.read()
        finally:
            for post in posts:
                post.close()
        nodes = {
            server: (node, numbers[_BATCH:])
            for server, (node, numbers) in nodes.items()
            if numbers[_BATCH:]
        }


class _Post:
    """What is sent to one node, and read, on a line of its own."""

    def __init__(self, node: Any, asked: Sequence[tuple[int, Request]], replies: list[Any]) -> None:
        self._node = node
        self._asked = asked
        self._replies = replies
        self._line: Line = _LINES.borrow(node)
        self._unread = len(asked)

    def send(self, unknown: set[str]) -> None:
        sent: set[str] = set()
        commands: list[Command] = []
        for _, request in self._asked:
            script = request.script
            in_full = script.sha in unknown and script.sha not in sent
            sent.add(script.sha)
            what = ("EVAL", script.source) if in_full else ("EVALSHA", script.sha)
            commands.append((*what, *request.arguments))
        try:
            self._line.send(*commands)
        except FAILURES as error:
            self._fail(error)

    def read(self) -> None:
        while self._unread:
            number = self._asked[-self._unread][0]
            try:
                self._replies[number] = self._line.read()
            except redis_exceptions.ResponseError as error:
                self._replies[number] = error
            except FAILURES as error:
                self._fail(error)
                return
            self._unread -= 1

    def _fail(self, error: Exception) -> None:
        for number, _ in self._asked[-self._unread :]:
            self._replies[number] = error
        self._line.drop()
        self._unread = 0

    def close(self) -> None:
        """Keep the line for the next, unless an interrupt has left replies on it."""
        if self._unread:
            self._line.drop()
        else:
            _LINES.give_back(self._node, self._line)
