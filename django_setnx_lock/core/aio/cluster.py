"""Runs requests at the nodes of a Redis Cluster. The twin of ``core.cluster.routing``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..cluster import routing
from ..cluster.asking import ASKING, register
from ..cluster.routes import is_broken, routes_of
from ..cluster.routing import FAILURES, pause_after, told_by
from ..errors import LockUnavailable
from ..line import CONNECT_WITHIN, Command, run_within
from .line import Line

_Result = TypeVar("_Result")
_REFRESHED_WITHIN = 1.0
# The answer to ASKING comes with that to the command.
_READ_WITHIN = 1.0


class AskingLine(Line):
    """The twin of :class:`~django_setnx_lock.core.cluster.asking.AskingLine`."""

    # Whether the answer to ASKING was read, and that to the command has not come as a whole.
    _is_admitted = False

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        super().__init__(client, connect_timeout=connect_timeout)
        # Who was sent here once may not be again.
        self.repeats = False

    def _packed(self, commands: Sequence[Command]) -> list[bytes]:
        return super()._packed([part for command in commands for part in (ASKING, command)])

    async def _read(self, seconds: float) -> Any:
        if not self._is_admitted:
            with suppress(redis_exceptions.ResponseError):
                if await super()._read(seconds) is None:
                    return None
        self._is_admitted = True
        try:
            reply = await super()._read(min(seconds, _READ_WITHIN))
        except redis_exceptions.ResponseError:
            self._is_admitted = False
            raise
        self._is_admitted = reply is None
        return reply

    def _close(self) -> None:
        self._is_admitted = False
        super()._close()


register(Line, AskingLine)


async def routed(
    client: Any,
    name: str,
    run: Callable[[Any], Awaitable[_Result]],
    *,
    patience: float | None = None,
    repeated: Callable[[], None] | None = None,
    until: float | None = None,
) -> _Result:
    """The twin of :func:`~django_setnx_lock.core.cluster.routing.routed`."""
    routes = routes_of(client)
    give_up_at = clock.now() + (routing.PATIENCE if patience is None else patience)
    tries, broken = 0, False
    while True:
        try:
            if not routes.is_connected:
                left = CONNECT_WITHIN if until is None else max(until - time.monotonic(), 0)
                await asyncio.to_thread(run_within, left, routes.cluster)
            result = await run(routes.route(name))
        except FAILURES as error:
            cause = told_by(error)
            if is_broken(cause) and broken:
                raise
            broken = broken or is_broken(cause)
            is_late = until is not None and time.monotonic() >= until
            pause = pause_after(routes, cause, tries, waits=False)
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
        await asyncio.sleep(pause)
        if broken:
            await asyncio.to_thread(routes.refresh, _REFRESHED_WITHIN)
