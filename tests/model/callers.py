"""What a client may do next, and what may befall it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import scripts
from .bounds import Bounds, State, Steps
from .server import AHEAD, CLAIM, DUE, FOREIGN, LONG, SHORT, Client, World, fields

REQUESTS = ("ask", "release", "leave", "renew", "cut")
NOTHING: dict[str, Any] = {
    "names": "",
    "named": "",
    "belief": "",
    "sent": "",
    "reply": ("", ""),
    "told": DUE,
    "stalled": False,
    "doubt": False,
    "repeats": False,
    "cut": False,
}
RESTING: dict[str, Any] = {**NOTHING, "waits": True}
DEAD: dict[str, Any] = {**NOTHING, "owed": frozenset()}


def caller(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    w = World(*state)
    pc = client.pc
    if pc == "idle":
        yield from begin(bounds, state, number, client)
        return
    if pc == "block":
        listen(bounds, w, number, client)
        yield "BLPOP", w
    elif pc in ("blocked", "pause"):
        w.send(number, "ask")
        yield "slice ends", w
    elif pc == AHEAD:
        yield from take_up(bounds, state, number, client)
    elif pc == "hold":
        is_over = bounds.rules.lease_over_doubts and not client.belief
        w.send(number, "release", belief="", doubt=client.doubt or is_over)
        yield "leaves the body", w
        yield from name_successor(bounds, state, number, doubt=client.doubt or is_over)
        if client.belief:
            w = World(*state)
            w.send(number, "renew")
            yield "renews", w
        if client.belief and client.lease == LONG and bounds.cuts:
            w = World(*state)
            w.send(number, "cut", **({"lease": SHORT} if bounds.rules.cut_from_send else {}))
            yield "makes its lease shorter", w
    elif client.reply[0]:
        receive(bounds, w, number, client)
        yield f"gets {' '.join(client.reply)}", w
    else:
        yield from delivered(bounds, state, number, client)
    if client.in_loop:
        yield from in_loop(bounds, state, number, client)
    yield from faults(bounds, state, number, client)


def name_successor(bounds: Bounds, state: State, number: int, *, doubt: bool) -> Steps:
    """It leaves the body, and names one that waits in its loop."""
    for other, waiter in enumerate(World(*state).clients):
        if waiter.pc == "blocked" and bounds.one_loop:
            w = World(*state)
            w.send(number, "release", belief="", doubt=doubt, names=waiter.token)
            w.set(other, named="sent")
            yield f"leaves the body, names {waiter.token}", w


def in_loop(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    """Its loop fetches its mail, or is cut off from the mailbox."""
    w = World(*state)
    if client.token in w.mail:
        w.mail -= {client.token}
        if client.pc == "blocked":
            w.send(number, "ask")
        elif bounds.rules.early_kept:
            w.early |= {client.token}
        yield "its loop fetches its mail", w
    if client.waiting() and (w_or_none := bounds.fault(state, "cut")):
        w = w_or_none
        w.mail -= {client.token}
        if client.pc != "blocked":
            w.set(number, cut=bounds.rules.cut_noted)
        elif bounds.rules.cut_wakes:
            w.send(number, "ask")
        yield "its loop is cut off", w


def listen(bounds: Bounds, w: World, number: int, client: Client) -> None:
    """BLPOP, which is answered at once if there is mail."""
    if client.in_loop:
        if client.cut or client.token in w.early:
            w.early -= {client.token}
            w.send(number, "ask")
        else:
            w.set(number, pc="blocked")
        return
    if client.token not in w.mail:
        w.set(number, pc="blocked", sent="sent" if client.ahead else "")
        return
    w.mail -= {client.token}
    if client.ahead:
        w.set(number, pc=AHEAD, sent="sent")
        scripts.acquire_ahead(w, bounds.rules, number)
    else:
        w.send(number, "ask")


def take_up(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    """It reads that what it sent ahead took the lock: for the claim time, from when it was sent."""
    w = World(*state)
    w.send(number, "ask")
    yield "took it by what was sent too long ago, asks", w
    if client.sent == "late" and bounds.rules.claim_fresh:
        return
    w = World(*state)
    belief = client.sent if bounds.rules.claim_believed_short else "sent"
    see(bounds, w, number, client, is_held=True)
    w.set(number, pc="hold", belief=belief, stalled=False, reply=("", ""), sent="")
    w.strays = tuple(sorted((*w.strays, ("renew", client.token))))
    yield "took it by what was sent ahead", w


def begin(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    clients = World(*state).clients
    # Clients are alike, so the first turns may be taken to begin in their order.
    alike = number > bool(bounds.more) and clients[number - 1].lease == client.lease
    if not client.turns or (alike and not clients[number - 1].token):
        return
    for waits, w in ((True, World(*state)), (False, bounds.fault(state, "fail-fast"))):
        if w is not None:
            ask_afresh(bounds, w, number, waits=waits, turns=client.turns - 1)
            asking = w.clients[number]
            yield from delivered(bounds, fields(w), number, asking)
            yield from faults(bounds, fields(w), number, asking)


def ask_afresh(bounds: Bounds, w: World, number: int, **changes: Any) -> None:
    client = w.clients[number]
    serial = int(client.token[1:] or 0)
    if bounds.rules.fresh_token or not serial:
        serial += 1
    changes |= {"token": f"{client.name}{serial}", "lease": bounds.leases[number]}
    w.send(number, "ask", stalled=False, noted=DUE, doubt=False, repeats=False, **changes)


def delivered(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    """The request reaches the server, and its reply the client."""
    w = World(*state)
    deliver(bounds, w, number, client)
    reply = w.clients[number].reply
    told = f"{client.pc.upper()}{'' if client.waits else ' once'}: {' '.join(reply)}"
    lost = bounds.fault(fields(w), "again")
    if reply[0] != "OK" or client.pc != "ask":
        # Who reads such a reply sooner or later changes nothing for anybody else.
        receive(bounds, w, number, w.clients[number])
    yield told, w
    if lost is not None:
        send_again(lost, number, client)
        yield f"{told}, lost, sends again", lost


def deliver(bounds: Bounds, w: World, number: int, client: Client) -> None:
    """The request of ``client`` reaches the server."""
    reply, told = apply(bounds, w, request(client))
    w.set(number, reply=reply, told=told)
    if client.pc == "release" and reply[0] == "LOST" and client.token in w.let_go:
        w.wrong = "false loss: a release that was applied is called lost"
    if client.pc == "release" and reply[0] == "OK" and client.token not in w.let_go:
        w.wrong = "false success: a lock that was lost is called released"


def apply(bounds: Bounds, w: World, request: tuple[str, ...]) -> tuple[scripts.Reply, int]:
    answer = run(bounds, w, request)
    while w.woken:
        scripts.acquire_ahead(w, bounds.rules, w.woken.pop(0))
    return answer


def run(bounds: Bounds, w: World, request: tuple[str, ...]) -> tuple[scripts.Reply, int]:
    name, token, *more = request
    if name == "ask":
        how, doubt = more
        return scripts.acquire(w, bounds.rules, token, waits=how == "waits", doubt=bool(doubt))
    if name == "cut":
        return scripts.cut(w, bounds.rules, token, SHORT), DUE
    script: dict[str, Callable[..., scripts.Reply]] = {
        "release": scripts.release,
        "leave": scripts.leave,
        "force": scripts.force,
        "renew": scripts.renew,
        "look": scripts.look,
        "last look": scripts.last_look,
    }
    answer, head = script[name](w, bounds.rules, token, *more)
    if head and not bounds.rules.look_later and "look" not in name:
        head = scripts.look(w, bounds.rules, head)[1]
    return (answer, head), DUE


def receive(bounds: Bounds, w: World, number: int, client: Client) -> None:
    answer, head = client.reply
    clean = {"reply": ("", ""), "sent": ""}
    if client.pc == "ask":
        receive_acquire(bounds, w, number, client)
    elif client.pc in ("renew", "cut"):
        belief = client.belief
        if answer == "OK" and belief and client.sent != "late":
            belief = client.sent if bounds.rules.belief_from_send else "sent"
        lease = client.lease
        if answer == "OK" and (client.pc == "cut" or not bounds.rules.cut_stays):
            lease = SHORT if client.pc == "cut" else LONG
        belief = belief if answer == "OK" else ""
        w.set(number, pc="hold", belief=belief, lease=lease, **clean)
    else:
        w.set(number, pc="idle", **RESTING)
        if head.startswith("to "):
            hand_over(bounds, w, head[3:])
        elif head and bounds.rules.look:
            owe(w, number, head)
        if client.names and client.repeats and bounds.rules.successor_told:
            wake(w, client.names)


def hand_over(bounds: Bounds, w: World, token: str) -> None:
    """Tell a waiter of the same loop that the release has granted it the lock."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token != token or not client.waiting():
        return
    if client.pc != "blocked":
        # It asks, or has to: see WAKE.
        wake(w, token)
    elif client.named == "late" and bounds.rules.successor_from_send:
        w.send(number, "ask")
    else:
        belief = client.named if bounds.rules.successor_from_send else "sent"
        see(bounds, w, number, client, is_held=True)
        w.set(number, pc="hold", belief=belief, stalled=False, reply=("", ""), sent="", named="")


