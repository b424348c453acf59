"""Network and time, the operator and the foreign client."""

from __future__ import annotations

from .bounds import Bounds, State, Steps
from .callers import apply
from .server import AHEAD, CLAIM, DUE, FOREIGN, LONG, Client, World


def network(bounds: Bounds, state: State, now: World) -> Steps:
    for stray in dict.fromkeys(now.strays):
        w = World(*state)
        strays = list(w.strays)
        strays.remove(stray)
        w.strays = tuple(strays)
        apply(bounds, w, stray)
        yield f"late copy: {' '.join(stray)}", w


def time(bounds: Bounds, state: State, now: World) -> Steps:
    if now.n.startswith("baton:"):
        yield from claim_ends(bounds, state, now.n.removeprefix("baton:"))
    elif now.kept[0]:
        w = World(*state)
        w.kept = ("", DUE)
        expire(w, w.life)
        yield f"the time of {now.n} is over", w
    elif now.n and now.n != FOREIGN:
        yield from lease_ends(bounds, state, now, now.n)
    for token in now.queue:
        if token not in now.lapsed:
            yield from alive_ends(bounds, state, now, token)
    if now.clock == 0:
        w = World(*state)
        w.clock = 1
        yield "the clock catches up", w
    held = now.n and not now.n.startswith("baton:") and now.n != FOREIGN
    is_tried = any(one.pc == "release" for one in now.clients)
    if (
        now.meta
        and not held
        and not (is_tried and bounds.rules.meta_outlasts_retries)
        and "clock" in bounds.kinds
        and (now.clock or not bounds.rules.meta_outlives)
    ):
        w = World(*state)
        w.meta = ""
        yield "meta expires", w


def claim_ends(bounds: Bounds, state: State, token: str) -> Steps:
    w: World | None = World(*state)
    assert w is not None
    number = w.owner(token)
    client = w.clients[number]
    # Asleep beside the baton: the element was taken out of its mailbox.
    deaf = client.pc in ("pause", "blocked") and not is_about_to_wake(w, client)
    if client.owns(token) and not deaf:
        w = bounds.fault(state, "stall")
        if w is not None:
            w.set(number, stalled=True)
    if w is not None:
        if any(other.queues() and other.token != token for other in w.clients) and (
            client.pc in ("dead", "vanished")
        ):
            w.wasted = (*w.wasted, token)
        w.mail -= {token}
        expire(w, CLAIM)
        yield f"the claim of {token} ends", w


def is_about_to_wake(w: World, client: Client) -> bool:
    """Whether its loop is about to fetch mail for it, which takes less than a claim."""
    return client.in_loop and client.token in w.mail


def lease_ends(bounds: Bounds, state: State, now: World, token: str) -> Steps:
    number = now.owner(token)
    client = now.clients[number]
    mine = client.owns(token)
    if mine and client.belief == "covered":
        return  # its belief ends first
    kind = {"ask": "expire", AHEAD: "stall"}.get(client.pc) if mine else None
    w = bounds.fault(state, kind) if kind else World(*state)
    if w is not None:
        if mine and client.sent == "covered":
            w.set(number, sent="late", stalled=client.stalled or client.pc == AHEAD)
        if mine and client.named == "covered":
            w.set(number, named="late")
        expire(w, w.life)
        yield f"the lease of {token} ends", w


def alive_ends(bounds: Bounds, state: State, now: World, token: str) -> Steps:
    number = now.owner(token)
    client = now.clients[number]
    too_soon = token in now.doubted or client.noted < client.told
    cut_short = too_soon and client.pc == "blocked" and not is_about_to_wake(now, client)
    slept = client.pc in ("blocked", "pause") and not bounds.rules.alive_outlasts
    asks_again = client.pc in ("ask", "block", "blocked") and not bounds.rules.alive_renewed
    free = cut_short or slept or asks_again or not client.owns(token)
    w = World(*state) if free else bounds.fault(state, "stall")
    if w is not None:
        if not free:
            w.set(number, stalled=True)
        w.lapsed |= {token}
        yield f"alive-until of {token} is past", w


def others(bounds: Bounds, state: State, now: World) -> Steps:
    step, token = now.operator
    held = now.n and not now.n.startswith("baton:") and now.n != FOREIGN
    if held and not step and (w := bounds.fault(state, "force")):
        w.operator = ("force", now.n)
        yield f"operator sees {now.n}", w
    if step:
        w = World(*state)
        if token == w.n:
            w.kept = ("", DUE)
        (_, head), _ = apply(bounds, w, now.operator)
        w.operator = ("look", head) if head and bounds.rules.look else ("", "")
        yield f"operator: {step.upper()} {token}", w
    if not now.n and (w := bounds.fault(state, "foreign")):
        w.n, w.life = FOREIGN, LONG
        yield "a foreign client takes N", w
    if now.n == FOREIGN:
        w = World(*state)
        w.n = ""
        yield "the foreign client deletes N", w
    if now.clock and (now.meta or (now.granted and not bounds.rules.meta_outlives)):
        w_or_none = bounds.fault(state, "clock")
        if w_or_none is not None:
            w_or_none.clock = 0
            yield "the clock steps back", w_or_none


def expire(w: World, life: int) -> None:
    """``N`` expires, and so the waits of those who were told of a life that ends no later."""
    w.n = ""
    for number, client in enumerate(w.clients):
        if 0 < client.told <= life or 0 < client.noted <= life:
            told = DUE if client.told <= life else client.told
            w.set(number, told=told, noted=DUE if client.noted <= life else client.noted)
