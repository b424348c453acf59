"""Runs requests for asyncio. The twin of :mod:`django_setnx_lock.core.calling`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from ..calling import SOON, TRANSLATED, Undo, give_up, refuse_too_few, translated
from ..cluster.shared import is_cluster
from ..line import Command
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


async def call(
    client: Any,
    request: Request,
    key: str,
    *,
    repeated: Callable[[], None] | None = None,
    patience: float | None = None,
    within: float | None = None,
    undo: Undo | None = None,
) -> Any:
    """Run ``request`` and give its reply: EVALSHA, and EVAL where the server lacks the script.

    ``repeated`` is called before the reply is given if a copy may be still under way.
    ``patience``: see :func:`routed`; of no effect but on a cluster. ``within``, ``undo``: as in its
    twin. Raises LockUnavailable; NotImplementedError and TypeError as :func:`maker_for`.
    """
    until = None if within is None else time.monotonic() + within
    if is_cluster(client):
        with translated(key):
            return await routed(
                client,
                request.keys[0],
                lambda node: _call(node, request, key, repeated, until, undo),
                patience=patience,
                repeated=repeated,
                until=until,
            )
    return await _call(client, request, key, repeated, until, undo)


async def _call(
    client: Any,
    request: Request,
    key: str,
    repeated: Callable[[], None] | None,
    until: float | None,
    undo: Undo | None,
) -> Any:
    lines, line = await _borrowed(client)
    line.sent_again = False
    try:
        reply = await _ask(line, request, until)
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        # Cancellations too: the reply may be still to come.
        give_up(lines, client, line, error, key, undo)
    if line.sent_again:
        lines.forget(client)
        if repeated:
            repeated()
    lines.give_back(client, line)
    return reply


async def _ask(
    line: Line, request: Request, until: float | None, then: Command | None = None
) -> Any:
    try:
        return await line.ask(*request.by_sha, then=then, until=until)
    except redis_exceptions.NoScriptError:
        if then is not None and isinstance(await _read(line, SOON), Exception):
            # Nothing was granted that replicas could have to know of.
            line.drop()
        return await line.ask(*request.in_full, then=then, until=until)


async def call_replicated(
    client: Any,
    request: Request,
    key: str,
    replicas: Replicas,
    *,
    within: float | None = None,
    undo: Undo | None = None,
) -> Any:
    """The twin of :func:`~django_setnx_lock.core.calling.call_replicated`."""
    lines, line = await _borrowed(client)
    line.sent_again = False
    until = None if within is None else time.monotonic() + within
    try:
        reply = await _ask(line, request, until, replicas.command)
        if is_grant(reply):
            seconds = replicas.wait_ms / 1000 + line.limits.answer
            refuse_too_few(replicas, await _read(line, seconds), key)
        elif isinstance(await _read(line, SOON), Exception):
            # A busy answer need not wait for replicas that are not there.
            line.drop()
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        give_up(lines, client, line, error, key, undo)
    lines.give_back(client, line)
    return reply


async def _read(line: Line, seconds: float) -> Any:
    """The reply to WAIT, or the error in its place."""
    try:
        reply = await line.read(seconds)
    except TRANSLATED as error:
        return error
    return redis_exceptions.TimeoutError("no answer to WAIT") if reply is None else reply


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
        found = await line.ask("EXISTS", name)
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        give_up(lines, client, line, error, key, None)
    lines.give_back(client, line)
    return bool(found)


async def _borrowed(client: Any) -> tuple[Lines[Line], Line]:
    refuse_many_servers(client)
    await follow(client)
    lines = here().calling
    return lines, lines.borrow(client)
