"""Runs requests for asyncio. The twin of :mod:`django_setnx_lock.core.calling`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redis import exceptions as redis_exceptions

from ..calling import SOON, TRANSLATED, refuse_too_few, retries, translated, unavailable
from ..cluster.shared import is_cluster
from ..lines import Lines
from ..protocol import Request
from ..replicas import Replicas, is_grant
from .cluster import routed
from .kinds import refuse_many_servers
from .line import Line
from .loops import here
from .sentinel import follow

if TYPE_CHECKING:
    from ..target import Target

_Result = TypeVar("_Result")
# How much later than it ends the answer to WAIT may come, in seconds.
_READ_WITHIN = 5.0


async def call(
    client: Any,
    request: Request,
    key: str,
    *,
    repeated: Callable[[], None] | None = None,
    patience: float | None = None,
) -> Any:
    """Run ``request`` and give its reply: EVALSHA, and EVAL where the server lacks the script.

    ``repeated`` is called before the reply is given if a copy may be still under way.
    ``patience``: see :func:`routed`; of no effect but on a cluster. Raises LockUnavailable;
    NotImplementedError and TypeError as :func:`connection_for`.
    """
    if is_cluster(client):
        with translated(key):
            return await routed(
                client,
                request.keys[0],
                lambda node: _call(node, request, key, repeated),
                patience=patience,
                repeated=repeated,
            )
    return await _call(client, request, key, repeated)


async def _call(
    client: Any, request: Request, key: str, repeated: Callable[[], None] | None
) -> Any:
    lines, line = await _borrowed(client)
    line.sent_again = False
    try:
        try:
            reply = await line.ask("EVALSHA", request.script.sha, *request.arguments)
        except TRANSLATED as error:
            reply = await _in_full(client, line, request, key, error)
    except BaseException as error:
        # Cancellations too: the reply may be still to come.
        line.drop()
        lines.forget_after(client, error)
        raise
    if line.sent_again:
        lines.forget(client)
        if repeated:
            repeated()
    lines.give_back(client, line)
    return reply


async def call_replicated(client: Any, request: Request, key: str, replicas: Replicas) -> Any:
    """The twin of :func:`~django_setnx_lock.core.calling.call_replicated`."""
    lines, line = await _borrowed(client)

    async def run() -> Any:
        try:
            return await line.ask(
                "EVALSHA", request.script.sha, *request.arguments, then=replicas.command
            )
        except redis_exceptions.NoScriptError:
            await line.read(replicas.wait_ms / 1000 + _READ_WITHIN)
            return await line.ask(
                "EVAL", request.script.source, *request.arguments, then=replicas.command
            )

    try:
        reply = await _persistently(client, run, key)
        if is_grant(reply):
            seconds = replicas.wait_ms / 1000 + _READ_WITHIN
            refuse_too_few(replicas, await _read(line, seconds), key)
        elif isinstance(await _read(line, SOON), Exception):
            # A busy answer need not wait for replicas that are not there.
            line.drop()
    except BaseException as error:
        line.drop()
        lines.forget_after(client, error)
        raise
    lines.give_back(client, line)
    return reply


async def _read(line: Line, seconds: float) -> Any:
    """The reply to WAIT, or the error in its place."""
    try:
        reply = await line.read(seconds)
    except TRANSLATED as error:
        return error
    return redis_exceptions.TimeoutError("no answer to WAIT") if reply is None else reply


async def _in_full(client: Any, line: Line, request: Request, key: str, error: Exception) -> Any:
    """The reply to ``request`` with its script, after ``error`` came of it without."""
    was_sent = not isinstance(error, redis_exceptions.NoScriptError)

    async def run() -> Any:
        nonlocal was_sent
        line.sent_again |= was_sent
        was_sent = True
        return await line.ask("EVAL", request.script.source, *request.arguments)

    # Also where the script is known, as the server may be another one by now.
    if was_sent:
        return await _once_more(client, run, key, error)
    return await _persistently(client, run, key)


async def locked(target: Target) -> bool:
    """Whether anybody holds ``target``. Raises as :func:`call`."""
    client, name = target.client, target.keys.name
    request = target.dialect.locked(target.keys)
    if request is not None:
        return bool(await call(client, request, target.key))
    if is_cluster(client):
        with translated(target.key):
            return await routed(client, name, lambda node: _exists(node, name, target.key))
    return await _exists(client, name, target.key)


async def _exists(client: Any, name: str, key: str) -> bool:
    lines, line = await _borrowed(client)
    try:
        found = await _persistently(client, lambda: line.ask("EXISTS", name), key)
    except BaseException as error:
        line.drop()
        lines.forget_after(client, error)
        raise
    lines.give_back(client, line)
    return bool(found)


async def _borrowed(client: Any) -> tuple[Lines[Line], Line]:
    refuse_many_servers(client)
    await follow(client)
    lines = here().calling
    return lines, lines.borrow(client)


async def _persistently(client: Any, run: Callable[[], Awaitable[_Result]], key: str) -> _Result:
    """``run()``, and once more when its connection broke and the client itself does not retry."""
    try:
        return await run()
    except TRANSLATED as error:
        return await _once_more(client, run, key, error)


async def _once_more(
    client: Any, run: Callable[[], Awaitable[_Result]], key: str, error: Exception
) -> _Result:
    first = unavailable(error, key)
    if first.cause != "unreachable" or retries(client):
        raise first from error
    try:
        return await run()
    except TRANSLATED as again:
        second = unavailable(again, key)
        second.repeated = True
        raise second from again
