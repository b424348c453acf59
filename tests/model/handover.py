"""The model of the hand-over: where it starts, which steps there are, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator

from .bounds import UNCOUNTED, Bounds, State, Steps
from .callers import caller
from .properties import TWO_SILENT, violation, wasted_claims
from .server import Client, World
from .surroundings import network, others, time
from .watchdog import watchdog


class Model(Bounds):
    """The rules within ``Bounds``."""

    def start(self) -> State:
        names = "abcd"[: self.clients]
        turns = (self.turns + self.more, *(self.turns,) * self.clients)
        clients = (
            Client(
                name,
                turns[i],
                self.leases[i],
                ahead=name in self.ahead,
                keeps=name in self.keeps,
                in_loop=name in self.in_loops,
            )
            for i, name in enumerate(names)
        )
        return World(tuple(clients), self.faults).frozen()

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        for step, world in self._steps(state):
            if self.overtaken == UNCOUNTED:
                world.overtaken = ()
            yield step, world.frozen(follows=self.rules.look_follows)

    def wrong(self, state: State) -> str:
        """The violation that ``state`` is, or ""."""
        wrong = self._wrong(state)
        accepted = wrong == TWO_SILENT and not self.only
        return wrong if wrong.startswith(self.only) and not accepted else ""

    def _wrong(self, state: State) -> str:
        w = World(*state)
        if wasted_claims(w) > self.wasted:
            return "late: more than one claim waited for one dead waiter"
        if len(w.overtaken) > self.overtaken:
            return "overtaken too often by way of LOOK"
        return violation(state)

    def _steps(self, state: State) -> Steps:
        now = World(*state)
        for number, client in enumerate(now.clients):
            if client.pc not in ("dead", "vanished"):
                for step, world in caller(self, state, number, client):
                    yield f"{client.name} {step}", world
                for step, world in watchdog(self, state, number, client):
                    yield f"{client.name}'s watchdog: {step}", world
        yield from network(self, state, now)
        yield from time(self, state, now)
        yield from others(self, state, now)
