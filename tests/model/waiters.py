"""What the scripts share: the queue, the baton, the mailboxes. ``w`` is changed in place."""

from __future__ import annotations

from .rules import Rules
from .server import AHEAD, CLAIM, World


def hand_on(w: World, rules: Rules) -> str:
    """Give the baton to the first live waiter, or delete ``N``."""
    head = first_waiter(w, rules)
    if not head:
        return delete(w)
    w.over = w.queue[: w.queue.index(head)]
    give_baton(w, rules, head)
    return head


def delete(w: World) -> str:
    w.n = ""
    return ""


def first_waiter(w: World, rules: Rules) -> str:
    """The first live waiter, or "". Those dead before it are dropped."""
    for token in w.queue:
        if is_live(w, rules, token):
            return token
        if rules.alive_until and token in w.lapsed:
            leave_queue(w, token)
            if rules.rank_returns != "always":
                forget(w, token)
    return ""


def is_live(w: World, rules: Rules, token: str) -> bool:
    skipped = rules.look == "skip" and token in w.doubted
    return not skipped and not (rules.alive_until and token in w.lapsed)


def give_baton(w: World, rules: Rules, head: str) -> None:
    if rules.head_leaves:
        leave_queue(w, head)
    w.n, w.life = "baton:" + head, CLAIM
    if head in w.lapsed:
        w.wrong = "late: the baton is made out to a waiter known to be gone"
    w.mail -= {head}
    push(w, head)


def push(w: World, token: str) -> None:
    """Put an element into the mailbox; a BLPOP on it is answered at once."""
    number = w.owner(token)
    client = w.clients[number]
    if (
        client.token == token
        and client.ahead
        and client.pc in ("blocked", "vanished")
        and client.sent
    ):
        w.woken.append(number)
        w.set(number, **({"pc": AHEAD} if client.pc == "blocked" else {"sent": ""}))
    elif client.token == token and client.pc == "blocked" and not client.in_loop:
        w.send(number, "ask")
    elif not (client.token == token and client.pc == "vanished" and not client.ahead):
        w.mail |= {token}


def poke_first(w: World, rules: Rules, life: int) -> None:
    """Have the first waiter ask again, if it would sleep beyond what is left of ``N``."""
    token = first_waiter(w, rules)
    if token and w.clients[w.owner(token)].noted > life:
        w.relied = True
        push(w, token)


def poke_all(w: World, rules: Rules, life: int) -> None:
    """Have all waiters ask again that would sleep beyond what is left of ``N``."""
    for token in w.queue:
        if is_live(w, rules, token) and w.clients[w.owner(token)].noted > life:
            push(w, token)


def join(w: World, rules: Rules, token: str) -> None:
    """Queue once, and be alive for longer than a slice."""
    if not rules.place_kept:
        leave_queue(w, token)
        forget(w, token)
    joined = token in w.queue
    if not joined and not rules.rank_returns:
        forget(w, token)
    w.wasted = tuple(other for other in w.wasted if other != token)
    if token not in w.ranks:
        w.ranks = (*w.ranks, token)
    queue_by_rank(w, token)
    if token not in w.order:
        w.order = (*w.order, token)
    if rules.alive_renewed or not joined:
        w.lapsed -= {token}
        w.doubted -= {token}


def queue_by_rank(w: World, token: str) -> None:
    if token not in w.queue:
        w.queue = tuple(sorted((*w.queue, token), key=w.ranks.index))


def leave_queue(w: World, token: str) -> None:
    w.queue = tuple(other for other in w.queue if other != token)


def forget(w: World, token: str) -> None:
    w.ranks = tuple(other for other in w.ranks if other != token)