def wake(w: World, token: str) -> None:
    """Have it ask: now if it sleeps, else as soon as it is about to."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token == token and client.pc == "blocked":
        w.send(number, "ask")
    elif client.token == token and client.waiting():
        w.early |= {token}


def owe(w: World, number: int, head: str, instead_of: str = "") -> None:
    owed = w.clients[number].owed - {instead_of}
    w.set(number, owed=owed | {head} if head else owed)


def receive_acquire(bounds: Bounds, w: World, number: int, client: Client) -> None:
    answer, whose = client.reply
    if not bounds.rules.doubt_stays:
        w.set(number, doubt=False)
    clean = {"reply": ("", ""), "sent": ""}
    is_held = answer == "OK" or (answer == "BUSY" and not whose)
    see(bounds, w, number, client, is_held=is_held)
    if answer == "OK" and client.sent == "late" and bounds.rules.belief_from_send:
        w.send(number, "leave")
    elif answer == "OK":
        belief = client.sent if bounds.rules.belief_from_send else "sent"
        w.set(number, pc="hold", belief=belief, stalled=False, **clean)
    elif not client.waits:
        w.set(number, pc="idle", **RESTING)
    elif answer == "GONE":
        ask_afresh(bounds, w, number)
    else:
        deaf = client.reply[1] == FOREIGN and not bounds.rules.foreign_listens
        w.set(number, pc="pause" if deaf else "block", **clean)


def see(bounds: Bounds, w: World, number: int, client: Client, *, is_held: bool) -> None:
    """Whether the lock is held by one of ours, for good: then nobody need look who has it."""
    for_the_claim = client.reply[0] == "BUSY" and client.told == CLAIM
    if for_the_claim and bounds.rules.claim_seen:
        # Who waits asks again when that is over.
        is_held = is_held and client.waits
    if bounds.rules.seen == "anyone" or (bounds.rules.seen and is_held):
        w.set(number, owed=frozenset())


def faults(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    asking = client.pc in REQUESTS
    if asking and not client.reply[0] and (w := bounds.fault(state, "again")):
        leave_copy(w, client)
        send_again(w, number, client)
        yield f"{client.pc.upper()} late, sends again", w
    waiting = client.pc in ("ask", "block", "blocked", "pause", AHEAD)
    if waiting and (w := bounds.fault(state, "cancel")):
        leave_copy(w, client)
        if bounds.rules.stopped_leaves:
            under_way = client.pc == "ask" and not client.reply[0]
            w.send(number, "leave", doubt=client.doubt or under_way)
        else:
            w.set(number, pc="idle", **RESTING)
            w.silent += 1
        yield "is cancelled", w
    if client.pc in ("block", "blocked") and (w := bounds.fault(state, "impatient")):
        if bounds.rules.stopped_leaves:
            w.send(number, "ask", waits=False)
        else:
            w.set(number, pc="idle", **RESTING)
        yield "waits no longer", w
    if w := bounds.fault(state, "crash"):
        leave_copy(w, client)
        w.relied = w.relied or was_to_look(client)
        w.set(number, pc="dead", turns=0, waits=True, **DEAD)
        if client.names and w.clients[w.owner(client.names)].token == client.names:
            # It is of the same process.
            other = w.owner(client.names)
            leave_copy(w, w.clients[other])
            w.relied = w.relied or was_to_look(w.clients[other])
            w.silent += 1
            w.set(other, pc="dead", turns=0, waits=True, **DEAD)
        yield "is killed", w
    if client.pc == "blocked" and (w := bounds.fault(state, "vanish")):
        w.relied = w.relied or was_to_look(client)
        # Its BLPOP stays, and what was sent ahead behind it.
        w.set(number, pc="vanished", **{**DEAD, "sent": client.sent})
        yield "loses power", w
    if client.belief and (w := bounds.fault(state, "expire")):
        w.set(number, belief="")
        yield "believes no longer", w


def was_to_look(client: Client) -> bool:
    """Whether it was to look after a head, or was about to be told to."""
    asks_in_its_stead = client.ahead and client.waiting() and client.noted <= CLAIM
    return bool(client.owed) or client.pc in ("release", "leave") or asks_in_its_stead


def request(client: Client) -> tuple[str, ...]:
    doubt = "doubt" if client.doubt else ""
    if client.pc == "ask":
        return ("ask", client.token, "waits" if client.waits else "once", doubt)
    if client.pc == "release":
        doubt = doubt or ("copy" if client.repeats else "")
        return ("release", client.token, doubt, "" if client.repeats else client.names)
    if client.pc == "leave":
        return ("leave", client.token, doubt)
    return (client.pc, client.token)


def send_again(w: World, number: int, client: Client) -> None:
    """Send once more what may have been carried out, or may be yet: that says so."""
    if client.pc == "release":
        w.send(number, "release", repeats=True)
    else:
        w.send(number, client.pc, doubt=client.doubt or client.pc == "ask")


def leave_copy(w: World, client: Client) -> None:
    """What was sent and not yet applied may still arrive."""
    if client.pc in REQUESTS and not client.reply[0]:
        w.strays = tuple(sorted((*w.strays, request(client))))
