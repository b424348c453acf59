"""Breadth-first search through every state that a model can reach."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class Found(Generic[State]):
    """What a search found: the first violation with a shortest way to it, or none."""

    wrong: str
    trace: list[tuple[str, State]]
    states: int
    seconds: float
    complete: bool
    steps_seen: frozenset[str]

    @property
    def steps(self) -> int:
        return len(self.trace) - 1 if self.trace else 0

    def told(self, show: Callable[[State], str]) -> str:
        """The trace, a step a line."""
        head = f"{self.wrong or 'nothing wrong'}: {self.states:,} states in {self.seconds:.1f} s"
        steps = (f"{number:3} {step:38} {show(s)}" for number, (step, s) in enumerate(self.trace))
        return "\n".join([head, *steps])


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """States refer to nothing that refers back: looking for cycles costs a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_collection()
def explore(
    start: State,
    moves: Callable[[State], Iterable[tuple[str, State]]],
    wrong: Callable[[State], str],
    limit: int = 10_000_000,
) -> Found[State]:
    """Search from ``start`` until ``wrong`` names a violation or no state is left.

    ``moves``: the steps possible in a state, each with its name and the state after it.
    ``limit``: states after which the search ends incomplete.
    """
    began = time.monotonic()
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    todo = deque([start])
    seen: set[str] = set()

    def found(violation: str, end: State | None, *, complete: bool) -> Found[State]:
        seconds = time.monotonic() - began
        trace = [] if end is None else _trace(came_from, end)
        return Found(violation, trace, len(came_from), seconds, complete, frozenset(seen))

    while todo:
        state = todo.popleft()
        for step, after in moves(state):
            seen.add(step)
            if after in came_from:
                continue
            came_from[after] = (state, step)
            violation = wrong(after)
            if violation:
                return found(violation, after, complete=False)
            todo.append(after)
        if len(came_from) > limit:
            return found("", None, complete=False)
    return found("", None, complete=True)


def _trace(came_from: dict[State, tuple[State, str] | None], end: State) -> list[tuple[str, State]]:
    trace: list[tuple[str, State]] = []
    state = end
    while (before := came_from[state]) is not None:
        trace.append((before[1], state))
        state = before[0]
    trace.append(("at first", state))
    return trace[::-1]
