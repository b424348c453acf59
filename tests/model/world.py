"""Every step that callers, faults and time can take, and what must hold in each state.

Sending, carrying out and reading are three steps of a request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .callers import (
    AGE,
    ASLEEP,
    BEL,
    BOX,
    FAULTS,
    FLAGS,
    FORCED_OFF,
    IN_LOOP,
    LET_GO,
    LISTENS_FOR,
    LOOP_BOX,
    LOOP_SLEEP,
    OP,
    OVER,
    PC,
    PIPE,
    READY,
    REM,
    REN,
    REPLY,
    RETRIED,
    SENT,
    SOCK,
    TAINT,
    TIMER,
    UNSURE,
    Caller,
    Clients,
    Draft,
    N,
    State,
    blank,
    is_blocked,
)
from .server import (
    AWAKE,
    BLOCKED,
    BOXES,
    EMPTY,
    HOLDERS,
    LETTERS,
    META,
    NAME,
    PER,
    SHARES,
    WAITERS,
    WAITING,
    Edit,
    Redis,
    Server,
    Violation,
)

Step = tuple[str, State]
NEVER = -(10**9)


class World(Clients):
    """What a run is made of.

    ``faults``: how many of each. ``sleep``: the longest; ``step``: by how much a clock is stepped;
    ``slack``: by how much later than it could be had a waiter may have the lock; all in ticks.
    ``out``: rules of the client that are left out. ``edits``: of the scripts.
    """

    def __init__(
        self,
        callers: Iterable[Caller],
        faults: dict[str, int],
        *,
        sleep: int = 6,
        step: int = 2,
        slack: int = 1,
        out: tuple[str, ...] = (),
        edits: tuple[Edit, ...] = (),
    ) -> None:
        everybody = list(callers)
        assert set(faults) <= set(FAULTS)
        self.budget = tuple(faults.get(fault, 0) for fault in FAULTS)
        self.has = {fault: fault in faults for fault in FAULTS}
        # Else no lock with a lease can exclude, and all but that must hold.
        keeps = not (self.has["flush"] or self.has["forward"])
        super().__init__(everybody, sleep, out, keeps)
        # Whether whoever is awake asks within the tick.
        self.is_prompt = set(faults) <= {"kill", "zombie", "force", "cancel"}
        self.step, self.slack, self.memory = step, slack, 5
        self.count = len(everybody)
        self.loops = 1 + max((c.loop for c in everybody if c.loop is not None), default=-1)
        groups = defaultdict(list)
        follows = any(caller.follows for caller in everybody)
        for i, caller in enumerate(everybody):
            # Where one comes after another, the order tells them apart.
            groups[i if follows else 0, caller].append(i)
        self.twins = [group for group in groups.values() if len(group) > 1]
        if self.has["force"]:
            everybody.append(Caller(rounds=0, limit=0))
        steps = faults.get("back", 0)
        past = max(step * steps, *(caller.hold for caller in everybody))
        self.redis = Redis(
            [caller.prefix for caller in everybody],
            claim=1,
            late=1,
            memory=self.memory,
            floor=-1 - past,
            outlives=None if steps else slack,
            edits=edits,
        )
        # What was being carried out, for a trace that ends in it.
        self.doing = ""

    def start(self) -> State:
        clients = tuple(
            tuple(blank("idle" if caller.rounds else "op", i * 16, i * 16, caller.rounds))
            for i, caller in enumerate(self.callers)
        )
        return State(EMPTY, clients, ((0, (), ()),) * self.loops, (), self.budget, NEVER, ())

    # The server answers.

    def carry_out(self, d: Draft, op: Any, token: int, box: int) -> Any:
        """Carry out a request, and return the reply in short: tokens as numbers, times as ticks."""
        names, what = self.redis.names, op[0]
        caller = self.callers[token // 16]
        lease = str(caller.lasts * 1000)
        name, args = what, [names[token], lease]
        if what == "acq":
            wait = str(self.sleep * 1000) if op[1] else "0"
            name, args = "acquire", [names[token], lease, "R", wait, f"box:{box}"]
        elif what == "rel":
            hold = (f"{caller.hold}000",) if caller.hold and self._is_release(op) else ()
            name, args = "release", [names[token], op[1], *hold]
        elif what == "ren":
            name = "renew"
        elif what == "look":
            name, args = "look", [" ".join(names[one] for one in op[1])]
        elif what == "force":
            name, args = "force", [names[op[1]], "why"]
        before, self.doing = d.server, f"{names[token]}'s {say(op)} is carried out"
        d.server, d.top, raw, served = self.redis.run(name, tuple(args), before, d.top)
        reply = self._short(what, raw)
        if what == "rel" and stands(before, token) and not stands(d.server, token):
            self._flag(d, token, LET_GO)
        if what == "force" and raw[0] == "OK":
            self._flag(d, op[1], FORCED_OFF)
        self._check_hold(before, d.server, op, token)
        if what == "look":
            self._check_mail(before, d.server, reply)
        elif reply[0] != "GONE":
            self._check_room(d.server)
        self._note_arrival(before, d, token, op, reply)
        for entry, mail in served:
            self._serve(d, entry, mail)
        return reply

    def _short(self, what: str, raw: Any) -> Any:
        def tokens(given: str | None) -> tuple[int, ...]:
            return tuple(self.redis.tokens[name] for name in (given or "").split())

        if what == "look":
            return tokens(raw)
        if raw[0] == "BUSY" and len(raw) > 1:
            left = None if raw[1] < 0 else -(-raw[1] // 1000)
            return "BUSY", left, bool(raw[2]), tokens(raw[3])
        if what == "acq" and raw[0] == "OK":
            return "OK", tokens(raw[3] if len(raw) > 3 else None)
        if what == "ren" and raw[0] == "OK":
            return "OK", raw[1] // 1000
        if raw[0] == "LOST" and what == "rel":
            return "LOST", bool(raw[1]), tokens(raw[2])
        if what in ("rel", "force"):
            return raw[0], tokens(raw[1] if len(raw) > 1 else None)
        return (raw[0],)

    def _serve(self, d: Draft, entry: Any, mail: int | None) -> None:
        """End a BRPOP: its caller has an answer, or the request behind it is carried out."""
        box, _, owner, live, behind = entry
        if owner < 0:
            if live:
                begun, answers, early = d.loops[-1 - owner]
                d.loops[-1 - owner] = begun, (*answers, mail), early
        elif live:
            c = d.client(owner)
            c[SOCK] = READY
            if c[PC] == "ride":
                # Without a second try.
                c[PC], c[SOCK], c[OP], c[RETRIED] = "req", 0, ("acq", 1), 1
                if mail is None:
                    # Redis does nothing before that.
                    reply = self.carry_out(d, c[OP], c[N], c[BOX])
                    c = d.client(owner)
                    c[PC], c[REPLY] = "rep", reply
        elif behind is not None:
            d.under_way(("acq", 1), behind, box)

    @staticmethod
    def _flag(d: Draft, token: int, flag: int) -> None:
        if d.clients[token // 16][N] == token:
            d.client(token // 16)[FLAGS] |= flag

    def waits(self, d: Draft, i: int) -> bool:
        """Return whether nobody may get the lock before that caller, which came earlier.

        Where a caller may be frozen or a request be lost, and of a loop, only if it sleeps, so that
        mail for it is fetched at once.
        """
        c, loop = d.clients[i], self.callers[i].loop
        if self.is_prompt and loop is None:
            op: Any = c[OP] or ("acq", 1)
            is_asking = op[:2] == ("acq", 1) or (op[0] == "look" and op[2][0] in ("busy", "again"))
            return c[PC] in ("slp", "ride") or (c[PC] in ("req", "rep") and is_asking)
        if loop is not None:
            return c[PC] == "slp" and c[SOCK] == IN_LOOP and is_blocked(d.server, -1 - loop)
        return c[PC] in ("slp", "ride") and c[SOCK] == ASLEEP

    def _note_arrival(self, before: Server, d: Draft, token: int, op: Any, reply: Any) -> None:
        s = d.server
        if op[0] != "fset" and (s[NAME], s[HOLDERS]) != (before[NAME], before[HOLDERS]):
            alive = {row[0]: row[1] for row in s[WAITING][0]} if s[WAITING] else {}
            for new in standing(s) - standing(before):
                for earlier in d.arrivals:
                    if new == earlier:
                        break
                    is_waiting = d.clients[earlier // 16][N] == earlier and self.waits(
                        d, earlier // 16
                    )
                    if is_waiting and not stands(s, earlier) and alive.get(earlier, -1) >= 0:
                        names = self.redis.names
                        raise Violation(f"order: {names[new]} overtakes {names[earlier]}")
        if op[0] == "acq" and reply[0] == "BUSY" and op[1] and token not in d.arrivals:
            d.arrivals = (*d.arrivals, token)

    def _check_hold(self, before: Server, s: Server, op: Any, token: int) -> None:
        value = before[NAME] and before[NAME][0]
        if type(value) is tuple and value[0] == "kept":
            if not s[NAME] or type(s[NAME][0]) is not tuple or s[NAME][0][0] != "kept":
                raise Violation("hold: what was kept is taken")
        elif value == token and self._is_release(op) and self.callers[token // 16].hold:
            rest = self.callers[token // 16].hold + before[META][0] // PER
            is_kept = s[NAME] is not None and s[NAME][1] == rest and not stands(s, token)
            if rest > 0 and not is_kept:
                raise Violation("hold: it is let go before its time")

    @staticmethod
    def _is_release(op: Any) -> bool:
        return op[:2] in (("rel", ""), ("rel", "repeat"))

    def _check_mail(self, before: Server, s: Server, given: tuple[int, ...]) -> None:
        """A look gives the lock to nobody at whose mailbox mail lies unread."""
        full = {box for box, *_ in before[BOXES]}
        boxes = {row[0]: row[4] for row in before[WAITING][0]} if before[WAITING] else {}
        for token in given:
            if stands(s, token) and not stands(before, token) and boxes.get(token) in full:
                raise Violation(f"mail: a look gives it to {self.redis.names[token]}, unread mail")

    def _check_room(self, s: Server) -> None:
        """Whoever is first in the queue cannot join those who have the lock."""
        value = s[NAME] and s[NAME][0]
        if not s[WAITERS] or type(value) is not tuple or not s[SHARES]:
            return
        alive = {row[0]: row[1] for row in s[WAITING][0]}
        tokens = [token for token, _ in s[WAITERS][0] if alive[token] >= 0]
        prefix = self.callers[tokens[0] // 16].prefix if tokens else ""
        permits = int(prefix[7:-1]) if prefix.startswith("permit:") else 0
        room = {"readers": 99 * (prefix == "read:"), "permits": permits}
        if len(standing(s)) < room[value[0]]:
            raise Violation(f"room: {self.redis.names[tokens[0]]} waits, and need not")

    # Steps.

    def steps(self, st: State) -> Iterator[Step]:
        """Yield what each step that may come next is called, and the state after it."""
        for i in range(len(self.callers)):
            yield from self.caller_steps(st, i, True)
        for loop in range(self.loops):
            yield from self.loop_steps(st, loop, True)
        for at, (op, token, box, _) in enumerate(st.net):
            if at and st.net[at - 1] == st.net[at]:
                continue
            d = Draft(st)
            d.net = st.net[:at] + st.net[at + 1 :]
            self.carry_out(d, op, token, box)
            yield f"late copy of {self.redis.names[token]}'s {say(op)} arrives", self.tidy(d)
        if d := self.with_fault(st, "back"):
            d.server, d.top, _ = self.redis.shift(d.server, d.top, self.step)
            yield "the server's clock is stepped back", self.tidy(d)
        if d := self.with_fault(st, "forward"):
            self._shift(d, -self.step)
            yield "the server's clock jumps ahead", self.tidy(d)
        if st.server[:BLOCKED] != EMPTY[:BLOCKED] and (d := self.with_fault(st, "flush")):
            d.server = (*EMPTY[:BLOCKED], st.server[BLOCKED])
            yield "FLUSHALL", self.tidy(d)
        ticked = self.tick(st)
        if ticked is not None:
            yield "a tick", ticked

    def with_fault(self, st: State, fault: str) -> Any:
        """Return a draft in which one of these faults is spent, or None if none is left."""
        at = FAULTS.index(fault)
        if not st.budget[at]:
            return None
        d = Draft(st)
        d.budget = (*st.budget[:at], st.budget[at] - 1, *st.budget[at + 1 :])
        return d

    def caller_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        """Yield the steps of a caller; the first is what it does of itself."""
        old, caller, me = st.clients[i], self.callers[i], LETTERS[i]
        pc = old[PC]
        if pc in ("done", "dead"):
            return
        if caller.foreign:
            yield from self._foreign_steps(st, i, faults)
        elif pc == "op":
            if faults:
                yield from self._operator_steps(st, i)
        elif pc == "idle":
            before = st.clients[i - 1][PC] if caller.follows else ""
            if faults and before not in ("idle", "req"):
                d = Draft(st)
                self.ask(d, i, d.client(i))
                yield f"{me}: sends acquire", self.tidy(d)
        else:
            yield from getattr(self, f"_{pc}_steps")(st, i, faults)
            if faults:
                yield from self._fault_steps(st, i)

    def _carried_out(
        self, st: State, i: int, op: Any, keep: Callable[[Draft, list[Any], Any], None]
    ) -> Step:
        """Carry out a request of that caller; ``keep`` sets what the caller becomes."""
        d = Draft(st)
        reply = self.carry_out(d, op, st.clients[i][N], st.clients[i][BOX])
        keep(d, d.client(i), reply)
        said = f"{LETTERS[i]}: {say(op)} carried out: "
        given = reply if op[0] == "look" else reply[-1]
        if op[0] != "look":
            said += reply[0]
        if type(given) is tuple and (given or op[0] == "look"):
            names = " ".join(self.redis.names[token] for token in given)
            said += f"{', ' * (op[0] != 'look')}given to {names or 'nobody'}"
        return said, self.tidy(d)

    def _req_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        old = st.clients[i]
        if old[PIPE] and self.rules["order"]:

            def passed_over(d: Draft, c: list[Any], reply: Any) -> None:
                c[PIPE] = None

            yield self._carried_out(st, i, old[PIPE], passed_over)
            return

        def answered(d: Draft, c: list[Any], reply: Any) -> None:
            c[PC], c[REPLY] = "rep", reply

        yield self._carried_out(st, i, old[OP][:2], answered)

    def _rep_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        d, reply = Draft(st), st.clients[i][REPLY]
        self.deliver(d, i, d.client(i))
        yield (
            f"{LETTERS[i]}: reads the answer {reply[0] if reply else 'nobody'}".replace(
                f"answer {reply[0]}" if reply and type(reply[0]) is int else "\0",
                "answer of a look",
            ),
            self.tidy(d),
        )

    def _slp_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        old = st.clients[i]
        if old[SOCK] == SENT:
            yield self._brpop_arrives(st, i)
        if old[SOCK] == READY or old[TIMER] == 0:
            d = Draft(st)
            c = d.client(i)
            c[SOCK] = 0 if old[SOCK] in (READY, IN_LOOP) else old[SOCK]
            c[TIMER] = 0
            self.ask(d, i, c)
            yield f"{LETTERS[i]}: wakes, sends acquire", self.tidy(d)

    def _ride_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        if st.clients[i][SOCK] == SENT:
            yield self._brpop_arrives(st, i)

    def _brpop_arrives(self, st: State, i: int) -> Step:
        d = Draft(st)
        c = d.client(i)
        server = self.redis.listen(st.server, c[BOX]) if self.rules["listen"] else st.server
        found = self.redis.pop(server, c[BOX])
        if found is not None:
            d.server, c[SOCK] = found[0], READY
            if c[PC] == "ride":
                c[PC], c[SOCK], c[RETRIED] = "req", 0, 1
            return f"{LETTERS[i]}: BRPOP arrives, finds mail", self.tidy(d)
        c[SOCK] = ASLEEP
        is_longer = self.rules["longer"] and c[PC] == "slp"
        # Longer than any sleep.
        lasts = max(c[TIMER] + 1, LISTENS_FOR) if is_longer else max(c[TIMER], 1)
        entry = c[BOX], lasts, i, 1, c[N] if c[PC] == "ride" else None
        d.server = (*server[:BLOCKED], (*server[BLOCKED], entry))
        return f"{LETTERS[i]}: BRPOP arrives, sleeps", self.tidy(d)

    def _held_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        d, old = Draft(st), st.clients[i]
        c = d.client(i)
        if old[REN] and old[REN][0] == "s" and faults:
            d.under_way(("ren",), old[N], 0)
        c[REN] = None
        mode = "repeat" if old[FLAGS] & TAINT and self.rules["taint"] else ""
        self.send(c, ("rel", mode, ("end",)))
        yield f"{LETTERS[i]}: sends release", self.tidy(d)
        if self.callers[i].renew and faults:
            yield from self._renewal_steps(st, i)

    def _renewal_steps(self, st: State, i: int) -> Iterator[Step]:
        old, me = st.clients[i], LETTERS[i]
        if old[REN] is None:
            if 0 < old[BEL] < self.callers[i].lasts:
                d = Draft(st)
                d.client(i)[REN] = "s", 0
                yield f"{me}: sends a renewal", self.tidy(d)
        elif old[REN][0] == "s":

            def answered(d: Draft, c: list[Any], reply: Any) -> None:
                c[REN] = "r", old[REN][1], reply[1] if reply[0] == "OK" else -1

            yield self._carried_out(st, i, ("ren",), answered)
            if d := self.with_fault(st, "loss"):
                d.client(i)[REN] = None
                yield f"{me}: its renewal is lost", self.tidy(d)
        else:
            d, (_, age, left) = Draft(st), old[REN]
            c = d.client(i)
            c[REN] = None
            if old[BEL] and left > 0:
                c[BEL] = max(left - (age if self.rules["send"] else 0), 0)
            elif left < 0:
                c[BEL] = 0
            yield f"{me}: reads the renewal's answer", self.tidy(d)

    def _foreign_steps(self, st: State, i: int, faults: bool) -> Iterator[Step]:
        old = st.clients[i]
        if old[PC] == "idle" and st.server[NAME] is None and faults:

            def taken(d: Draft, c: list[Any], reply: Any) -> None:
                c[PC], c[BEL] = "held", self.callers[i].lasts

            yield self._carried_out(st, i, ("fset",), taken)
        elif old[PC] == "held":
            yield self._carried_out(st, i, ("fdel",), lambda d, c, reply: self.over(i, c))
            if faults and (d := self.with_fault(st, "kill")):
                self._die(d, i)
                yield f"{LETTERS[i]}: (foreign) is killed", self.tidy(d)

    def _operator_steps(self, st: State, i: int) -> Iterator[Step]:
        for token in sorted(standing(st.server)):
            if d := self.with_fault(st, "force"):
                reply = self.carry_out(d, ("force", token), token, 0)
                c = d.client(i)
                c[PC], c[OP], c[REPLY] = "rep", ("force", token), reply
                yield f"(operator) force on {self.redis.names[token]}: {reply[0]}", self.tidy(d)

    # Loops.

    def loop_steps(self, st: State, loop: int, faults: bool) -> Iterator[Step]:
        begun, answers, early = st.loops[loop]
        if begun and not is_blocked(st.server, -1 - loop):
            d = Draft(st)
            box = LOOP_BOX + loop
            found = self.redis.pop(st.server, box)
            if found is None:
                entry = box, LOOP_SLEEP, -1 - loop, 1, 0
                d.server = (*st.server[:BLOCKED], (*st.server[BLOCKED], entry))
            else:
                d.server, answers = found[0], (*answers, found[1])
            d.loops[loop] = begun - 1, answers, early
            how = "sleeps" if found is None else "finds mail"
            yield f"loop: BRPOP arrives, {how}", self.tidy(d)
        if st.loops[loop][1]:
            d = Draft(st)
            said = self.read_mail(d, loop)
            yield f"loop: {said}", self.tidy(d)
        if faults and not all(c[PC] in OVER for c in self._tasks(st, loop)):
            yield from self._loop_faults(st, loop)

    def _tasks(self, st: State, loop: int) -> list[Any]:
        return [
            c for c, caller in zip(st.clients, self.callers, strict=False) if caller.loop == loop
        ]

    def _loop_faults(self, st: State, loop: int) -> Iterator[Step]:
        owner = -1 - loop
        if all(self._is_mortal(st, i) for i in range(self.count) if self.callers[i].loop == loop):
            if d := self.with_fault(st, "kill"):
                self._die_all(d, loop)
                yield "the loop is killed", self.tidy(d)
            asking = [c for c in self._tasks(st, loop) if c[PC] == "req"]
            if asking and (d := self.with_fault(st, "kill")):
                for c in asking:
                    d.under_way((c[PIPE] or c[OP])[:2], c[N], c[BOX])
                self._die_all(d, loop)
                yield "the loop is killed, its requests are under way", self.tidy(d)
            if is_blocked(st.server, owner) and (d := self.with_fault(st, "zombie")):
                self._orphan(d, owner, st.loops[loop][0])
                self._die_all(d, loop)
                yield "the loop is cut off, its connection stays", self.tidy(d)
        for fault in ("cut", "half"):
            if is_blocked(st.server, owner) and (d := self.with_fault(st, fault)):
                begun, _, early = d.loops[loop]
                if fault == "half":
                    self._orphan(d, owner, begun)
                else:
                    d.server = without(d.server, owner)
                for i in range(self.count):
                    if self.callers[i].loop == loop and d.clients[i][SOCK] == IN_LOOP:
                        d.client(i)[SOCK] = READY
                    elif self.rules["cut_early"] and self.takes_early(d, i, loop):
                        early = tuple(sorted({*early, d.clients[i][N]}))
                d.loops[loop] = 0, (), early
                how = ", and stays at the server" * (fault == "half")
                yield f"the loop's mail connection breaks{how}", self.tidy(d)

    def _die_all(self, d: Draft, loop: int) -> None:
        for i in range(self.count):
            if self.callers[i].loop == loop and d.clients[i][PC] != "done":
                self._die(d, i)
        d.server = without(d.server, -1 - loop)
        d.loops[loop] = 0, (), ()

    # Faults.

    def _is_mortal(self, st: State, i: int) -> bool:
        mortal, old = self.callers[i].mortal, st.clients[i]
        return mortal in (True, "asleep" if old[SOCK] in (ASLEEP, IN_LOOP) else old[PC])

    @staticmethod
    def _die(d: Draft, i: int) -> None:
        c = d.clients[i]
        d.clients[i] = blank("dead", c[N], c[BOX], 0)

    @staticmethod
    def _orphan(d: Draft, owner: int, behind: int | None = None) -> None:
        """Have nobody read what its BRPOP is answered."""
        rows = [
            (*e[:3], 0, e[4] if behind is None else behind) if e[2] == owner else e
            for e in d.server[BLOCKED]
        ]
        d.server = (*d.server[:BLOCKED], tuple(rows))

    def _fault_steps(self, st: State, i: int) -> Iterator[Step]:
        old, me = st.clients[i], LETTERS[i]
        pc, op = old[PC], old[OP]
        in_pipe = self.callers[i].loop is not None
        if pc in ("req", "rep"):
            answer = "the answer to its" if pc == "rep" else "its"
            yield from self._unanswered(st, i, "loss", f"{me}: {answer} {say(op)} is lost")
        if pc == "req":
            yield from self._unanswered(st, i, "late", f"{me}: its {say(op)} is late")
        asks = pc in ("req", "rep") and (op[0] == "acq" or (op[0] == "look" and op[2][0] == "busy"))
        if (asks or pc in ("slp", "ride")) and (d := self.with_fault(st, "cancel")):
            yield from self._cancelled(st, i, d, in_pipe)
        if in_pipe:
            return
        if old[SOCK] == ASLEEP:
            yield from self._cut(st, i)
        if not self._is_mortal(st, i):
            return
        if d := self.with_fault(st, "kill"):
            self._die(d, i)
            yield f"{me}: is killed", self.tidy(d)
        if pc == "req" and (d := self.with_fault(st, "kill")):
            d.under_way(op[:2], old[N], old[BOX])
            self._die(d, i)
            yield f"{me}: is killed, its request is under way", self.tidy(d)
        if old[SOCK] == ASLEEP and (d := self.with_fault(st, "zombie")):
            self._orphan(d, i)
            self._die(d, i)
            yield f"{me}: is cut off, its connection stays", self.tidy(d)

    def _unanswered(self, st: State, i: int, fault: str, label: str) -> Iterator[Step]:
        """Have it ask once more on a new connection, or give up."""
        old = st.clients[i]
        for again in (True, False):
            if (again and old[RETRIED]) or not (d := self.with_fault(st, fault)):
                continue
            c = d.client(i)
            if fault == "late":
                d.under_way(old[OP][:2], old[N], old[BOX])
            if again:
                c[PC], c[RETRIED], c[REPLY] = "req", 1, None
                if old[OP][0] == "acq":
                    c[FLAGS] |= TAINT
                yield f"{label}; sends it again", self.tidy(d)
            else:
                self.fail(d, i, c)
                yield f"{label}; gives up", self.tidy(d)

    def _cut(self, st: State, i: int) -> Iterator[Step]:
        """Break the connection on which it sleeps; half: the server does not know it."""
        for fault in ("cut", "half"):
            if not (d := self.with_fault(st, fault)):
                continue
            c = d.client(i)
            if fault == "half":
                self._orphan(d, i)
            if c[PC] == "ride":
                c[FLAGS] |= TAINT
            c[SOCK], c[TIMER] = 0, 0
            self.ask(d, i, c)
            how = ", and stays at the server" * (fault == "half")
            yield f"{LETTERS[i]}: its mail connection breaks{how}; asks again", self.tidy(d)

    def _cancelled(self, st: State, i: int, d: Draft, in_pipe: bool) -> Iterator[Step]:
        old, me = st.clients[i], LETTERS[i]
        c = d.client(i)
        c[SOCK] = 0
        if old[PC] == "req":
            if in_pipe and self.rules["order"]:
                c[PIPE] = old[OP][:2]
            else:
                d.under_way(old[OP][:2], old[N], old[BOX])
        in_doubt = not in_pipe or (c[FLAGS] & TAINT and self.rules["taint"])
        self.send(c, ("rel", "doubt" if in_doubt and self.rules["doubt"] else "cancel", ("end",)))
        if not self.rules["cancel"]:
            self.over(i, c)
        stays = Draft(d.done())
        yield f"{me}: is cancelled", self.tidy(d)
        if old[PC] == "ride" and old[SOCK] == ASLEEP:
            self._orphan(stays, i)
            yield f"{me}: is cancelled, its connection stays", self.tidy(stays)

    # Time.

    def tick(self, st: State, free: bool = False) -> State | None:
        """Return the state a tick later, or None: somebody would have to be frozen for it."""
        d = Draft(st)
        if not free and (
            any(is_due(c) for c in st.clients)
            or any(
                answers or (begun and not is_blocked(st.server, -1 - loop))
                for loop, (begun, answers, _) in enumerate(st.loops)
            )
        ):
            d = self.with_fault(st, "slow")
            if d is None:
                return None
        for i, old in enumerate(st.clients):
            if old[PC] in OVER:
                continue
            c = d.client(i)
            if c[OP] and c[OP][0] == "acq":
                c[AGE] = min(c[AGE] + 1, self.callers[i].lasts)
            c[BEL], c[TIMER] = max(c[BEL] - 1, 0), max(c[TIMER] - 1, 0)
            if c[REM]:
                c[REM] -= 1
            if c[REN]:
                c[REN] = (c[REN][0], min(c[REN][1] + 1, 9), *c[REN][2:])
        d.net = tuple(
            (op, token, box, age + 1) for op, token, box, age in d.net if age + 2 < self.memory
        )
        self._shift(d, -1)
        return self.tidy(d)

    def _shift(self, d: Draft, by: int) -> None:
        d.server, d.top, ended = self.redis.shift(d.server, d.top, by)
        for entry in ended:
            box, _, owner, live, behind = entry
            if owner < 0 and not live and behind:
                again = box, LOOP_SLEEP, owner, 0, behind - 1
                d.server = (*d.server[:BLOCKED], (*d.server[BLOCKED], again))
            else:
                self._serve(d, entry, None)

    # Tidy up, and check.

    def tidy(self, d: Draft) -> State:
        s, clients = d.server, d.clients
        gone = [e for e in s[BLOCKED] if e[3] and e[2] >= 0 and clients[e[2]][SOCK] != ASLEEP]
        if gone:
            # Its connection is closed.
            s = (*s[:BLOCKED], tuple(e for e in s[BLOCKED] if e not in gone))
        waits = [
            c[PC] in ("slp", "ride") or (c[PC] in ("req", "rep") and c[OP][0] in ("acq", "look"))
            for c in clients
        ]
        if s[BOXES] or s[AWAKE]:
            used = {c[BOX] for c, is_waiting in zip(clients, waits, strict=True) if is_waiting}
            used |= {row[4] for row in s[WAITING][0]} if s[WAITING] else set()
            if not used.issuperset(s[AWAKE]) or any(box[0] not in used for box in s[BOXES]):
                awake = tuple(box for box in s[AWAKE] if box in used)
                boxes = tuple(box for box in s[BOXES] if box[0] in used)
                s = (*s[:AWAKE], awake, boxes, *s[BLOCKED:])
        if d.arrivals:
            queued = {row[0] for row in s[WAITING][0]} if s[WAITING] else set()
            d.arrivals = tuple(
                t
                for t in d.arrivals
                if t in queued or (waits[t // 16] and clients[t // 16][N] == t)
            )
        d.server = s
        for token in standing(s):
            c = clients[token // 16]
            is_other = c[N] != token and c[PC] != "dead"
            if not c[FLAGS] & UNSURE and (c[PC] in ("idle", "done") or is_other):
                name = self.redis.names[token]
                raise Violation(f"over: {name} has the lock, an attempt that is over")
        if self.keeps:
            self._check_believers(s, clients)
        return d.done()

    def _check_believers(self, s: Server, clients: list[Any]) -> None:
        believers = [
            i
            for i, c in enumerate(clients)
            if c[BEL]
            and not c[FLAGS] & FORCED_OFF
            and (
                c[PC] == "held"
                or (c[PC] in ("req", "rep") and c[OP][0] == "look" and c[OP][2][0] == "held")
            )
        ]
        if not believers:
            return
        prefix = self.callers[believers[0]].prefix
        is_mixed = any(self.callers[i].prefix != prefix for i in believers)
        room = 99 if prefix == "read:" else int(prefix.split(":")[1]) if prefix else 1
        if is_mixed or len(believers) > room:
            raise Violation(
                "exclusive: two believers, " + " and ".join(LETTERS[i] for i in believers)
            )
        for i in believers:
            if not stands(s, clients[i][N]):
                raise Violation(f"exclusive: {LETTERS[i]} believes, and has nothing at the server")


def standing(s: Server) -> set[int]:
    """Return the tokens that hold the lock at the server."""
    if s[NAME] is None:
        return set()
    if type(s[NAME][0]) is int:
        return {s[NAME][0]}
    return {t for t, end in s[SHARES][0] if end > 0} if s[SHARES] else set()


def stands(s: Server, token: int) -> bool:
    return token in standing(s)


def without(s: Server, owner: int) -> Server:
    """Return the state when the connection of a sleeper is closed."""
    return (*s[:BLOCKED], tuple(e for e in s[BLOCKED] if e[2] != owner or not e[3]))


def is_due(c: Any) -> bool:
    """Return whether the caller, or a message of its, would move without waiting for anything."""
    if c[PC] in ("slp", "ride"):
        return c[SOCK] in (SENT, READY) or (c[PC] == "slp" and c[TIMER] == 0)
    return c[PC] in ("req", "rep")


def say(op: Any) -> str:
    """Return what a request is called."""
    if op[0] == "acq":
        return "acquire" if op[1] else "acquire (no wait)"
    if op[0] == "rel":
        return f"release {op[1]!r}"
    return {"ren": "renewal", "fset": "SET NX", "fdel": "release"}.get(op[0], str(op[0]))
