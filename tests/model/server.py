"""The server: what it keeps for one name.

Time is abstract: a key with a life may expire at any moment that real time allows. Leases of
one length end in the order in which they began, so all that a belief needs remembered is whether
``PX`` was set after its request was sent (``covered``: then it ends before ``N`` expires).
Fences are kept relative to the highest one granted, which is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

# How far off an end of life is; one that began earlier and is not longer ends earlier.
DUE, CLAIM, SHORT, LONG, NEVER = range(5)
ENDS = ("now", "claim", "short lease", "lease", "slice")
FOREIGN = "foreign"
KEPT = "kept:"  # precedes the token of who has let the lock go
NOBODY = "-"  # any head but the one that the baton is made out to
AT_REST = ("idle", "dead", "vanished")
WAITING = ("block", "blocked", "pause")
AHEAD = "ahead"  # woken: what was sent ahead has been carried out, or is about to be


class Client(NamedTuple):
    """A caller. ``pc`` is what it does; "ask" and the like: a request of that name is under way."""

    name: str
    turns: int
    lease: int = LONG  # that it asks for and counts on
    pc: str = "idle"
    token: str = ""
    waits: bool = True
    # Of the request under way, and of the belief to hold the lock: "", "sent", "covered", "late".
    sent: str = ""
    belief: str = ""
    reply: tuple[str, str] = ("", "")
    told: int = DUE
    # What the server has noted of its token: when it asks again.
    noted: int = DUE
    # The heads that its watchdog has yet to look after.
    owed: frozenset[str] = frozenset()
    # It sends ahead, with its BLPOP, what takes up the lock.
    ahead: bool = False
    # It lets the lock go so that nobody has it before a time is over.
    keeps: bool = False
    # It was slower once than the rules allow for, so that others may come before it.
    stalled: bool = False
    # A copy of one of its requests may be under way.
    doubt: bool = False
    # The release that is under way may have been carried out.
    repeats: bool = False
    # A task, whose event loop fetches its mail together with that of others.
    in_loop: bool = False
    # Its loop was cut off from the mailbox since the request was sent.
    cut: bool = False
    # The waiter of its loop that its release names, and what ``sent`` is, of that release, for one
    # that is named.
    names: str = ""
    named: str = ""

    def owns(self, token: str) -> bool:
        """Whether it is alive and at work with ``token``, so that it will see to it."""
        return self.token == token and self.pc not in AT_REST

    def waiting(self) -> bool:
        return self.pc in (*WAITING, AHEAD) or (self.pc == "ask" and self.waits)

    def queues(self) -> bool:
        """Whether it waits, as it should, for its turn."""
        return not self.stalled and self.waiting()


@dataclass(slots=True)
class World:
    """Everything: the keys, the clients, the requests still on the wire, and what is checked."""

    clients: tuple[Client, ...]
    faults: int
    n: str = ""
    life: int = DUE
    meta: str = ""
    granted: bool = False
    clock: int = 1  # 0: stepped back behind the last fence
    queue: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()  # all that are known, those not queued included
    lapsed: frozenset[str] = frozenset()  # past alive-until
    doubted: frozenset[str] = frozenset()  # passed by LOOK, not heard of since
    mail: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()  # whose mail their loop has, as they were not asleep
    gone: frozenset[str] = frozenset()
    released: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    left_meta: bool = False  # the token in meta has let go
    strays: tuple[tuple[str, ...], ...] = ()
    operator: tuple[str, str] = ("", "")
    # Nothing below is known to any script or client.
    order: tuple[str, ...] = ()  # of arrival
    forced: frozenset[str] = frozenset()
    kept: tuple[str, int] = ("", DUE)  # what stands at N, and its life, when it was let go but kept
    let_go: frozenset[str] = frozenset()
    over: tuple[str, ...] = ()  # deliberately passed over for the baton at N
    overtaken: tuple[str, ...] = ()
    wasted: tuple[str, ...] = ()  # dead waiters whose claim was waited for since they last asked
    silent: int = 0  # faults after which a client does not do what others rely on
    relied: bool = False  # on one: who owed a LOOK fell silent, or one was poked for all
    wrong: str = ""
    # Clients woken by the script that is being run: what they sent ahead follows.
    woken: list[int] = field(default_factory=list)

    def frozen(self, *, follows: bool = True) -> tuple[Any, ...]:
        """The state, without what nothing can ask for any more, so that equal ones are equal.

        ``follows``: LOOK at any other head first finds out whom the baton is made out to.
        """
        if self.granted or self.gone:
            known = {client.token for client in self.clients if client.pc != "idle"}
            known.update(stray[1] for stray in self.strays)
            self.gone &= known
            self.lost &= known
            # Of a token that nobody asks about, it makes no difference.
            self.left_meta |= self.meta not in known
            self.let_go &= known
            self.forced &= known
            self.released = tuple(token for token in self.released if token in known)
        at = self.n[6:] if self.n.startswith("baton:") else ""
        heads = {*self.queue, at}
        heads.update([client.token for client in self.clients if client.waiting()])
        if self.order:
            self._forget(heads)
        for number, client in enumerate(self.clients):
            if client.owed:
                known = {at} if follows else heads.union(stray[1] for stray in self.strays)
                if not client.owed <= known:
                    self.set(number, owed=client.owed & known or frozenset({NOBODY}))
            if client.noted and client.token not in heads:
                self.set(number, noted=DUE)
        if not at:
            self.over = ()
        return fields(self)

    def _forget(self, heads: set[str]) -> None:
        self.ranks = tuple([token for token in self.ranks if token in heads])
        self.order = tuple([token for token in self.order if token in heads])
        self.lapsed &= heads
        self.doubted &= heads
        self.mail &= heads
        self.early &= heads

    def __str__(self) -> str:
        shown = [f"N={self.n or '-'}", f"queue={','.join(self.queue) or '-'}"]
        shown += [f"mail={','.join(sorted(self.mail))}"] if self.mail else []
        shown += [f"early={','.join(sorted(self.early))}"] if self.early else []
        shown += [f"late={';'.join(' '.join(stray) for stray in self.strays)}"] * bool(self.strays)
        for client in self.clients:
            waits = f" until {ENDS[client.told]}" if client.pc == "blocked" else ""
            noted = f" (noted: {ENDS[client.noted]})" if client.noted != client.told else ""
            belief = " believes" if client.belief else ""
            owes = f" owes a look at {','.join(sorted(client.owed))}" if client.owed else ""
            shown.append(f"{client.token or client.name} {client.pc}{waits}{noted}{belief}{owes}")
        return " | ".join(shown)

    def owner(self, token: str) -> int:
        return ord(token[0]) - ord("a")

    def set(self, number: int, **changes: Any) -> None:
        changed = self.clients[number]._replace(**changes)
        self.clients = (*self.clients[:number], changed, *self.clients[number + 1 :])

    def send(self, number: int, pc: str, **changes: Any) -> None:
        self.set(number, pc=pc, sent="sent", reply=("", ""), told=DUE, cut=False, **changes)


names = tuple(name for name in World.__dataclass_fields__ if name != "woken")
fields = attrgetter(*names)
