"""What belongs to one event loop: spare lines and a watchdog, which end with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress

from ..line import CONNECT_WITHIN
from ..lines import Lines
from .line import Line
from .watchdog import LoopWatchdog


class Room:
    """The lines and the watchdog of ``loop``.

    At the end of the loop there may be others who let a lock go even then: on lines for this time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calling = Lines(Line)
        self.waiting = Lines(Line, connect_timeout=CONNECT_WITHIN)
        self.watchdog = LoopWatchdog(loop)
        # asyncio.run(), and whatever else ends a loop in order, closes its generators.
        self._until_the_end = self._clear_at_the_end()
        with suppress(StopIteration):
            self._until_the_end.asend(None).send(None)

    async def _clear_at_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                await self.watchdog.finish()
            finally:
                self.calling.close()
                self.waiting.close()
                # The transports of what was closed hear of it in the loop's next turn.
                await asyncio.sleep(0)


_ROOMS: dict[asyncio.AbstractEventLoop, Room] = {}
# What a process was forked with. To let go of it would close what its parent is using.
_PARENTS: list[dict[asyncio.AbstractEventLoop, Room]] = []


def here() -> Room:
    """The room of the running event loop. Raises RuntimeError where there is none."""
    loop = asyncio.get_running_loop()
    room = _ROOMS.get(loop)
    if room is None:
        for other in [other for other in list(_ROOMS) if other.is_closed()]:
            _ROOMS.pop(other, None)
        room = _ROOMS[loop] = Room(loop)
    return room


def _after_fork_in_child() -> None:
    _PARENTS.append(_ROOMS.copy())
    _ROOMS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
