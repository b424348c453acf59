"""What must hold in every state."""

from __future__ import annotations

from typing import Any

from .server import DUE, FOREIGN, World

# Who was to see to the lock for all did not, and the one to be seen to was killed or late.
TWO_SILENT = "asleep until a slice ends, as two clients fell silent"


def violation(state: tuple[Any, ...]) -> str:
    """The kind of violation that ``state`` is, or ""."""
    w = World(*state)
    return (
        w.wrong
        or not_kept(w)
        or two_believers(w)
        or ghost_holder(w)
        or nameless_holder(w)
        or asleep(w)
        or endless_look(w)
    )


def two_believers(w: World) -> str:
    # An operator's force-release breaks exclusion knowingly until the old holder has learned it.
    believers = [c.name for c in w.clients if c.belief and c.token not in w.forced]
    if w.n == FOREIGN:
        believers.append(FOREIGN)
    return f"two believers: {' and '.join(believers)}" if len(believers) > 1 else ""


def not_kept(w: World) -> str:
    """A lock that was let go, but is to be kept, is nobody's until its time is over."""
    if not w.kept[0]:
        return ""
    if (w.n, w.life) != w.kept:
        return "not kept: it was freed early, or is kept for longer"
    believers = [c.name for c in w.clients if c.belief and c.token not in w.forced]
    return f"not kept: {believers[0]} believes to hold it" if believers else ""


def ghost_holder(w: World) -> str:
    """N is left to a caller that is alive and will not see to it."""
    if w.n in ("", FOREIGN) or w.kept[0]:
        return ""
    token = w.n.removeprefix("baton:")
    client = w.clients[w.owner(token)]
    if client.pc in ("dead", "vanished") or client.owns(token):
        return ""
    return "ghost holder" if token == w.n else "gone: the baton is made out to one who has left"


def nameless_holder(w: World) -> str:
    """Fence and record of a held lock are known."""
    held = w.n and w.n != FOREIGN and not w.n.startswith("baton:")
    return "no fence: meta does not know the holder" if held and w.meta != w.n else ""


def asleep(w: World) -> str:
    """The lock is free, and a waiter sleeps until its slice ends, as nobody is under way."""
    if w.n or w.operator[0]:
        return ""
    sleeps = False
    for client in w.clients:
        if client.owed:
            return ""
        if client.in_loop and client.token in w.mail and client.pc not in ("dead", "vanished"):
            return ""
        if client.pc == "blocked" and client.told != DUE:
            sleeps = sleeps or not client.stalled
        elif client.pc not in ("idle", "hold", "renew", "cut", "dead", "vanished"):
            return ""
    if not sleeps:
        return ""
    return TWO_SILENT if w.silent > 1 and w.relied else "asleep beside a free lock"


def endless_look(w: World) -> str:
    return "endless: LOOK goes round and round" if len(set(w.over)) < len(w.over) else ""


def wasted_claims(w: World) -> int:
    """How many claim times at most were waited for one dead waiter."""
    return max((w.wasted.count(token) for token in w.wasted), default=0)
