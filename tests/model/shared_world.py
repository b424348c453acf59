"""The server, the callers and what is on the wire, where several hold a lock together."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from .shared_server import BATON, Servers

# What a caller does: "ask" and the like, a request of that name is under way.
REQUESTS = ("ask", "release", "leave", "renew")
AT_REST = ("idle", "dead", "vanished")
WRITER, READER = "w", "r"  # any other kind is the limit of permits

Sent = tuple[str, ...]  # a request: its name, the token, the kind that it is sent as, and more


class Look(NamedTuple):
    """That a watchdog is to look after ``head``, as of ``kind``, in so many ms."""

    due: int
    head: str
    kind: str


class Client(NamedTuple):
    """A caller. Times are what is left, in ms; ``age`` is how long ago its request was sent."""

    name: str
    kind: str
    turns: int
    pc: str = "idle"
    token: str = ""
    waits: bool = True
    age: int = 0
    belief: int = 0
    reply: tuple[Any, ...] = ()
    told: int = 0
    owed: Look | None = None
    # It was slower once than the rules allow for, so that others may come before it.
    stalled: bool = False
    # A copy of one of its requests may be under way; the release under way may be one itself.
    doubt: bool = False
    repeats: bool = False

    def owns(self, token: str) -> bool:
        """Whether it is alive and at work with ``token``, so that it will see to it."""
        return self.token == token and self.pc not in AT_REST

    def queues(self) -> bool:
        """Whether it waits, as it should, for its turn."""
        waiting = self.pc in ("block", "blocked") or (self.pc == "ask" and self.waits)
        return waiting and not self.stalled and not self.reply

    def is_acting(self) -> bool:
        """Whether it, or its watchdog, does something without delay."""
        if self.owed is not None and self.owed.due == 0:
            return True
        return self.pc in REQUESTS or self.pc == "block" or (self.pc == "blocked" and not self.told)


@dataclass(slots=True)
class World:
    clients: tuple[Client, ...]
    faults: int
    pauses: int
    server: int = 0
    is_behind: bool = False  # the server's clock was stepped back, behind the last fence
    strays: tuple[Sent, ...] = ()
    operator: Sent = ()
    # Nothing below is known to any script or client.
    order: tuple[str, ...] = ()  # of arrival
    over: frozenset[str] = frozenset()  # passed by LOOK, and not granted since
    forced: frozenset[str] = frozenset()
    let_go: frozenset[str] = frozenset()
    silent: int = 0  # faults after which a client does not do what others rely on
    wrong: str = ""

    def frozen(self, servers: Servers) -> tuple[Any, ...]:
        """The state, without what nothing can ask for any more, so that equal ones are equal."""
        at_work = {client.token for client in self.clients if client.pc not in AT_REST}
        late = {stray[1] for stray in self.strays}
        known = frozenset(at_work | late | set(self.operator[3:]))
        asking = {client.token for client in self.clients if client.pc == "ask"}
        asking.update(stray[1] for stray in self.strays if stray[0] == "ask")
        self.server = servers.forget(self.server, known, frozenset(asking))
        self.order = tuple([token for token in self.order if token in known])
        self.over &= at_work
        held = {*known, *servers.read(self.server).holders}
        self.forced &= held
        self.let_go &= known
        return fields(self)

    def number_of(self, token: str) -> int:
        """Whose token it is."""
        name = token.removeprefix(BATON).split(":")[-1][0]
        return ord(name) - ord("a")

    def set(self, number: int, **changes: Any) -> None:
        changed = self.clients[number]._replace(**changes)
        self.clients = (*self.clients[:number], changed, *self.clients[number + 1 :])

    def send(self, number: int, pc: str, **changes: Any) -> None:
        self.set(number, pc=pc, reply=(), told=0, **{"age": 0, **changes})

    def told(self, servers: Servers) -> str:
        """In one line."""
        shown = [str(servers.read(self.server))]
        shown += [f"late={';'.join(' '.join(stray) for stray in self.strays)}"] * bool(self.strays)
        for client in self.clients:
            told = f" {client.told} ms" if client.pc == "blocked" else ""
            believes = f" believes {client.belief} ms" if client.belief else ""
            owes = f" owes a look at {client.owed.head}" if client.owed else ""
            shown.append(f"{client.token or client.name} {client.pc}{told}{believes}{owes}")
        return " | ".join(shown)


names = tuple(World.__dataclass_fields__)
fields = attrgetter(*names)
