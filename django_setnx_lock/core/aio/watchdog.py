"""Renews all locks of an event loop from one task, and looks after what was handed on."""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import _get_running_loop
from contextlib import suppress
from contextvars import Context

from .. import clock, watchdog
from ..patrol import LINGER
from ..target import AsyncOnly, Target
from ..watchlist import EXIT_WITHIN, LONGEST_SLEEP, WatchList
from .line import CONNECTING
from .patrol import Patrol

logger = logging.getLogger("django_setnx_lock.renewal")


def _clock() -> float:
    return clock.now()


class LoopWatchdog(WatchList):
    """The twin of :class:`~django_setnx_lock.core.watchdog.Watchdog` for ``loop``.

    Its task starts with the first lock and ends some seconds after the last, or with the loop.
    Other threads may call it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(_clock)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._alarm = asyncio.Event()
        self._wakes_at = math.inf
        self._has_finished = False

    def owe_look(self, target: Target, head: str) -> None:
        """As in :class:`WatchList`; the watchdog's thread looks where the loop has ended."""
        if not self._has_finished and not self._loop.is_closed():
            super().owe_look(target, head)
        elif not isinstance(target, AsyncOnly):
            watchdog.owe_look(target, head)

    def _attend(self, due: float) -> None:
        if _get_running_loop() is self._loop:
            self._attend_here(due)
        else:
            # The loop may end at any time.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._attend_here, due)

    def _attend_here(self, due: float) -> None:
        if self._task is None:
            self._start()
        elif due < self._wakes_at:
            self._alarm.set()

    def _start(self) -> None:
        if self._has_finished:
            return
        # Not with the context of whoever happens to take the first lock.
        task = Context().run(self._loop.create_task, self._run())
        task.set_name("setnx-lock-watchdog")
        task.add_done_callback(self._has_ended)
        self._task = task

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._held or self._looks:
            # Something came just now, or somebody has cancelled whatever tasks there are.
            self._start()

    async def _run(self) -> None:
        patrol = Patrol(self._held, self._looks, self._now)
        needed_at = self._now()
        try:
            while True:
                self._alarm.clear()
                # Who adds something from here on sets the alarm.
                self._wakes_at = math.inf
                next_at = await self._go(patrol)
                now = self._now()
                if self._held or self._looks:
                    needed_at = now
                elif now - needed_at >= LINGER:
                    return
                self._wakes_at = min(next_at, now + LONGEST_SLEEP)
                await self._sleep(self._wakes_at - now)
        finally:
            patrol.close()

    async def _go(self, patrol: Patrol) -> float:
        try:
            return await patrol.go()
        except Exception:
            logger.exception("the renewal of locks stumbled, and goes on")
            return self._now() + LONGEST_SLEEP

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        timer = self._loop.call_later(seconds, self._alarm.set)
        try:
            await self._alarm.wait()
        finally:
            timer.cancel()

    async def finish(self) -> None:
        """Send at the end of the loop what looks are owed. Takes half a second at most."""
        self._has_finished = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        patrol = Patrol(self._held, self._looks, self._now)
        for held in patrol.living():
            logger.warning(
                "the event loop in which the lock %r was taken has ended: the lock is no longer "
                "renewed and ends with its lease",
                held.key,
            )
        self._held.clear()
        self._hasten_looks()
        give_up_at = self._now() + EXIT_WITHIN
        try:
            while self._looks and self._now() < give_up_at:
                await asyncio.wait_for(patrol.go(), EXIT_WITHIN)
        except Exception as error:  # noqa: BLE001 - the loop ends, whatever it is
            logger.debug("a last look failed: %s", error)
        finally:
            patrol.close()
        # Those that were to connect have been cancelled.
        if connecting := {one for one in asyncio.all_tasks() if one.get_name() == CONNECTING}:
            await asyncio.wait(connecting, timeout=EXIT_WITHIN)
