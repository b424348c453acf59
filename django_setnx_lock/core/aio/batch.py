"""Many locks in one round trip. The twin of :mod:`django_setnx_lock.core.batch`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from ..calling import TRANSLATED, unavailable
from ..cluster.shared import is_cluster
from ..errors import LockError, LockUnavailable, LockUnsupported
from ..line import Command
from .calling import call
from .kinds import refuse_many_servers
from .line import Line
from .loops import here
from .sentinel import follow
from .shielded import patience, undisturbed

if TYPE_CHECKING:
    from ..batch import Release
    from ..protocol import Request
    from ..target import Target
    from ..turn import Turn

logger = logging.getLogger("django_setnx_lock.lock")


async def _answer(target: Target, request: Request) -> Any:
    try:
        return await call(target.client, request, target.key)
    except LockUnavailable as error:
        return error


async def ask_each(targets: Sequence[Target], requests: Sequence[Request]) -> list[Any]:
    """Send the request of each of ``targets``, all on one server, in one round trip.

    On a cluster, one after the other. Those whose script is missing go in a second one. Each result
    is a reply, or a LockUnavailable for that request alone. Raises LockUnavailable when the round
    trip as a whole failed, and LockUnsupported for several servers.
    """
    client = targets[0].client
    refuse_many_servers(client)
    if any(target.client is not client for target in targets):
        raise LockUnsupported(
            "locks on several servers are not asked for together in asyncio: write a function that "
            "does the work inside `with` and call it by asyncio.to_thread()"
        )
    if is_cluster(client):
        return [await _answer(target, one) for target, one in zip(targets, requests, strict=True)]
    await follow(client)
    lines = here().calling
    line = lines.borrow(client)
    limit = line.limits.answer
    try:
        try:
            replies = await _run(line, requests, limit)
        except TRANSLATED as error:
            first = unavailable(error, "")
            if first.cause != "unreachable":
                raise first from error
            replies = await _run_again(line, requests, limit)
    except BaseException as error:
        # Cancellations too: replies may be still to come.
        line.drop()
        lines.forget_after(client, error)
        raise
    lines.give_back(client, line)
    return [
        unavailable(reply, target.key) if isinstance(reply, redis_exceptions.RedisError) else reply
        for target, reply in zip(targets, replies, strict=True)
    ]


async def _run_again(line: Line, requests: Sequence[Request], limit: float | None) -> list[Any]:
    line.drop()
    try:
        return await _run(line, requests, limit)
    except TRANSLATED as error:
        second = unavailable(error, "")
        second.repeated = True
        raise second from error


async def _run(line: Line, requests: Sequence[Request], limit: float | None) -> list[Any]:
    replies = await _exchange(line, [request.by_sha for request in requests], limit)
    missing = [
        number
        for number, reply in enumerate(replies)
        if isinstance(reply, redis_exceptions.NoScriptError)
    ]
    if missing:
        asked = [requests[number] for number in missing]
        in_full = [("EVAL", one.script.source, *one.arguments) for one in asked]
        for number, reply in zip(missing, await _exchange(line, in_full, limit), strict=True):
            replies[number] = reply
    return replies


async def _exchange(line: Line, commands: Sequence[Command], limit: float | None) -> list[Any]:
    await line.send(*commands)
    return [await _read(line, limit) for _ in commands]


async def _read(line: Line, limit: float | None) -> Any:
    try:
        reply = await line.read(limit)
    except redis_exceptions.ResponseError as error:
        return error
    if reply is None:
        raise redis_exceptions.TimeoutError("Timeout reading from the server")
    return reply


async def leave_each(turns: Sequence[Turn]) -> None:
    """Give up each of ``turns``, in one round trip. Raises LockUnavailable."""
    replies = await ask_each([turn.target for turn in turns], [turn.leaving() for turn in turns])
    for turn, reply in zip(turns, replies, strict=True):
        if not isinstance(reply, LockUnavailable):
            turn.read_left(reply)


async def carry_out(release: Release) -> list[LockError]:
    """Carry ``release`` out in one round trip; the errors of those that could not be released.

    When cancelled, it lets them go all the same before it raises CancelledError.
    """
    if not release.requests:
        return release.errors
    targets = release.targets
    try:
        release.read(await ask_each(targets, release.requests))
    except LockError as error:
        release.errors.append(error)
    except BaseException:

        async def again() -> None:
            release.read(await ask_each(targets, release.requests))
            for error in release.errors:
                logger.warning("%s", error)

        await undisturbed(again, patience(targets[0].client))
        raise
    return release.errors
