"""Renewals and looks of one event loop. The twin of :mod:`django_setnx_lock.core.patrol`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redis import exceptions as redis_exceptions

from ..courier import Asked, Rounds
from ..errands import Errand
from ..patrol import LINGER, SLICE, Plan
from .line import CONNECTING, Line, take_note
from .sentinel import follow


class _Aside:
    """Connects ``line`` in a task of its own."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.task = asyncio.get_running_loop().create_task(line.connect(), name=CONNECTING)
        self.task.add_done_callback(take_note)

    @property
    def error(self) -> BaseException | None:
        if not self.task.done():
            return None
        if self.task.cancelled():
            return redis_exceptions.ConnectionError("the task that was to connect was cancelled")
        return self.task.exception()

    def abandon(self) -> None:
        self.task.cancel()
        self._line.drop()


class Courier(Rounds[Line, _Aside]):
    """The twin of :class:`~django_setnx_lock.core.courier.Courier`; for one task.

    Another connects.
    """

    async def send(self, errands: Sequence[Errand]) -> None:
        """Send ``errands`` in one write, as soon as there is a connection."""
        await follow(self.client)
        if todo := self._begin_round(errands):
            await self._post(todo)

    async def collect(self, until: float) -> None:
        """Take the answers that come by ``until``. Those that never come end in an error."""
        while self._waiting and self._line is not None:
            reply = None
            try:
                if await self._has_sent(self._line, until):
                    reply = await self._line.read(self._left(until))
            except redis_exceptions.ResponseError as error:
                reply = error
            except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
                self._fail(error)
                return
            if reply is None:
                self._give_up_if_late()
                return
            self._deliver(*self._waiting.popleft(), reply)
        if not self._waiting and (missing := self._end_round()):
            await self._post(missing)

    async def _post(self, todo: Sequence[Asked]) -> None:
        try:
            line = self._begin_post(todo)
            await self._has_sent(line, self._now())
        except Exception as error:  # noqa: BLE001 - as above: the other servers' locks go on
            self._fail(error)

    async def _has_sent(self, line: Line, until: float) -> bool:
        """Whether all is sent by ``until``. Raises what redis-py raises."""
        if not line.is_connected:
            if self._aside is None:
                self._aside = _Aside(line)
            task = self._aside.task
            await asyncio.wait({task}, timeout=self._left(until))
            if not task.done():
                return False
            self._end_aside()
        if self._unsent:
            commands, self._unsent = self._unsent, []
            self._sent = self._now()
            await line.send(*commands)
        return True


class Patrol(Plan[Courier]):
    """Renews what is due and sends the looks that are; for one task."""

    async def go(self) -> float:
        """Do what is due. Gives when there is more to do: a time, ``inf`` for never."""
        now = self._now()
        first_end = self._declare_losses(now)
        self._tell()
        agendas = self._agendas(now)
        is_busy = False
        for server, agenda in agendas.items():
            courier = self._couriers.get(server)
            if agenda.first <= now and not (courier and courier.is_under_way):
                if courier is None:
                    courier = Courier(agenda.client, self._now, Line)
                    self._couriers[server] = courier
                await courier.send(agenda.batch())
                is_busy = True
        for server, courier in list(self._couriers.items()):
            if courier.is_under_way:
                await courier.collect(min(now + SLICE, first_end))
                is_busy = True
            elif server not in agendas and now - courier.used_at > LINGER:
                self._couriers.pop(server).close()
        self._tell()
        return now if is_busy else min([first_end, *(one.first for one in agendas.values())])
