"""Renews all locks of an event loop from one task, and checks what was handed on."""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import _get_running_loop
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

from redis import exceptions as redis_exceptions

from .. import clock
from ..connections import execute
from ..connections.backends import ASYNCIO
from ..connections.connection import AioConnection, Command, take_note
from ..connections.endpoints import AsyncOnly, Target
from ..connections.pool import PerLoop, loop_state
from ..connections.primitives import CONNECTING
from ..connections.sentinel import follow_in_loop
from . import watchdog
from .requests import AnyRequest
from .scheduler import EXIT_WITHIN, LINGER, LONGEST_SLEEP, RenewalRegistry, RenewalScheduler

logger = logging.getLogger("django_setnx_lock.renewal")


class TaskIO:
    """Sends and reads for one task. Another connects."""

    def connection(self, client: Any, connect_timeout: float) -> AioConnection:
        """See :class:`RenewalIO`, as for the others."""
        return AioConnection(client, connect_timeout=connect_timeout)

    async def follow(self, client: Any) -> None:
        await follow_in_loop(client)

    def connect(self, connection: AioConnection) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(connection.connect(), name=CONNECTING)
        task.add_done_callback(take_note)
        return task

    async def wait(self, work: asyncio.Task[None], seconds: float) -> bool:
        await asyncio.wait({work}, timeout=seconds)
        return work.done()

    async def send(
        self, connection: AioConnection, commands: Sequence[Command], seconds: float
    ) -> None:
        await connection.send(*commands)

    async def read(self, connection: AioConnection, seconds: float) -> Any:
        try:
            return await connection.read(seconds)
        except redis_exceptions.ResponseError as error:
            return error

    async def call(self, client: Any, request: AnyRequest, key: str) -> Any:
        return await execute.call(ASYNCIO, client, request, key)


class LoopWatchdog(RenewalRegistry):
    """Renews the locks that were taken in ``loop``, and checks their hand-offs.

    Its task starts with the first lock and ends some seconds after the last, or with the loop.
    Other threads may call it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._alarm = asyncio.Event()
        self._wakes_at = math.inf
        self._has_finished = False

    def schedule_handoff_check(self, target: Target, head: str) -> None:
        """Check it in this loop or, if the loop has ended, in the watchdog's thread."""
        if not self._has_finished and not self._loop.is_closed():
            super().schedule_handoff_check(target, head)
        elif not isinstance(target, AsyncOnly):
            watchdog.WATCHDOG.schedule_handoff_check(target, head)

    def wake(self) -> None:
        """Do what is due now. Called in the thread of the loop."""
        self._alarm.set()

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
        if self.is_needed:
            # Something came just now, or somebody has cancelled whatever tasks there are.
            self._start()

    async def _run(self) -> None:
        scheduler = RenewalScheduler(self, TaskIO())
        needed_at = clock.now()
        try:
            while True:
                self._alarm.clear()
                # From here on, a lock that is added sets the alarm.
                self._wakes_at = math.inf
                next_at = await self._run_once(scheduler)
                now = clock.now()
                if self.is_needed:
                    needed_at = now
                elif now - needed_at >= LINGER:
                    return
                self._wakes_at = min(next_at, now + LONGEST_SLEEP)
                await self._sleep(self._wakes_at - now)
        finally:
            scheduler.close()

    async def _run_once(self, scheduler: RenewalScheduler) -> float:
        try:
            return await scheduler.run_once()
        except Exception:
            logger.exception("the renewal of locks stumbled, and goes on")
            return clock.now() + LONGEST_SLEEP

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
        """Make at the end of the loop the checks that are left, in half a second at most."""
        self._has_finished = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        scheduler = RenewalScheduler(self, TaskIO())
        for held in self.watched():
            logger.warning(
                "the event loop in which the lock %r was taken has ended: the lock is no longer "
                "renewed and ends with its lease",
                held.target.key,
            )
        self._held.clear()
        self.hasten_checks()
        give_up_at = clock.now() + EXIT_WITHIN
        try:
            while self._checks and clock.now() < give_up_at:
                await asyncio.wait_for(scheduler.run_once(), EXIT_WITHIN)
        except Exception as error:  # noqa: BLE001 - the loop ends, whatever it is
            logger.debug("a last look failed: %s", error)
        finally:
            scheduler.close()
        # The tasks that were connecting have been cancelled.
        if connecting := {one for one in asyncio.all_tasks() if one.get_name() == CONNECTING}:
            await asyncio.wait(connecting, timeout=EXIT_WITHIN)


def _begin(loop: asyncio.AbstractEventLoop) -> LoopWatchdog:
    dog = LoopWatchdog(loop)
    loop_state().before_end.append(dog.finish)
    return dog


# Returns the watchdog of the running event loop.
running_watchdog = PerLoop(_begin)


def all_watchdogs() -> list[RenewalRegistry]:
    """Return what renews the locks of this process: in threads, and in each event loop."""
    return [watchdog.WATCHDOG, *running_watchdog.all()]
