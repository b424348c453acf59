"""A model of locks whose value is the time at which they stop being valid.

Three kinds of client, each with perfect clocks and each writing times that no other writes:
``article`` sends SETNX, GET and GETSET one after another; ``script`` has one script do that with
the time that it read before it sent it; ``ours`` has one script do it on the server's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

# When it is over, and who wrote it.
Value = tuple[int, int]


class Client(NamedTuple):
    """``doing``: where it is. ``mine``: what it writes. ``read``: what it found at the name."""

    doing: str = "out"
    mine: Value | None = None
    read: Value | None = None


class World(NamedTuple):
    """``value``: what stands at the name."""

    now: int
    value: Value | None
    clients: tuple[Client, ...]

    def __str__(self) -> str:
        told = [f"now {self.now}", f"the name {_told(self.value)}"]
        for number, client in enumerate(self.clients):
            believes = " believes" if _believes(client, self.now) else ""
            told.append(f"{name_of(number)} {client.doing} {_told(client.mine)}{believes}")
        return "; ".join(told)


@dataclass(frozen=True)
class Model:
    """``kinds`` and ``leases`` of the clients. A holder that was killed left its value behind."""

    kinds: tuple[str, ...]
    leases: tuple[int, ...] = (2, 2, 2)
    until: int = 7
    only: str = "two believers"

    def start(self) -> World:
        return World(1, (0, -1), (Client(),) * len(self.kinds))

    def wrong(self, world: World) -> str:
        """The violation that ``world`` is, if it is the ``only`` one that is looked for."""
        believers = [
            number for number, one in enumerate(world.clients) if _believes(one, world.now)
        ]
        if self.only == "two believers":
            return self.only if len(believers) > 1 else ""
        for number in believers:
            mine, value = world.clients[number].mine, world.value
            if mine is not None and value is not None and value[1] != number:
                if value[0] < mine[0] and self.only == "moved backwards":
                    return self.only
                if value[0] > mine[0] and self.only == "moved forwards":
                    return self.only
        return ""

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        """The steps possible in ``world``, each with its name and the world after it."""
        if world.now < self.until:
            yield "the clock: one later", world._replace(now=world.now + 1)
        for number, client in enumerate(world.clients):
            for step, value, after in self._steps(world, number, client):
                clients = (*world.clients[:number], after, *world.clients[number + 1 :])
                yield f"{name_of(number)}: {step}", World(world.now, value, clients)

    def _steps(
        self, world: World, number: int, client: Client
    ) -> Iterator[tuple[str, Value | None, Client]]:
        now, value, kind = world.now, world.value, self.kinds[number]
        mine = (now + self.leases[number], number)
        if client.doing == "holds":
            is_own = value == client.mine and _believes(client, now)
            yield "lets go", None if is_own else value, Client("done")
        elif client.doing == "out" and kind == "ours":
            yield from _at_once("ACQUIRE", value, mine, now)
        elif client.doing == "out" and kind == "script":
            # What it sends: its times are those of now, whenever that arrives.
            yield "reads its clock", value, Client("sends", mine, (now, number))
        elif client.doing == "sends" and client.mine and client.read:
            yield from _at_once("its script", value, client.mine, client.read[0])
        else:
            yield from _step_by_step(value, mine, client, now)


def _step_by_step(
    value: Value | None, mine: Value, client: Client, now: int
) -> Iterator[tuple[str, Value | None, Client]]:
    if client.doing == "out":
        if value is None:
            yield "SETNX: taken", mine, Client("holds", mine)
        else:
            yield "SETNX: not taken", value, Client("asks", mine)
    elif client.doing == "asks":
        if value is None or value[0] >= now:
            yield "GET: held, or gone by now", value, Client()
        else:
            yield "GET: over", value, client._replace(doing="found it over", read=value)
    elif client.doing == "found it over":
        if value == client.read:
            yield "GETSET: what was read, taken", client.mine, client._replace(doing="holds")
        else:
            yield "GETSET: another, not taken", client.mine, Client()


def _at_once(
    step: str, value: Value | None, mine: Value, now: int
) -> Iterator[tuple[str, Value | None, Client]]:
    if value is None or value[0] < now:
        yield f"{step}: taken", mine, Client("holds", mine)
    else:
        yield f"{step}: held", value, Client()


def _believes(client: Client, now: int) -> bool:
    return client.doing == "holds" and client.mine is not None and now <= client.mine[0]


def _told(value: Value | None) -> str:
    return "-" if value is None else f"{value[0]} of {name_of(value[1])}"


def name_of(number: int) -> str:
    return "the killed one" if number < 0 else "abc"[number]
