"""Breadth-first search of all states, by 64-bit hash; the shortest trace to what goes wrong.

Callers that are alike are interchangeable: a state is renamed so that they stand in a fixed order.
A trace is told with the names of its first state.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from .callers import (
    AGE,
    BEL,
    BOX,
    FIRST,
    LOOP_BOX,
    OP,
    PC,
    PIPE,
    REN,
    REPLY,
    RETRIED,
    ROUNDS,
    N,
    State,
)
from .server import (
    AWAKE,
    BLOCKED,
    BOXES,
    FORCED,
    GONE,
    HOLDERS,
    LETTERS,
    META,
    NAME,
    SHARES,
    WAITERS,
    WAITING,
    Server,
    Violation,
)
from .settling import Settling
from .world import World


class Found(NamedTuple):
    """``wrong``: the first violation, '' if there is none; ``trace`` leads there.

    ``late``: the most ticks that all came to rest after the lock could be had.
    """

    states: int
    seconds: float
    depth: int
    is_complete: bool
    late: int
    wrong: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        end = f"at step {self.depth}: {self.wrong}" if self.wrong else ""
        end = end or ("all states" if self.is_complete else f"to depth {self.depth}")
        return f"{self.states:>9,} states {self.seconds:6.1f} s  {end}, {self.late} late"


class Twins:
    """Gives states of which only the names of like callers differ one form."""

    def __init__(self, world: World) -> None:
        self.groups, self.count = world.twins, len(world.callers)
        self.same = tuple(range(self.count))
        self._known: dict[Any, Any] = {}

    def canonical(self, st: State) -> tuple[State, tuple[int, ...]]:
        """Return the state and the new number of each old one."""
        order = list(self.same)
        for group in self.groups:
            keys = [self._key(st, i) for i in group]
            if keys != sorted(keys):
                in_order = sorted(zip(keys, group, strict=True))
                for place, (_, i) in zip(group, in_order, strict=True):
                    order[i] = place
        perm = tuple(order)
        if perm == self.same:
            return st, perm

        def t(token: int) -> int:
            return perm[token // 16] * 16 + token % 16

        def b(box: int) -> int:
            return box if box >= LOOP_BOX else t(box)

        def op(old: Any) -> Any:
            if old and old[0] == "look":
                return ("look", tuple(map(t, old[1])), *old[2:])
            return ("force", t(old[1])) if old and old[0] == "force" else old

        server = self._known.get((st.server, perm))
        if server is None:
            server = self._known[st.server, perm] = _renamed(st.server, perm, t, b)
        moved: list[Any] = [None] * self.count
        for i, old in enumerate(st.clients):
            c = list(old)
            c[N], c[BOX], c[OP], c[PIPE] = t(c[N]), b(c[BOX]), op(c[OP]), op(c[PIPE])
            c[REPLY] = _reply(c[REPLY], t)
            moved[perm[i]] = tuple(c)
        loops = tuple(
            (
                begun,
                tuple(None if token is None else t(token) for token in answers),
                tuple(sorted(map(t, early))),
            )
            for begun, answers, early in st.loops
        )
        net = tuple(sorted((op(o), t(token), b(box), age) for o, token, box, age in st.net))
        arrivals = tuple(map(t, st.arrivals))
        return State(server, tuple(moved), loops, net, st.budget, st.top, arrivals), perm

    @staticmethod
    def _key(st: State, i: int) -> int:
        c = st.clients[i]
        token = c[N]
        place = tuple(at for at, one in enumerate(st.arrivals) if one >> 4 == token >> 4)
        is_held = st.server[NAME] is not None and st.server[NAME][0] == token
        what = c[OP] and c[OP][0]
        fields = c[ROUNDS : FIRST + 1], c[RETRIED], c[AGE], c[BEL : REN + 1]
        return hash((c[PC], token & 15, fields, what, place, is_held))


def _reply(reply: Any, t: Any) -> Any:
    if not reply:
        return reply
    if type(reply[0]) is int:
        return tuple(map(t, reply))
    return tuple(tuple(map(t, part)) if type(part) is tuple else part for part in reply)


def _renamed(s: Server, perm: tuple[int, ...], t: Any, b: Any) -> Server:
    out = list(s)

    def value(old: Any) -> Any:
        return t(old) if type(old) is int else old

    if s[NAME]:
        out[NAME] = value(s[NAME][0]), s[NAME][1]
    if s[META]:
        out[META] = s[META][0], value(s[META][1]), s[META][2]
    if s[WAITERS]:
        out[WAITERS] = tuple((t(token), rank) for token, rank in s[WAITERS][0]), s[WAITERS][1]
    if s[WAITING]:
        rows = sorted((t(token), *row, b(box)) for token, *row, box in s[WAITING][0])
        out[WAITING] = tuple(rows), s[WAITING][1]
    for at in (SHARES, HOLDERS, GONE):
        if s[at]:
            out[at] = tuple(sorted((t(token), number) for token, number in s[at][0])), s[at][1]
    if s[FORCED]:
        out[FORCED] = tuple(sorted(map(t, s[FORCED][0]))), s[FORCED][1]
    out[AWAKE] = tuple(sorted(map(b, s[AWAKE])))
    out[BOXES] = tuple(sorted((b(box), tuple(map(t, mail)), ttl) for box, mail, ttl in s[BOXES]))
    out[BLOCKED] = tuple(
        (box, timer, owner, live, behind)
        if owner < 0
        else (b(box), timer, perm[owner], live, None if behind is None else t(behind))
        for box, timer, owner, live, behind in s[BLOCKED]
    )
    return tuple(out)


def search(world: World, most: int = 3_000_000, seconds: float = 3600) -> Found:
    """Search all states, or so many, or for so long."""
    began, twins, settling = time.monotonic(), Twins(world), Settling(world)
    start = world.start()
    parents: dict[int, Any] = {hash(start): (None, "", twins.same)}
    frontier, depth = [start], 0

    def found(is_complete: bool, wrong: str = "", trace: Iterable[str] = ()) -> Found:
        spent = time.monotonic() - began
        return Found(len(parents), spent, depth, is_complete, settling.late, wrong, tuple(trace))

    def violated(state: State, wrong: Violation, tail: list[str]) -> Found:
        steps, key = [], hash(state)
        while parents[key][0] is not None:
            key, label, perm = parents[key]
            steps.append((label, perm))
        # What the number i of a state was called at first.
        names, told = list(twins.same), []
        for label, perm in [*reversed(steps), *((line, twins.same) for line in tail)]:
            told.append(_named(label, names))
            names = [names[perm.index(i)] for i in twins.same]
        return found(False, _named(str(wrong), names), told)

    while frontier:
        after = []
        for state in frontier:
            key = hash(state)
            try:
                settling.check(state)
            except Violation as wrong:
                return violated(state, wrong, settling.told(state))
            try:
                for label, new in world.steps(state):
                    new, perm = twins.canonical(new) if twins.groups else (new, twins.same)
                    if hash(new) not in parents:
                        parents[hash(new)] = key, label, perm
                        after.append(new)
            except Violation as wrong:
                return violated(state, wrong, [f"... and then {world.doing}"])
            if len(parents) > most or time.monotonic() - began > seconds:
                return found(False)
        frontier = after
        depth += 1
    return found(True)


def _named(text: str, names: list[int]) -> str:
    return re.sub(
        r"\b[A-H]\b|\b[A-H](?=\d)", lambda found: LETTERS[names[LETTERS.index(found[0])]], text
    )
