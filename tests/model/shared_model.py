"""The steps of those who share a lock, and what may befall them.

Nothing takes time by itself: what is on the wire comes in any order, and time passes, to the next
moment that something ends, while nobody acts; or, a fault, while those who do are slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.support.seams import SLICE_MS, commands, replies

from .shared_properties import TWO_SILENT, is_to_be_had, overtaken, violation
from .shared_server import FOREIGN, KEYS, Answer, Servers
from .shared_world import READER, REQUESTS, WRITER, Client, Look, Sent, World, fields, names

State = tuple[Any, ...]
Steps = Iterator[tuple[str, World]]
LONG, SHORT = 30_000, 3_000
GROUP_SLICE = 5_000
PAUSE = 700
POLL = 100
LOOK_AGAIN = 1_050
SERVER, FAULTS_LEFT = map(names.index, ("server", "faults"))
SILENT = ("crash", "vanish", "stall")
NOTHING: dict[str, Any] = {
    "belief": 0,
    "age": 0,
    "reply": (),
    "told": 0,
    "stalled": False,
    "doubt": False,
    "repeats": False,
}

FAULTS = frozenset(
    {
        "again",  # no reply in time: the request is sent again, the first copy may come late
        "cancel",  # cancellation, interrupt or error at an await
        "clock",  # the server's clock steps back
        "crash",  # kill -9: the server learns of it
        "exit",  # a process ends in good order
        "fail-fast",  # a caller that does not wait at all
        "force",
        "foreign",  # a client that knows nothing but SET NX PX
        "impatient",  # the waiter's own time is over
        "stall",  # time passes although something is under way
        "vanish",  # power or network gone: the server keeps its BLPOP
    }
)


def command_set_of(kind: str) -> commands.CommandSet:
    if kind == WRITER:
        return commands.SETNX
    return commands.READERS if kind == READER else commands.permits(int(kind))


def prefix_of(kind: str) -> str:
    return "" if kind == WRITER else "read:" if kind == READER else f"permit:{kind}:"


@dataclass(frozen=True)
class Bounds:
    """Within which to search. ``kinds``: of the callers, "w" or "r" or a limit of permits."""

    kinds: str
    faults: int = 0
    befalls: frozenset[str] = frozenset()
    turns: int = 1
    # How much more often the first has its turn.
    more: int = 0
    leases: tuple[int, ...] = (LONG,) * 4
    # How often a while passes in which nothing ends.
    pauses: int = 0
    pause: int = PAUSE
    renews: bool = False
    # Who leaves it to another looks whether that one has taken it.
    looks: bool = True


class Model:
    """The scripts as ``changed``, within ``bounds``. ``only``: the one violation to look for."""

    def __init__(self, bounds: Bounds, servers: Servers, only: str = "") -> None:
        self.bounds = bounds
        self.servers = servers
        self.only = only

    def start(self) -> State:
        bounds = self.bounds
        clients = (
            Client("abcd"[number], kind, bounds.turns + (bounds.more if number == 0 else 0))
            for number, kind in enumerate(bounds.kinds)
        )
        return World(tuple(clients), bounds.faults, bounds.pauses).frozen(self.servers)

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        for step, world in self._steps(state):
            yield step, world.frozen(self.servers)

    def wrong(self, state: State) -> str:
        """The violation that ``state`` is, or ""."""
        w = World(*state)
        wrong = violation(w, self.servers.read(w.server)) or self.asleep(w)
        accepted = wrong == TWO_SILENT and not self.only
        return wrong if wrong.startswith(self.only) and not accepted else ""

    def asleep(self, w: World) -> str:
        """A waiter sleeps on although it would get in if it asked, and nobody is under way."""
        if w.operator or any(c.owed is not None or c.is_acting() for c in w.clients):
            return ""
        server = self.servers.read(w.server)
        # That a waiter has died who cannot join a group is seen when those behind it ask again.
        patience = GROUP_SLICE if any(map(server.is_lapsed, server.queue)) else POLL
        for client in w.clients:
            if client.pc == "blocked" and not client.stalled and client.told > patience:
                answer = self._run(w, self._sent(client))
                if answer.reply[0] == "OK" or is_to_be_had(server, client):
                    return TWO_SILENT if w.silent > 1 else "asleep beside a lock that can be had"
        return ""

    def show(self, state: State) -> str:
        return World(*state).told(self.servers)

    def _steps(self, state: State) -> Steps:
        now = World(*state)
        for number, client in enumerate(now.clients):
            if client.pc not in ("dead", "vanished"):
                for step, world in self._caller(state, number, client):
                    yield f"{client.name} {step}", world
                if client.owed is not None and client.owed.due == 0:
                    for step, world in self._watchdog(state, number, client, client.owed):
                        yield f"{client.name}'s watchdog: {step}", world
        for stray in dict.fromkeys(now.strays):
            w = World(*state)
            strays = list(w.strays)
            strays.remove(stray)
            w.strays = tuple(strays)
            self._apply(w, stray)
            yield f"late copy: {' '.join(stray)}", w
        yield from self._time(state, now)
        yield from self._others(state, now)

    def _caller(self, state: State, number: int, client: Client) -> Steps:
        w = World(*state)
        if client.pc == "idle":
            yield from self._begin(state, number, client)
            return
        if client.pc == "block":
            if client.token in self.servers.read(w.server).mail:
                w.server = self.servers.take_mail(w.server, client.token)
                w.send(number, "ask")
            else:
                w.set(number, pc="blocked")
            yield "BLPOP", w
        elif client.pc == "blocked" and not client.told:
            w.send(number, "ask")
            yield "has slept", w
        elif client.pc == "hold":
            yield from self._holder(state, number, client)
        elif client.reply:
            self._receive(w, number, client)
            yield f"gets {client.reply[0]}", w
        elif client.pc in REQUESTS:
            yield from self._delivered(state, number, client)
        yield from self._faults(state, number, client)

    def _holder(self, state: State, number: int, client: Client) -> Steps:
        w = World(*state)
        # After the end of its lease it does not rely on what is remembered of a loss.
        w.send(number, "release", belief=0, doubt=client.doubt or not client.belief)
        yield "leaves the body", w
        if client.belief and self.bounds.renews and client.belief < self.bounds.leases[number]:
            w = World(*state)
            w.send(number, "renew")
            yield "renews", w

    def _begin(self, state: State, number: int, client: Client) -> Steps:
        before = World(*state).clients[number - 1] if number else None
        kinds, leases = self.bounds.kinds, self.bounds.leases
        # Clients are alike, so the first turns may be taken to begin in their order.
        alike = (
            before is not None
            and kinds[number - 1] == kinds[number]
            and leases[number - 1] == leases[number]
            and not (self.bounds.more and number == 1)
        )
        if not client.turns or (alike and before is not None and not before.token):
            return
        for waits, w in ((True, World(*state)), (False, self._fault(state, "fail-fast"))):
            if w is not None:
                self._ask_afresh(w, number, waits=waits, turns=client.turns - 1)
                asking = w.clients[number]
                yield from self._delivered(fields(w), number, asking)
                yield from self._faults(fields(w), number, asking)

    def _ask_afresh(self, w: World, number: int, **changes: Any) -> None:
        client, kind = w.clients[number], self.bounds.kinds[number]
        serial = int(client.token.split(":")[-1][1:] or 0) + 1
        token = f"{prefix_of(kind)}{client.name}{serial}"
        changes |= {"stalled": False, "doubt": False, "repeats": False}
        w.send(number, "ask", kind=kind, token=token, **changes)

    def _delivered(self, state: State, number: int, client: Client) -> Steps:
        """The request reaches the server, and its reply the client."""
        w = World(*state)
        let_go = w.let_go
        reply = self._apply(w, self._sent(client))
        told = f"{client.pc.upper()}{'' if client.waits else ' once'}: {reply[0]}"
        lost = self._fault(fields(w), "again")
        is_known = client.token in (*let_go, *self.servers.read(state[SERVER]).holders)
        if client.pc in ("release", "renew") and reply[0] == "LOST" and is_known:
            w.wrong = "false loss: what is held, or was let go in good order, is called lost"
        if client.pc == "release" and reply[0] == "OK" and not is_known:
            w.wrong = "false success: what was lost is called released"
        w.set(number, reply=reply)
        if reply[0] != "OK" or client.pc != "ask":
            # Who reads such a reply sooner or later changes nothing for anybody else.
            self._receive(w, number, w.clients[number])
        yield told, w
        if lost is not None:
            lost.send(number, client.pc, age=client.age)
            _doubt(lost, number, client)
            yield f"{told}, lost, sends again", lost

    def _receive(self, w: World, number: int, client: Client) -> None:
        if client.pc == "ask":
            self._receive_acquire(w, number, client)
        elif client.pc == "renew":
            is_kept = client.reply[0] == "OK" and client.belief
            belief = max(client.belief, self.bounds.leases[number] - client.age)
            w.set(number, pc="hold", belief=belief if is_kept else 0, reply=(), age=0)
        else:
            self._owe(w, number, client)
            w.set(number, pc="idle", waits=True, **NOTHING)

    def _receive_acquire(self, w: World, number: int, client: Client) -> None:
        answer = replies.read_acquire(client.reply)
        if isinstance(answer, replies.Granted):
            if client.kind == WRITER:
                w.set(number, owed=None)
            self._owe(w, number, client, answer.head)
            belief = self.bounds.leases[number] - client.age
            if belief > 0:
                w.set(number, pc="hold", belief=belief, stalled=False, reply=(), age=0)
            else:
                w.send(number, "leave")
            return
        if isinstance(answer, replies.Busy):
            left = None if answer.remaining is None else int(answer.remaining * 1000)
            if not answer.foreign and not answer.handed_on:
                w.set(number, owed=None)
            told = POLL if answer.foreign else GROUP_SLICE if answer.is_group else SLICE_MS
            told = told if left is None else min(told, left)
            if client.waits:
                w.set(number, pc="block", told=max(told, 1), reply=(), age=0)
                return
        if not client.waits:
            w.set(number, pc="idle", waits=True, **NOTHING)
        else:
            self._ask_afresh(w, number)

    def _owe(self, w: World, number: int, client: Client, head: str | None = None) -> None:
        if client.pc in ("release", "leave"):
            head = replies.read_handed_on(client.reply)
        if head and self.bounds.looks:
            w.set(number, owed=Look(0, head, client.kind))

    def _watchdog(self, state: State, number: int, client: Client, owed: Look) -> Steps:
        w = World(*state)
        sent = ("look", owed.head, owed.kind)
        reply = self._apply(w, sent)
        head = replies.read_handed_on(reply)
        lost = self._fault(fields(w), "again")
        told = f"LOOK at {owed.head}: {head or 'done'}"
        due = 0 if head and replies.read_passed_on(reply) else LOOK_AGAIN
        w.set(number, owed=Look(due, head, owed.kind) if head else None)
        yield told, w
        if lost is not None:
            yield f"{told}, lost, to be sent again", lost
        if late := self._fault(state, "again"):
            late.strays = tuple(sorted((*late.strays, sent)))
            yield f"LOOK at {owed.head} late, to be sent again", late
        if client.pc == "idle" and (last := self._fault(state, "exit")):
            self._apply(last, ("look", owed.head, owed.kind, "last"))
            last.set(number, pc="dead", turns=0, owed=None)
            yield f"last LOOK at {owed.head}, as the process ends", last

    def _faults(self, state: State, number: int, client: Client) -> Steps:
        if client.pc in REQUESTS and not client.reply and (w := self._fault(state, "again")):
            self._leave_copy(w, client)
            _doubt(w, number, client)
            yield f"{client.pc.upper()} late, sends again", w
        waiting = client.pc in ("ask", "block", "blocked")
        if waiting and (w := self._fault(state, "cancel")):
            self._leave_copy(w, client)
            under_way = client.pc == "ask" and not client.reply
            w.send(number, "leave", doubt=client.doubt or under_way)
            yield "is cancelled", w
        if client.pc in ("block", "blocked") and (w := self._fault(state, "impatient")):
            w.send(number, "ask", waits=False)
            yield "waits no longer", w
        if w := self._fault(state, "crash"):
            self._leave_copy(w, client)
            # What was held without owing anything ends with its lease.
            w.silent -= client.pc == "hold" and client.owed is None
            w.set(number, pc="dead", turns=0, waits=True, owed=None, **NOTHING)
            yield "is killed", w
        if client.pc == "blocked" and (w := self._fault(state, "vanish")):
            w.set(number, pc="vanished", turns=0, owed=None, **{**NOTHING, "told": 1})
            yield "loses power", w

    def _time(self, state: State, now: World) -> Steps:
        if any(client.is_acting() for client in now.clients) or now.operator:
            w = self._fault(state, "stall")
            slow = " while those who act are slow"
        else:
            w, slow = World(*state), ""
        ends = list(self.servers.read(now.server).deadlines)
        for client in now.clients:
            if client.pc not in ("dead", "vanished"):
                ends += [client.told, client.belief, client.owed.due if client.owed else 0]
        first = min((end for end in ends if end > 0), default=0)
        if not first:
            return
        if w is not None:
            self._pass(w, first)
            yield f"{first} ms pass{slow}", w
        if not slow and now.pauses and first > self.bounds.pause:
            w = World(*state)
            w.pauses -= 1
            self._pass(w, self.bounds.pause)
            yield f"a while passes: {self.bounds.pause} ms", w

    def _pass(self, w: World, ms: int) -> None:
        w.server = self.servers.pass_time(w.server, ms)
        for number, client in enumerate(w.clients):
            if client.pc in ("dead", "vanished"):
                continue
            changes: dict[str, Any] = {
                "told": max(client.told - ms, 0),
                "belief": max(client.belief - ms, 0),
            }
            if client.pc in REQUESTS:
                changes["age"] = min(client.age + ms, self.bounds.leases[number])
            if client.owed is not None:
                changes["owed"] = client.owed._replace(due=max(client.owed.due - ms, 0))
            if client.is_acting():
                changes["stalled"] = True
            w.set(number, **changes)

    def _others(self, state: State, now: World) -> Steps:
        server = self.servers.read(now.server)
        if server.value and not now.operator and (w := self._fault(state, "force")):
            if server.is_group and server.holders:
                w.operator = ("force", "", READER, min(server.holders))
            elif server.value != FOREIGN:
                w.operator = ("force", "", WRITER, server.value)
            if w.operator:
                yield f"the operator sees {', '.join(w.operator[3:])}", w
        if now.operator:
            yield from self._operator(state, now.operator)
        if not server.value and (w := self._fault(state, "foreign")):
            w.server = self.servers.put(w.server, FOREIGN, None)
            yield "a foreign client takes N", w
        if server.value == FOREIGN:
            w = World(*state)
            w.server = self.servers.put(w.server, "", None)
            yield "the foreign client deletes N", w
        if not now.is_behind and (w := self._fault(state, "clock")):
            w.is_behind = True
            yield "the clock steps back", w

    def _operator(self, state: State, sent: Sent) -> Steps:
        w = World(*state)
        w.operator = ()
        reply = self._apply(w, sent)
        if reply[0] == "OK":
            w.forced |= {*sent[3:]}
            head = replies.read_handed_on(reply)
            if head and sent[0] == "force":
                w.operator = ("look", head, sent[2])
        yield f"the operator: {' '.join(sent)}: {reply[0]}", w

    def _sent(self, client: Client) -> Sent:
        doubt = "doubt" if client.doubt else ""
        if client.pc in ("ask", "blocked"):
            return ("ask", client.token, client.kind, "waits" if client.waits else "once", doubt)
        if client.pc == "release":
            return ("release", client.token, client.kind, doubt or "copy" * client.repeats)
        return (client.pc, client.token, client.kind, doubt)

    def _apply(self, w: World, sent: Sent) -> tuple[Any, ...]:
        """``sent`` reaches the server."""
        before = self.servers.read(w.server)
        answer = self._run(w, sent)
        w.server, w.wrong = answer.server, w.wrong or answer.wrong
        after = self.servers.read(w.server)
        token, reply = sent[1], answer.reply
        if sent[0] == "ask" and reply[0] == "OK" and token not in before.holders:
            w.wrong = w.wrong or overtaken(w, after, token)
            w.order = tuple(other for other in w.order if other != token)
            w.over -= {token}
        if sent[0] == "ask" and reply[0] == "BUSY" and sent[3] == "waits":
            w.order = w.order if token in w.order else (*w.order, token)
            # A late copy of one who waits no longer: it is waited for as a dead one is.
            w.silent += w.clients[w.number_of(token)].pc not in ("ask", "block", "blocked")
        if sent[0] == "look":
            served = {*after.left_to, *after.holders}
            w.over |= {other for other in before.left_to if other not in served}
        if sent[0] == "release" and reply[0] == "OK":
            w.let_go |= {token}
        self._wake(w)
        return reply

    def _wake(self, w: World) -> None:
        """A BLPOP is answered when its mailbox is pushed to."""
        for number, client in enumerate(w.clients):
            if client.token and client.token in self.servers.read(w.server).mail:
                if client.pc == "blocked":
                    w.server = self.servers.take_mail(w.server, client.token)
                    w.send(number, "ask")
                elif client.pc == "vanished" and client.told:
                    w.server = self.servers.take_mail(w.server, client.token)
                    w.set(number, told=0)

    def _run(self, w: World, sent: Sent) -> Answer:
        return self.servers.run(w.server, self._request(sent), is_behind=w.is_behind)

    def _request(self, sent: Sent) -> commands.Request:
        name, token, kind, *more = sent
        command_set = command_set_of(kind)
        if name == "ask":
            lease = self.bounds.leases["abcd".index(token.split(":")[-1][0])]
            how, doubt = more
            wait_ms = SLICE_MS if how == "waits" else 0
            in_doubt = bool(doubt)
            return _first(
                command_set.acquire(
                    KEYS, None, token, lease, f"of {token}", wait_ms, in_doubt=in_doubt
                )
            )
        if name == "look":
            return command_set.check_handoff(KEYS, token, is_last=bool(more))
        if name == "renew":
            lease = self.bounds.leases["abcd".index(token.split(":")[-1][0])]
            return command_set.renew(KEYS, None, token, lease)
        if name == "force":
            commands_of = commands.READERS if kind == READER else commands.SETNX
            return commands_of.force_release(KEYS, None, more[0].encode(), None, "operator", "")
        if name == "leave":
            return command_set.cancel(KEYS, None, token, in_doubt=more == ["doubt"])
        request = command_set.release(KEYS, None, token, in_doubt=more == ["doubt"])
        return request.repeat if more == ["copy"] else _first(request)

    def _leave_copy(self, w: World, client: Client) -> None:
        """What was sent and not yet applied may still arrive."""
        if client.pc in REQUESTS and not client.reply:
            w.strays = tuple(sorted((*w.strays, self._sent(client))))

    def _fault(self, state: State, kind: str) -> World | None:
        if kind not in self.bounds.befalls or state[FAULTS_LEFT] == 0:
            return None
        w = World(*state)
        w.faults -= 1
        w.silent += kind in SILENT
        return w


def _first(request: commands.Request) -> commands.Request:
    return request if request.once is None else replace(request, args=request.once)


def _doubt(w: World, number: int, client: Client) -> None:
    """What was sent is sent again: a copy may be under way."""
    if client.pc == "release":
        w.set(number, repeats=True)
    elif client.pc == "ask":
        w.set(number, doubt=True)
