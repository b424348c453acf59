"""The watchdog of each process, which looks after the heads that it handed the baton to."""

from __future__ import annotations

from .bounds import Bounds, State, Steps
from .callers import REQUESTS, apply, owe
from .server import AHEAD, Client, World, fields


def watchdog(bounds: Bounds, state: State, number: int, client: Client) -> Steps:
    """It looks after a head that the client handed the baton to, whatever the client does."""
    for head in sorted(client.owed):
        if bounds.trips_end and busy_on_the_wire(state, head):
            continue
        w = World(*state)
        _, next_head = apply(bounds, w, ("look", head))[0]
        told = f"LOOK at {head}: {next_head or 'done'}"
        lost = bounds.fault(fields(w), "again")
        owe(w, number, next_head, instead_of=head)
        yield told, w
        if lost is not None:
            yield f"{told}, lost, to be sent again", lost
        if late := bounds.fault(state, "again"):
            late.strays = tuple(sorted((*late.strays, ("look", head))))
            yield f"LOOK at {head} late, to be sent again", late
        if client.pc == "idle" and (last := bounds.fault(state, "exit")):
            apply(bounds, last, ("last look", head))
            last.set(number, pc="dead", turns=0, owed=frozenset())
            yield f"last LOOK at {head}, as the process ends", last


def busy_on_the_wire(state: State, token: str) -> bool:
    return any(client.token == token and under_way(client) for client in World(*state).clients)


def under_way(client: Client) -> bool:
    return client.pc in ("block", AHEAD) or (client.pc in REQUESTS and not client.reply[0])
