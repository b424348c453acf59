"""The server: what it keeps for one name, and the scripts that change it.

Time is abstract: a key with a life may expire at any moment that real time allows. Leases of
one length end in the order in which they began, so all that a belief needs remembered is whether
``PX`` was set after its request was sent (``covered``: then it ends before ``N`` expires).
Fences are kept relative to the highest one granted, which is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

# How far off an end of life is; one that began earlier and is not longer ends earlier.
DUE, CLAIM, SHORT, LONG, NEVER = range(5)
ENDS = ("now", "claim", "short lease", "lease", "slice")
FOREIGN = "foreign"


@dataclass(frozen=True)
class Rules:
    """The rules as shipped; a control takes one out."""

    belief_from_send: bool = True
    """The lease counts from before the request was sent, not from its reply."""
    again_sets_px: bool = True
    """An ACQUIRE of the lock's holder starts the lease anew."""
    fresh_token: bool = True
    """Every acquire has a token of its own."""
    gone_refused: bool = True
    """A token released or given up is refused when a late ACQUIRE brings it."""
    busy_is_gone: bool = True
    """A caller that does not wait, and meets BUSY, has its token marked gone."""
    lost_leaves: bool = True
    """A RELEASE that finds the lock lost does what LEAVE does."""
    release_compares: bool = True
    renew_compares: bool = True
    force_compares: bool = True
    released_remembered: int = 99
    """How many released tokens are known as released; RELEASE of one answers OK."""
    baton_names: bool = True
    """Only the waiter named in the baton may claim it."""
    queue_first: bool = True
    """Who finds N absent and a live waiter before it hands the baton to the head."""
    head_leaves: bool = True
    """The head leaves the queue when the baton is made out to it."""
    until_told: bool = True
    """BLPOP ends with the lease that the waiter was told of, not only with the slice."""
    place_kept: bool = True
    """The place in the queue survives the slice."""
    alive_until: bool = True
    """Waiters past their alive-until are skipped and dropped."""
    alive_renewed: bool = True
    """Each ACQUIRE of a waiter renews its alive-until."""
    alive_outlasts: bool = True
    """Alive-until exceeds the BLPOP timeout."""
    stopped_leaves: bool = True
    """A waiter that stops sends LEAVE, or asks a last time without waiting."""
    leave_hands_on: bool = True
    force_hands_on: bool = True
    release_hands_on: bool = True
    ours_by_meta: bool = True
    """The holder is ours only if meta's token stands at N."""
    foreign_listens: bool = True
    """The pause behind a foreign holder listens to the own mailbox."""
    renew_grows_meta: bool = True
    meta_outlives: bool = True
    """Meta outlives the lease by more than the clock may step back."""
    fence_above_last: bool = True
    """Fence = max(clock, last + 1), not the clock alone."""
    look: str = "cut"
    """A baton not fetched goes on, and its waiter: "keep"s its place; keeps it, its alive-until
    "cut" to the claim time; is "skip"ped until it asks again; or is "drop"ped. "": no LOOK."""
    look_own_trip: bool = True
    """LOOK is not sent together with what handed the baton on."""
    look_onward: bool = True
    """LOOK hands on to waiters behind the one it looked at only."""
    look_leaves_mail: bool = True
    """LOOK leaves the element in the mailbox of a waiter that it passes."""
    look_pokes: bool = True
    """LOOK that finds the baton fetched, but not claimed, or a foreign holder, makes the next
    waiter ask."""
    retry_told: bool = True
    """A RELEASE or LEAVE sent again tells again to whom the baton went."""
    shorter_pokes: bool = True
    """Who takes the lock for less than waiters may have been told makes the next one ask."""
    busy_leaves_mail: bool = True
    """BUSY does not empty the own mailbox: a late copy would take what came after it."""
    absent_hands_on: bool = True
    """RELEASE, LEAVE and LOOK that find N absent hand on as well."""


class Client(NamedTuple):
    """A caller. ``pc`` is what it does; "ask" and the like: a request of that name is under way."""

    name: str
    turns: int
    lease: int = LONG
    pc: str = "idle"
    token: str = ""
    waits: bool = True
    # Of the request under way, and of the belief to hold the lock: "", "sent", "covered", "late".
    sent: str = ""
    belief: str = ""
    reply: tuple[str, str] = ("", "")
    head: str = ""
    told: int = DUE
    # It was slower once than the rules allow for, so that others may come before it.
    stalled: bool = False
    # Who made a trip since its own began.
    lag: frozenset[str] = frozenset()

    def owns(self, token: str) -> bool:
        """Whether it is alive and at work with ``token``, so that it will see to it."""
        return self.token == token and self.pc not in ("idle", "look", "dead", "vanished")

    def queues(self) -> bool:
        """Whether it waits, as it should, for its turn."""
        waiting = self.pc in ("block", "blocked", "pause") or (self.pc == "ask" and self.waits)
        return waiting and not self.stalled


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
    order: tuple[str, ...] = ()  # of arrival: the scores of the queue
    lapsed: frozenset[str] = frozenset()  # past alive-until
    doubted: frozenset[str] = frozenset()  # passed by LOOK, not heard of since
    mail: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    released: tuple[str, ...] = ()
    strays: tuple[tuple[str, ...], ...] = ()
    operator: tuple[str, str] = ("", "")
    # Nothing below is known to any script or client.
    forced: frozenset[str] = frozenset()
    let_go: frozenset[str] = frozenset()
    over: tuple[str, ...] = ()  # deliberately passed over for the baton at N
    overtaken: tuple[str, ...] = ()
    wasted: tuple[str, ...] = ()  # dead waiters whose claim was waited for since they last asked
    silent: int = 0  # faults after which a client does not do what others rely on
    wrong: str = ""

    def frozen(self) -> tuple[Any, ...]:
        """The state, without what nothing can ask for any more, so that equal ones are equal."""
        if self.gone:
            known = {client.token for client in self.clients if client.pc != "idle"}
            known.update(stray[1] for stray in self.strays)
            self.gone &= known
            self.let_go &= known
            self.forced &= known
            self.released = tuple(token for token in self.released if token in known)
        if self.order:
            queued = {client.token for client in self.clients if client.queues()}
            queued.update(self.queue)
            queued.add(self.n[6:])
            self.order = tuple(token for token in self.order if token in queued)
            self.lapsed &= queued
            self.doubted &= queued
            self.mail &= queued
        if not self.n.startswith("baton:"):
            self.over = ()
        return fields(self)

    def __str__(self) -> str:
        shown = [f"N={self.n or '-'}", f"queue={','.join(self.queue) or '-'}"]
        shown += [f"mail={','.join(sorted(self.mail))}"] if self.mail else []
        shown += [f"late={';'.join(' '.join(stray) for stray in self.strays)}"] * bool(self.strays)
        for client in self.clients:
            waits = f" until {ENDS[client.told]}" if client.pc == "blocked" else ""
            belief = " believes" if client.belief else ""
            shown.append(f"{client.token or client.name} {client.pc}{waits}{belief}")
        return " | ".join(shown)

    def owner(self, token: str) -> int:
        return ord(token[0]) - ord("a")

    def set(self, number: int, **changes: Any) -> None:
        clients = list(self.clients)
        clients[number] = clients[number]._replace(**changes)
        self.clients = tuple(clients)

    def send(self, number: int, pc: str, **changes: Any) -> None:
        self.set(number, pc=pc, sent="sent", reply=("", ""), told=DUE, **changes)

    def owned(self, token: str) -> bool:
        return self.clients[self.owner(token)].owns(token)


names = tuple(World.__dataclass_fields__)
fields = attrgetter(*names)
