"""A model of a time that two write: one of ours, whose exact end is known, and another program.

Times at the name are whole units of ``UNIT`` ticks; clocks are perfect. ``a`` and ``b`` are ours.
``x`` is another program, with one script, that holds on until its time is past in whole units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

UNIT = 2
OURS = ("a", "b")
LEASE = 3
# In units, from the one that has begun.
THEIRS = (1, 2)
UNTIL = 10
RENEWED, REMOVED, TWO = "renewed, though done with", "another's removed", "two believers"


class Name(NamedTuple):
    """What stands at the name and beside it: ``ends`` in ticks, 0 when it is known no more."""

    value: int = 0
    writer: str = ""
    owner: str = ""
    ends: int = 0

    def stands(self) -> bool:
        """Tell whether the value is the one that was written with what is known."""
        return self.value > 0 and self.ends > 0 and self.value == -(-self.ends // UNIT)

    def left(self, now: int) -> int:
        if not self.value:
            return 0
        return (self.ends if self.stands() else (self.value + 1) * UNIT) - now

    def is_of(self, who: str, now: int) -> bool:
        return self.owner == who and self.stands() and self.left(now) > 0


class World(NamedTuple):
    """``believes``: until which tick each does, 0: not. ``late``: copies that are under way."""

    now: int = 1
    name: Name = Name()
    believes: tuple[int, int, int] = (0, 0, 0)
    gone: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    late: frozenset[tuple[str, str]] = frozenset()
    wrong: str = ""

    def __str__(self) -> str:
        found = self.name
        told = [f"now {self.now}", f"the name {found.value or '-'} of {found.writer or 'nobody'}"]
        if found.ends:
            told.append(f"beside it {found.ends} of {found.owner}")
        for who, ends in zip((*OURS, "x"), self.believes, strict=True):
            if self.now < ends:
                told.append(f"{who} believes until {ends}")
        return "; ".join(told)


@dataclass(frozen=True)
class Model:
    """``forgets``: whether the end beside a value that is removed is forgotten.

    ``only``: the violations that are looked for.
    """

    forgets: bool = True
    only: tuple[str, ...] = (RENEWED, REMOVED, TWO)

    def start(self) -> World:
        return World()

    def wrong(self, world: World) -> str:
        if world.wrong in self.only:
            return world.wrong
        # One that was forced out believes on until it asks.
        believing = [
            who
            for who, ends in zip((*OURS, "x"), world.believes, strict=True)
            if world.now < ends and who not in world.forced
        ]
        return TWO if TWO in self.only and len(believing) > 1 else ""

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        """Give the steps possible in ``world``, each with its name and the world after it."""
        if world.now < UNTIL:
            yield "the clock: one later", world._replace(now=world.now + 1)
        for who in OURS:
            yield from self._of_ours(world, who)
        yield from self._of_the_other(world)
        owner = world.name.owner
        if world.name.is_of(owner, world.now):
            done = {"gone": world.gone | {owner}, "forced": world.forced | {owner}}
            after = world._replace(name=self._removed(world), **done)  # type: ignore[arg-type]  # both are sets
            yield f"force-release of {owner}", after
        for kind, who in world.late:
            after = world._replace(late=world.late - {(kind, who)})
            yield f"a late {kind} of {who}", self._removing(after, who)

    def _of_ours(self, world: World, who: str) -> Iterator[tuple[str, World]]:
        now, name, number = world.now, world.name, OURS.index(who)
        if not world.believes[number] and who not in world.gone:
            if name.left(now) > 0:
                yield f"{who}: ACQUIRE: held", world
            else:
                yield f"{who}: ACQUIRE: taken", _had(world, number, who)
        elif now < world.believes[number]:
            if name.is_of(who, now):
                wrong = RENEWED if who in world.gone else ""
                yield f"{who}: RENEW: OK", _had(world, number, who)._replace(wrong=wrong)
            else:
                yield f"{who}: RENEW: LOST", _ended(world, number)
            after = _ended(self._removing(world, who), number)
            yield f"{who}: RELEASE", after
            # It may have been sent twice.
            yield f"{who}: RELEASE, and a copy", after._replace(late=after.late | {("copy", who)})

    def _removing(self, world: World, who: str) -> World:
        """Tell what a release of ``who`` does."""
        name = world.name
        after = world._replace(gone=world.gone | {who})
        if not name.is_of(who, world.now):
            return after
        wrong = REMOVED if name.writer != who else world.wrong
        return after._replace(name=self._removed(world), wrong=wrong)

    def _removed(self, world: World) -> Name:
        return world.name._replace(value=0, writer="", ends=0 if self.forgets else world.name.ends)

    def _of_the_other(self, world: World) -> Iterator[tuple[str, World]]:
        now, name = world.now, world.name
        begun = now // UNIT
        if now < world.believes[2]:
            if name.writer == "x":
                after = world._replace(name=name._replace(value=0, writer=""))
                yield "x: lets go", _ended(after, 2)
        elif not name.value or name.value < begun:
            for units in THEIRS:
                value = begun + units
                taken = world._replace(name=name._replace(value=value, writer="x"))
                yield f"x: takes it until {value}", _believing(taken, 2, (value + 1) * UNIT)


def _had(world: World, number: int, who: str) -> World:
    ends = world.now + LEASE
    name = Name(-(-ends // UNIT), who, who, ends)
    return _believing(world._replace(name=name), number, ends)


def _believing(world: World, number: int, ends: int) -> World:
    believes = list(world.believes)
    believes[number] = ends
    return world._replace(believes=tuple(believes))  # type: ignore[arg-type]  # as many as before


def _ended(world: World, number: int) -> World:
    # Not 0: a client asks once.
    return _believing(world, number, 1)
