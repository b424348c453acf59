"""How a task sleeps until it is its turn. The twin of :mod:`django_setnx_lock.core.waiting`."""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions as redis_exceptions

from .. import clock
from ..calling import translated
from ..errors import LockUnavailable
from ..sentinel import EVERY, leads_elsewhere, primary_of
from ..target import Target
from ..waiting import AT_ONCE, CONNECT_AT_LEAST
from .line import Line, take_note
from .loops import here
from .sentinel import follow


class Mailbox:
    """Where the waiter of one lock is told that it is its turn. To be closed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # Of the server that it listens at.
        self._client: Any = None
        self._line: Line | None = None
        self._listening_at = ""
        # A task of its own, as one that is cancelled when time is up may take the reply with it.
        self._reading: asyncio.Task[Any] | None = None
        self._failed = False

    async def sleep(self, token: str, seconds: float) -> None:
        """Return when ``token`` was woken, or when ``seconds`` have passed.

        Raises LockUnavailable when it could not be listened for at all, twice in a row: the
        first time it returns, so that the caller asks again.
        """
        if not self._target.dialect.wakes():
            await asyncio.sleep(seconds)
            return
        began = clock.now()
        try:
            with translated(self._target.key):
                await self._listen(
                    self._target.keys.wake(token), began + self._target.longest_sleep(seconds)
                )
        except LockUnavailable as error:
            self._drop()
            pause = self._target.moved(error)
            if pause is not None:
                await asyncio.sleep(pause)
                return
            if self._client is not None:
                here().waiting.forget(self._client)
            at_once = clock.now() - began < AT_ONCE
            if self._failed and at_once:
                raise
            self._failed = at_once
        else:
            self._failed = False

    def close(self) -> None:
        """Listen no longer."""
        if self._line is not None and not self._listening_at:
            here().waiting.give_back(self._client, self._line)
            self._line = None
        self._drop()

    async def _listen(self, box: str, end: float) -> None:
        if self._listening_at not in ("", box) or self._is_elsewhere():
            self._drop()
        if self._line is None:
            self._client = self._target.home()
            self._line = here().waiting.borrow(self._client)
        while (left := end - clock.now()) > 0:
            if self._reading is None:
                self._reading = await self._begin(self._line, box, left)
            if self._reading is None:
                return
            # Redis ends a BLPOP up to 0.1 s late: the waiter wakes in time, and hears of it later.
            # One that follows Sentinels looks now and then whether it listens at the primary.
            limit = left if primary_of(self._client) is None else min(left, EVERY)
            done, _ = await asyncio.wait({self._reading}, timeout=limit)
            if not done:
                await follow(self._client)
                if self._is_elsewhere():
                    self._drop()
                    return
                continue
            if self._reading.cancelled():
                # By somebody who cancels whatever tasks there are.
                self._drop()
                return
            woken = self._reading.result()
            self._reading = None
            self._listening_at = ""
            if woken is not None:
                return

    async def _begin(self, line: Line, box: str, seconds: float) -> asyncio.Task[Any] | None:
        """What reads the answer; None where there was no time to connect."""
        self._listening_at = box
        blpop = ("BLPOP", box, f"{max(seconds, 0.001):.3f}")
        try:
            await line.send(blpop, within=max(seconds, CONNECT_AT_LEAST))
        except redis_exceptions.TimeoutError:
            if seconds >= AT_ONCE:
                raise
            self._drop()
            return None
        reading: asyncio.Task[Any] = asyncio.get_running_loop().create_task(line.read())
        reading.add_done_callback(take_note)
        return reading

    def _is_elsewhere(self) -> bool:
        """Whether it listens at a server that is the primary no longer."""
        return self._line is not None and leads_elsewhere(self._client, self._line)

    def _drop(self) -> None:
        self._listening_at = ""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._line is not None:
            self._line.drop()
            self._line = None
