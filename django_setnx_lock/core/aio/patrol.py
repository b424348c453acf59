"""Renewals and looks of one event loop. The twin of :mod:`django_setnx_lock.core.patrol`."""

from __future__ import annotations

from collections.abc import Sequence

from redis import exceptions as redis_exceptions

from ..courier import Asked, Rounds
from ..errands import Errand
from ..patrol import LINGER, SLICE, Plan
from .line import Line
from .sentinel import follow


class Courier(Rounds[Line]):
    """The twin of :class:`~django_setnx_lock.core.courier.Courier`; for one task."""

    async def send(self, errands: Sequence[Errand]) -> None:
        """Send ``errands`` in one write."""
        await follow(self.client)
        await self._post(self._begin_round(errands))

    async def collect(self, until: float) -> None:
        """Take the answers that come by ``until``. Those that never come end in an error."""
        while self._waiting and self._line is not None:
            try:
                reply = await self._line.read(min(until, self._gives_up_at) - self._now())
                if reply is None:
                    self._give_up_if_late()
                    return
            except redis_exceptions.ResponseError as error:
                reply = error
            except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
                self._fail(error)
                return
            self._deliver(*self._waiting.popleft(), reply)
        if not self._waiting and (missing := self._end_round()):
            await self._post(missing)

    async def _post(self, todo: Sequence[Asked]) -> None:
        try:
            await self._begin_post(todo).send(*self._commands(todo))
        except Exception as error:  # noqa: BLE001 - as above: the other servers' locks go on
            self._fail(error)


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
