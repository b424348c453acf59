"""The clocks of a test, which go on when they are told to."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from ..core import clock, watchdog
from ..core.aio import loops
from ..core.watchlist import WatchList
from .server import MemoryServers

# Renewals and whoever waits have that long of real time.
_WITHIN = 10.0
_PAUSE = 0.001
# And whoever has just been woken, to sleep again or to have the lock.
_AWAKE_FOR = 1.0
# Whoever waits asks again that often, by the clocks, so that nobody takes it for dead.
_STEP = 5.0


class _ShiftedTime:
    """The module ``time`` as fakeredis sees it."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks

    def time(self) -> float:
        return time.time() + self._clocks.ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Clocks:
    """The local clock of locks and the clock of ``servers``; a context manager."""

    def __init__(self, servers: MemoryServers) -> None:
        self.ahead = 0.0
        self._servers = servers
        self._open = ExitStack()

    def __enter__(self) -> Clocks:
        real = clock.now
        self._open.enter_context(patch.object(clock, "now", lambda: real() + self.ahead))
        shifted = _ShiftedTime(self)
        self._open.enter_context(patch.object(self._servers.wire, "now", shifted.time))
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "fakeredis" and getattr(module, "time", None) is time:
                self._open.enter_context(patch.object(module, "time", shifted))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def advance(self, seconds: float) -> None:
        """Go on by ``seconds``, and have done meanwhile what is due meanwhile."""
        dog = watchdog.WATCHDOG
        all_sleep = self._all_sleep()
        for _ in self._steps(seconds, dog):
            give_up_at = time.monotonic() + _WITHIN
            # It may have looked just before the clocks went on.
            while not dog.catch_up(_WITHIN) or _first_due(dog) <= clock.now():
                if time.monotonic() > give_up_at:
                    raise AssertionError(f"locks were not renewed within {_WITHIN:g} s")
            # Time that goes on while somebody is about to ask would take him for dead.
            all_sleep = all_sleep and self._all_sleep()

    def _all_sleep(self) -> bool:
        """Whether all who wait sleep, soon; one who polls does not."""
        give_up_at = time.monotonic() + _AWAKE_FOR
        while not self._servers.all_sleep():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_PAUSE)
        return True

    async def aadvance(self, seconds: float) -> None:
        """The same for locks that were taken in this event loop, and in threads."""
        for _ in self._steps(seconds, loops.here().watchdog, watchdog.WATCHDOG):
            if not await asyncio.to_thread(watchdog.WATCHDOG.catch_up, _WITHIN):
                raise AssertionError(f"locks were not renewed within {_WITHIN:g} s")
            await self._catch_up_here()

    async def _catch_up_here(self) -> None:
        dog = loops.here().watchdog
        give_up_at = time.monotonic() + _WITHIN
        while _first_due(dog) <= clock.now():
            dog._alarm.set()
            await asyncio.sleep(_PAUSE)
            if time.monotonic() > give_up_at:
                raise AssertionError(f"locks were not renewed within {_WITHIN:g} s")

    def _steps(self, seconds: float, *dogs: WatchList) -> Iterator[None]:
        if not seconds >= 0:
            raise ValueError(f"clocks only go forward, not by {seconds!r} s")
        end = self.ahead + seconds
        yield
        while self.ahead < end:
            due = min(_first_due(dog) for dog in dogs) - clock.now()
            with self._servers.all_awake():
                self.ahead = min(end, self.ahead + min(max(due, _PAUSE), _STEP))
            yield


def _first_due(dog: WatchList) -> float:
    leases = [held.lease for one, _, _ in list(dog._held.values()) if (held := one()) is not None]
    looks = [look.due for look in list(dog._looks.values())]
    return min([*(min(one.due, one.end) for one in leases), *looks], default=float("inf"))
