"""Runs requests at the nodes of a Redis Cluster. The twin of ``core.cluster.routing``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from redis import exceptions as redis_exceptions

from .. import clock
from ..cluster import routing
from ..cluster.asking import ASKING, register
from ..cluster.routes import is_broken, routes_of
from ..cluster.routing import FAILURES, pause_after, told_by
from ..errors import LockUnavailable
from ..line import Command
from .line import Line

_Result = TypeVar("_Result")
_REFRESHED_WITHIN = 1.0
# The answer to ASKING comes with that to the command.
_READ_WITHIN = 1.0


class AskingLine(Line):
    """The twin of :class:`~django_setnx_lock.core.cluster.asking.AskingLine`."""

    _is_admitted = False

    async def ask(self, *command: str | bytes, then: Command | None = None) -> Any:
        """As in :class:`Line`. Nothing is sent twice: who was sent here once may not be again."""
        await self.send(command, *([] if then is None else [then]))
        return await self.read()

    async def send(self, *commands: Command) -> None:
        """As in :class:`Line`."""
        await super().send(*(part for command in commands for part in (ASKING, command)))

    async def read(self, seconds: float | None = None) -> Any:
        """As in :class:`Line`."""
        if not self._is_admitted:
            with suppress(redis_exceptions.ResponseError):
                if await super().read(seconds) is None:
                    return None
        # Until that to the command has come, too.
        self._is_admitted = True
        try:
            reply = await super().read(_READ_WITHIN if seconds is None else seconds)
        except redis_exceptions.ResponseError:
            self._is_admitted = False
            raise
        self._is_admitted = reply is None
        return reply

    def drop(self) -> None:
        """As in :class:`Line`."""
        self._is_admitted = False
        super().drop()


register(Line, AskingLine)


async def routed(
    client: Any,
    name: str,
    run: Callable[[Any], Awaitable[_Result]],
    *,
    patience: float | None = None,
    repeated: Callable[[], None] | None = None,
) -> _Result:
    """The twin of :func:`~django_setnx_lock.core.cluster.routing.routed`."""
    routes = routes_of(client)
    give_up_at = clock.now() + (routing.PATIENCE if patience is None else patience)
    tries, broken = 0, False
    while True:
        try:
            if not routes.is_connected:
                await asyncio.to_thread(routes.cluster)
            result = await run(routes.route(name))
        except FAILURES as error:
            cause = told_by(error)
            if is_broken(cause) and broken:
                raise
            broken = broken or is_broken(cause)
            pause = pause_after(routes, cause, tries, waits=False)
            if pause is None or clock.now() + pause > give_up_at:
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
