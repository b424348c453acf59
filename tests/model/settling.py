"""How long it takes until all is at rest, if from a state on nothing else goes wrong.

Tried with one order of the steps, not with all: what a caller does of itself, then a tick.
"""

from __future__ import annotations

from .callers import FAULTS, OVER, PC, N, State
from .server import NAME, SHARES, Violation
from .world import NEVER, World


class Settling:
    """Knows of each state that it has seen in how many ticks it comes to rest."""

    def __init__(self, world: World) -> None:
        self.world = world
        # The most ticks after the lock could be had, those of faults too.
        self.late = 0
        self._ticks: dict[int, int] = {}
        self._nothing = (0,) * len(FAULTS)

    def check(self, st: State) -> None:
        """Raise Violation if a waiter has the lock later than it should."""
        world = self.world
        ticks = self._settled(self._calm(st))
        left = self._held_for(st)
        # By so much a clock, or a caller, was put off.
        weight = {"slow": 1, "back": world.step, "forward": world.step}
        used = sum(
            weight.get(fault, 0) * (before - now)
            for fault, before, now in zip(FAULTS, world.budget, st.budget, strict=True)
        )
        # Who is still to let it go may keep it for so long.
        used += sum(
            caller.hold
            for caller, c in zip(world.callers, st.clients, strict=True)
            if c[PC] not in ("done", "dead")
        )
        if world.has["flush"]:
            # The queue is lost with it: a sleep ends with the lease that was seen.
            left = max(caller.lasts for caller in world.callers)
        self.late = max(self.late, ticks - left)
        if ticks > left + world.slack + used:
            raise Violation(
                f"sleep: all is quiet after {ticks} ticks, the lock could be had after {left}"
            )

    def told(self, st: State) -> list[str]:
        """Return the steps by which it comes to rest, in words."""
        st, log = self._calm(st), ["... and then, without a fault:"]
        try:
            while len(log) < 60 and not self._is_quiet(st):
                label, st = self._next(st)
                log.append(label)
        except Violation:
            pass
        return log

    def _calm(self, st: State) -> State:
        top = NEVER if self.world.redis.floor == -1 else st.top
        return State(st.server, st.clients, st.loops, (), self._nothing, top, ())

    @staticmethod
    def _is_quiet(st: State) -> bool:
        return all(c[PC] in OVER for c in st.clients)

    @staticmethod
    def _held_for(st: State) -> int:
        """Return for how long it is held by nobody who is there to let it go."""
        s = st.server
        if not s[NAME]:
            return 0
        value, ttl = s[NAME]
        if type(value) is tuple and value[0] == "kept":
            return int(ttl)
        ends = [(value, ttl)] if type(value) is int else s[SHARES][0] if s[SHARES] else ()

        def is_there(token: int) -> bool:
            c = st.clients[token // 16]
            return c[N] == token and c[PC] not in ("dead", "idle", "done")

        return max([0, *(int(end) for token, end in ends if not is_there(token))])

    def _next(self, st: State) -> tuple[str, State]:
        world = self.world
        for i in range(len(st.clients)):
            if st.clients[i][PC] != "idle":
                for label, after in world.caller_steps(st, i, False):
                    return label, self._calm(after)
        for loop in range(world.loops):
            for label, after in world.loop_steps(st, loop, False):
                return label, self._calm(after)
        ticked = world.tick(st, free=True)
        assert ticked is not None
        return "a tick", self._calm(ticked)

    def _settled(self, st: State) -> int:
        path: list[tuple[int, bool]] = []
        while (key := hash(st)) not in self._ticks:
            if self._is_quiet(st):
                self._ticks[key] = 0
                break
            if len(path) > 3000:
                raise Violation("drain: it never comes to rest")
            label, st = self._next(st)
            path.append((key, label == "a tick"))
        ticks = self._ticks[key]
        for before, ticked in reversed(path):
            ticks += ticked
            self._ticks[before] = ticks
        return ticks
