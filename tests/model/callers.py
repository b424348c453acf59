"""Callers as automata: what one does next, as django_setnx_lock/core does it.

The fields of a caller:

PC       idle, req (its request is under way), rep (the answer is), slp, ride (asleep, with the next
         request behind), held, op (an operator), done, dead
N        its token
BOX      its mailbox: the token of its attempt, or LOOP_BOX + the number of its loop
ROUNDS   how often it still takes the lock
REM      ticks until it gives up
FIRST    its first sleep is ahead
OP       ('acq', waits), ('rel', mode, then), ('look', tokens, then), ('force', token)
RETRIED  that was sent twice
AGE      ticks since it was sent
REPLY    the answer
BEL      ticks for which it believes in its lease
TIMER    of its sleep
SOCK     its BRPOP: under way, asleep at the server, answered and not read; or its sleep in a loop
FLAGS    see below
REN      a renewal under way
PIPE     what it had sent when it was cancelled, and is carried out before its cancel
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .server import BLOCKED, Server, Violation

# Rules of the client; a mutant has one of them taken out.
RULES = {
    "send": "belief in the lease counts from the send",
    "fresh": "each attempt has a token of its own",
    "cancel": "an attempt that fails cancels what it may have been granted",
    "doubt": "and says so when a copy may still be under way",
    "taint": "what was sent twice is remembered at the release, or when the attempt gives up",
    "truth": "'lost' to a release sent twice, with the lease running and no mark: released",
    "look": "who was told that the lock was given looks whether the waiter woke",
    "look_cancel": "who cancels, or forces, looks too",
    "look_ok": "who gets the lock looks at those who were woken by that",
    "look_lost": "who releases what had been lost looks too, for the lock is given then",
    "self": "whom its own look gave the lock asks at once, and does not look at itself",
    "anew": "a grant that came too late is cancelled, and the attempt asks with a new token",
    "leave": "a waiter that gives up asks once more, without a place",
    "ride": "the first sleep carries the next request",
    "listen": "a thread that sleeps is not taken for awake",
    "longer": "it listens on when its sleep is over, while it asks",
    "early": "a loop keeps mail for a task that does not sleep yet",
    "cut_early": "a task that asks while its loop's mail connection breaks asks once more",
    "order": "what a cancelled task of a loop sent is carried out before its cancel",
}
FAULTS = (
    *("loss", "late", "kill", "zombie", "cancel", "force", "back", "forward", "slow", "flush"),
    *("cut", "half"),
)

(PC, N, BOX, ROUNDS, REM, FIRST, OP, RETRIED, AGE) = range(9)
(REPLY, BEL, TIMER, SOCK, FLAGS, REN, PIPE) = range(9, 16)
SENT, ASLEEP, READY, IN_LOOP = 1, 2, 3, 4
# UNSURE: a release, or a cancel, was never answered.
TAINT, LET_GO, FORCED_OFF, UNSURE = 1, 2, 4, 8
OVER = ("idle", "done", "dead", "op")
LOOP_BOX = 1000
# Ticks of a loop's BRPOP, and how many it has under way; ticks of a thread's.
LOOP_SLEEP, LISTENING, LISTENS_FOR = 3, 2, 8

Client = tuple[Any, ...]


class Caller(NamedTuple):
    """One caller. ``lasts``: its lease; that, ``limit``, ``hold``: in ticks.

    ``limit``: for how long it waits; 0: it tries once. ``hold``: the least time from the grant on.
    ``foreign``: it speaks plain SET NX and compare-and-delete. ``follows``: it comes when the one
    before it has asked. ``mortal``: whether it may die; a text: in that state only. ``loop``: of
    which it is a task.
    """

    prefix: str = ""
    lasts: int = 3
    rounds: int = 1
    limit: int | None = None
    renew: bool = False
    foreign: bool = False
    follows: bool = False
    mortal: bool | str = True
    loop: int | None = None
    hold: int = 0


class State(NamedTuple):
    """``loops``: of each (BRPOPs that have not begun, answers, tokens with early mail).

    ``net``: copies under way (op, token, box, age). ``top``: the highest fence so far.
    ``arrivals``: tokens in the order in which they queued.
    """

    server: Server
    clients: tuple[Client, ...]
    loops: tuple[Any, ...]
    net: tuple[Any, ...]
    budget: tuple[int, ...]
    top: int
    arrivals: tuple[int, ...]


class Draft:
    """A state in the making."""

    __slots__ = ("arrivals", "budget", "clients", "loops", "net", "server", "top")

    def __init__(self, state: State) -> None:
        self.server, clients, loops, self.net, self.budget, self.top, self.arrivals = state
        self.clients: list[Any] = list(clients)
        self.loops: list[Any] = list(loops)

    def client(self, i: int) -> list[Any]:
        """Return the record of that caller, to be changed."""
        c = self.clients[i] = list(self.clients[i])
        return c

    def under_way(self, op: Any, token: int, box: int) -> None:
        self.net = tuple(sorted((*self.net, (op, token, box, 0))))

    def done(self) -> State:
        return State(
            self.server,
            tuple(map(tuple, self.clients)),
            tuple(self.loops),
            self.net,
            self.budget,
            self.top,
            self.arrivals,
        )


class Clients:
    """What callers do of themselves. ``out``: the rules that are taken out."""

    def __init__(
        self, callers: list[Caller], sleep: int, out: tuple[str, ...], keeps: bool
    ) -> None:
        self.callers, self.sleep, self.keeps = callers, sleep, keeps
        self.rules = {rule: rule not in out for rule in RULES}
        assert set(out) <= set(RULES)

    def ask(self, d: Draft, i: int, c: list[Any]) -> None:
        caller = self.callers[i]
        if caller.loop is not None:
            c[BOX] = LOOP_BOX + caller.loop
        self.send(c, ("acq", 0 if caller.limit == 0 or c[REM] == 0 else 1))

    @staticmethod
    def send(c: list[Any], op: Any) -> None:
        c[PC], c[OP], c[AGE], c[RETRIED], c[REPLY] = "req", op, 0, 0, None

    def then(self, d: Draft, i: int, c: list[Any], what: Any) -> None:
        """Go on, after a look or a cancel, with what it was in."""
        if what[0] == "busy":
            self.busy(d, i, c, *what[1:])
        elif what[0] == "held":
            c[PC], c[OP], c[REPLY] = "held", None, None
        elif what[0] == "end":
            self.over(i, c)
        else:
            if what[0] == "anew":
                c[N] += 1
                c[FLAGS] &= ~TAINT
            self.ask(d, i, c)

    def over(self, i: int, c: list[Any]) -> None:
        if c[PC] == "dead":
            return
        left = max(c[ROUNDS] - 1, 0)
        token = c[N] + (self.rules["fresh"] and left > 0)
        box = c[BOX] if self.callers[i].loop is not None else token
        state = "idle" if left else "done" if c[ROUNDS] else "op"
        c[:] = [*blank(state, token, box, left)[:FLAGS], c[FLAGS] & UNSURE, None, None]

    def busy(
        self, d: Draft, i: int, c: list[Any], left: int | None, is_ours: bool, waits: int
    ) -> None:
        caller = self.callers[i]
        if not waits:
            if c[FLAGS] & TAINT and self.rules["taint"]:
                return self.send(c, ("rel", "doubt", ("end",)))
            return self.over(i, c)
        if c[REM] is None and caller.limit is not None:
            c[REM] = caller.limit
        if c[REM] == 0:
            return self.ask(d, i, c) if self.rules["leave"] else self.over(i, c)
        pauses = (left, c[REM], self.sleep, None if is_ours else 1)
        pause = min(ticks for ticks in pauses if ticks is not None)
        is_first, c[FIRST] = c[FIRST], 0
        c[OP], c[REPLY], c[AGE], c[RETRIED] = None, None, 0, 0
        if caller.loop is not None:
            return self.sleep_in_loop(d, i, c, caller.loop, pause)
        can_ride = is_ours and caller.lasts > 1 and (c[REM] is None or c[REM] > 2)
        if is_first and can_ride and self.rules["ride"]:
            c[PC], c[TIMER], c[SOCK], c[OP] = "ride", min(pause, 1), SENT, ("acq", 1)
        else:
            c[PC], c[TIMER], c[SOCK] = "slp", pause, c[SOCK] or SENT
        return None

    def fail(self, d: Draft, i: int, c: list[Any]) -> None:
        """Go on without an answer: there was none, twice or too late to ask again."""
        op = c[OP]
        c[SOCK] = 0
        if op[0] == "rel":
            c[FLAGS] |= UNSURE
        if op[0] == "acq" and self.rules["cancel"]:
            self.send(c, ("rel", "doubt" if self.rules["doubt"] else "cancel", ("end",)))
        elif op[0] == "look":
            self.then(d, i, c, op[2])
        elif op[0] == "rel" and op[1] == "cancel":
            self.send(c, ("rel", "doubt", ("end",)))
        else:
            self.over(i, c)

    def deliver(self, d: Draft, i: int, c: list[Any]) -> None:
        """Go on with an answer."""
        op, reply = c[OP], c[REPLY]
        if op[0] == "acq":
            self._asked(d, i, c, op, reply)
        elif op[0] == "rel":
            is_release = op[1] in ("", "repeat")
            if is_release:
                self._told(c, reply)
            rule = "look" if is_release else "look_cancel"
            self._look(d, i, c, reply[-1], op[2], "look_lost" if reply[0] == "LOST" else rule)
        elif op[0] == "force":
            self._look(d, i, c, reply[1] if reply[0] == "OK" else (), ("end",), "look_cancel")
        else:
            self._look(d, i, c, reply, op[2])

    def _asked(self, d: Draft, i: int, c: list[Any], op: Any, reply: Any) -> None:
        if reply[0] == "BUSY":
            return self._look(d, i, c, reply[3], ("busy", reply[1], reply[2], op[1]))
        if reply[0] == "GONE":
            return self.then(d, i, c, ("anew",))
        left = self.callers[i].lasts - (c[AGE] if self.rules["send"] else 0)
        c[SOCK] = 0
        if left > 0:
            c[BEL], c[FIRST], c[REM] = left, 0, None
            return self._look(d, i, c, reply[1], ("held",), "look_ok")
        mode = "doubt" if c[FLAGS] & TAINT and self.rules["taint"] else "cancel"
        on = ("anew",) if self.rules["anew"] else ("busy", None, True, op[1])
        return self.send(c, ("rel", mode, on))

    def _look(
        self, d: Draft, i: int, c: list[Any], given: Any, then: Any, rule: str = "look"
    ) -> None:
        if then[0] == "busy" and c[N] in given and self.rules["self"]:
            given, then = tuple(token for token in given if token != c[N]), ("again",)
        if given and self.rules["look"] and self.rules[rule]:
            self.send(c, ("look", given, then))
        else:
            self.then(d, i, c, then)

    def _told(self, c: list[Any], reply: Any) -> None:
        is_sure = self.rules["truth"] and c[RETRIED] and c[BEL] > 0 and not reply[1]
        released = reply[0] == "OK" or is_sure
        if not self.keeps:
            return
        if released and not c[FLAGS] & LET_GO:
            raise Violation("truth: told 'released', but it had been lost")
        if not released and c[FLAGS] & LET_GO and c[BEL] > 0:
            raise Violation("truth: told 'lost', but it was released")

    # Tasks of a loop, which has one mailbox for all.

    def sleep_in_loop(self, d: Draft, i: int, c: list[Any], loop: int, pause: int) -> None:
        begun, answers, early = d.loops[loop]
        if c[N] in early:
            early = tuple(token for token in early if token != c[N])
            d.loops[loop] = begun, answers, early
            return self.ask(d, i, c)
        c[PC], c[TIMER], c[SOCK] = "slp", pause, IN_LOOP
        return self.listen(d, loop)

    def takes_early(self, d: Draft, i: int, loop: int) -> bool:
        """Return whether that caller is a task of the loop, and asks just now."""
        c = d.clients[i]
        is_asking = c[PC] in ("req", "rep") and c[OP][0] != "rel"
        return is_asking and self.callers[i].loop == loop

    def listen(self, d: Draft, loop: int) -> None:
        begun, answers, early = d.loops[loop]
        under_way = begun + len(answers) + is_blocked(d.server, -1 - loop)
        begun += max(LISTENING - under_way, 0)
        d.loops[loop] = begun, answers, early

    def read_mail(self, d: Draft, loop: int) -> str:
        """Wake whom the next answer of a BRPOP names: the loop reads it."""
        begun, (token, *answers), early = d.loops[loop]
        to = token // 16 if token is not None else None
        if to is not None and d.clients[to][N] == token and self.callers[to].loop == loop:
            c = d.client(to)
            if c[PC] == "slp":
                c[SOCK] = READY
            elif self.rules["early"] and self.takes_early(d, to, loop):
                early = tuple(sorted({*early, token}))
        d.loops[loop] = begun, tuple(answers), early
        if any(
            c[PC] == "slp" and c[SOCK] == IN_LOOP and self.callers[i].loop == loop
            for i, c in enumerate(d.clients)
        ):
            self.listen(d, loop)
        return "reads that its BRPOP ended" if token is None else "reads mail"


def is_blocked(s: Server, owner: int) -> bool:
    return any(entry[2] == owner and entry[3] for entry in s[BLOCKED])


def blank(pc: str, token: int, box: int, rounds: int) -> list[Any]:
    return [pc, token, box, rounds, None, 1, None, 0, 0, None, 0, 0, 0, 0, None, None]
