"""The scripts, each rule a function of its own. ``w`` is changed in place."""

from __future__ import annotations

from .rules import Rules
from .server import AHEAD, CLAIM, DUE, FOREIGN, KEPT, LONG, NEVER, SHORT, World
from .waiters import (
    delete,
    first_waiter,
    forget,
    give_baton,
    hand_on,
    is_live,
    join,
    leave_queue,
    poke_all,
    poke_first,
    queue_by_rank,
)

Reply = tuple[str, str]


def acquire(w: World, rules: Rules, token: str, *, waits: bool, doubt: bool) -> tuple[Reply, int]:
    """The reply, and with BUSY the end of life that it tells of. ``doubt``: a copy may come."""
    if rules.gone_refused and token in w.gone | w.lost:
        return ("GONE", ""), DUE
    if w.n == token:
        if rules.again_sets_px:
            w.life = max(w.life, w.clients[w.owner(token)].lease)
            start_lease(w, token)
        return ("OK", ""), DUE
    if w.n == "" and rules.queue_first and first_waiter(w, rules) not in ("", token):
        hand_on(w, rules)
    if rules.lapsed_is_gone and waits and w.meta == token and not w.left_meta:
        w.gone |= {token}
        return ("GONE", ""), DUE
    if may_claim(w, rules, token):
        take(w, token, rules)
        return ("OK", ""), DUE
    if not rules.busy_leaves_mail:
        w.mail -= {token}
    asks_again = told(w, rules)
    if waits:
        join(w, rules, token)
        note(w, rules, token, asks_again)
    else:
        quit_queue(w, rules, token)
        if rules.busy_is_gone and doubt:
            w.gone |= {token}
    whose = FOREIGN if w.n == FOREIGN else "baton" if w.n.startswith("baton:") else ""
    return ("BUSY", whose), asks_again


def acquire_ahead(w: World, rules: Rules, number: int) -> None:
    """What the client sent ahead is carried out, as soon as its BLPOP has ended."""
    client = w.clients[number]
    token = client.token
    is_left = w.n == "baton:" + token
    following = w.queue[0] if w.queue else ""
    if following:
        later = w.clients[w.owner(following)].noted > client.lease and rules.shorter_pokes
        is_left = is_left and following not in w.lapsed and not later
    if is_left and token not in w.gone:
        take(w, token, rules)
        w.life = CLAIM if rules.claim_short else client.lease
        if client.pc == "vanished" and w.life > CLAIM:
            w.wrong = "late: a dead waiter has the lock for a whole lease"
        if client.pc == AHEAD:
            w.set(number, reply=("OK", ""))
    elif client.pc == AHEAD:
        w.send(number, "ask")


def release(w: World, rules: Rules, token: str, doubt: str, names: str = "") -> Reply:
    """``doubt``: "" where no copy of a request of the token can be under way; "copy" where this may
    be one itself; "doubt" where one of its ACQUIRE may be. ``names``: a waiter of the same loop.
    """
    if w.n == token and w.clients[w.owner(token)].keeps:
        return keep(w, rules, token)
    if w.n == token or (w.n and not rules.release_compares):
        w.let_go |= {token}
        w.left_meta |= w.meta == token and rules.let_go_noted
        if doubt:
            w.gone |= {token}
            w.released = (*w.released, token)[-rules.released_remembered :]
            if rules.released_remembered == 0:
                w.released = ()
        first = first_waiter(w, rules)
        if names and (first == names or (names in w.queue and not rules.successor_first)):
            take(w, names, rules)
            return "OK", f"to {names}"
        return "OK", hand_on(w, rules) if rules.release_hands_on else delete(w)
    if doubt == "copy" and rules.copy_told and has_let_go(w, token):
        w.released = (*w.released, token)
    answer = "OK" if token in w.released else "LOST"
    return answer, leave(w, rules, token, "doubt")[1] if rules.lost_leaves else head_at(w, rules)


def has_let_go(w: World, token: str) -> bool:
    """Whether one that is not at ``N`` has let the lock go, as far as is known: it held it once."""
    if token in w.gone or token in w.lost:
        return False
    return w.left_meta if w.meta == token else bool(w.meta)


def keep(w: World, rules: Rules, token: str) -> Reply:
    """Let the lock go, and have its name taken: for longer than the lease, or less long."""
    w.gone |= {token}
    w.let_go |= {token}
    w.released = (*w.released, token)
    life = LONG if w.clients[w.owner(token)].lease == SHORT else SHORT
    if rules.kept_pokes == "all":
        poke_all(w, rules, life)
    elif rules.kept_pokes:
        poke_first(w, rules, life)
    w.n = KEPT + token if rules.kept_renamed else token
    w.meta, w.life, w.kept, w.left_meta = w.n, life, (w.n, life), True
    return "OK", ""


def leave(w: World, rules: Rules, token: str, doubt: str) -> Reply:
    if doubt == "doubt":
        w.gone |= {token}
    quit_queue(w, rules, token)
    w.mail -= {token}
    if w.n in (token, "baton:" + token):
        return "OK", hand_on(w, rules) if rules.leave_hands_on else delete(w)
    return "OK", hand_on(w, rules) if rules.absent_hands_on and not w.n else head_at(w, rules)


def head_at(w: World, rules: Rules) -> str:
    """Whom the baton names already: for a caller that has not heard of it yet."""
    return w.n[6:] if rules.retry_told and w.n.startswith("baton:") else ""


def force(w: World, rules: Rules, seen: str) -> Reply:
    if w.n != seen and (rules.force_compares or not w.n):
        return "CHANGED", ""
    w.gone |= {seen}
    w.forced |= {seen}
    return "OK", hand_on(w, rules) if rules.force_hands_on else delete(w)


def renew(w: World, rules: Rules, token: str) -> Reply:
    """Have at least a lease left."""
    lease = w.clients[w.owner(token)].lease if rules.cut_stays else LONG
    if w.n == token:
        w.life = max(w.life, lease)
        start_lease(w, token)
        if not rules.renew_grows_meta:
            w.meta = ""  # it ends in the course of the longer lease
    elif rules.renew_compares or not w.n:
        return "LOST", ""
    elif w.n != FOREIGN and lease < w.life:
        cut_life(w, w.n.removeprefix("baton:"), lease)
    return "OK", ""


def cut(w: World, rules: Rules, token: str, lease: int) -> Reply:
    """Have no more than ``lease`` left."""
    if w.n != token:
        return "LOST", ""
    if rules.cut_pokes:
        poke_first(w, rules, lease)
    start_lease(w, token)
    cut_life(w, token, lease)
    return "OK", ""


def cut_life(w: World, holder: str, lease: int) -> None:
    """Cut the lease of ``holder``, who may count on more."""
    number = w.owner(holder)
    client = w.clients[number]
    w.life = lease
    if client.lease > lease:
        w.set(number, belief="sent" if client.belief else "")


def look(w: World, rules: Rules, head: str) -> Reply:
    """Hand the baton on if ``head`` has not fetched it; the reply tells whom to look after."""
    if w.n == "":
        return "OK", hand_on(w, rules) if rules.absent_hands_on else ""
    if w.n == FOREIGN and rules.foreign_pokes:
        poke_first(w, rules, -1)
    if not w.n.startswith("baton:"):
        is_claimed = rules.claim_looked_at and w.n != FOREIGN and w.life == CLAIM
        return "OK", w.n if is_claimed else ""
    if w.n != "baton:" + head:
        return "OK", w.n[6:] if rules.look_follows else ""
    if head not in w.mail:
        return "OK", head if rules.look_again else ""
    passed = pass_onward(w, rules, head)
    return "OK", "" if passed and not rules.look_follows else passed or head


def pass_onward(w: World, rules: Rules, head: str) -> str:
    """Give the baton to the next behind ``head``, who keeps its place; "" if there is none."""
    others = [token for token in w.queue if token != head and is_live(w, rules, token)]
    if rules.look_onward:
        behind = w.ranks[w.ranks.index(head) :] if head in w.ranks else ()
        others = [token for token in others if token in behind]
    if not others:
        return ""
    if rules.look == "drop":
        forget(w, head)
    else:
        queue_by_rank(w, head)
        if rules.look != "keep":
            w.doubted |= {head}
    if not rules.look_leaves_mail:
        w.mail -= {head}
    w.over = (*w.over, head)
    give_baton(w, rules, others[0])
    return others[0]


def last_look(w: World, rules: Rules, head: str) -> Reply:
    """Of a process that ends: the next waiter is told to ask again when the claim is over."""
    look(w, rules, head)
    if w.n.startswith("baton:") and rules.last_look_pokes:
        poke_first(w, rules, w.life)
    return "OK", ""


def may_claim(w: World, rules: Rules, token: str) -> bool:
    if w.n == "" or rules.baton_names:
        return w.n in ("", "baton:" + token)
    return w.n.startswith("baton:")


def quit_queue(w: World, rules: Rules, token: str) -> None:
    queued = token in w.queue
    leave_queue(w, token)
    forget(w, token)
    if queued and w.n and rules.leaver_pokes:
        poke_first(w, rules, w.life)


def note(w: World, rules: Rules, token: str, asks_again: int) -> None:
    """Note when the waiter asks again, at the latest."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token == token:
        earlier = client.noted if rules.noted_grows else DUE
        w.set(number, noted=max(earlier, asks_again))


def told(w: World, rules: Rules) -> int:
    """When the waiter asks again, at the latest."""
    ours = w.n.startswith("baton:") or w.meta == w.n or not rules.ours_by_meta
    if not ours:
        return DUE  # a pause, short whatever else happens
    if not rules.until_told:
        return NEVER
    return LONG if w.n == FOREIGN else w.life


def take(w: World, token: str, rules: Rules) -> None:
    _count_overtaken(w, token)
    if w.meta != token:
        fence = max(w.clock, 1) if w.meta and rules.fence_above_last else w.clock
        if fence <= 0:
            w.wrong = "fence: not above the last one"
        if rules.lost_noted and w.meta and not w.left_meta:
            w.lost |= {w.meta}
        w.left_meta = False
    w.meta, w.granted = token, True
    w.n, w.life = token, w.clients[w.owner(token)].lease
    w.over = ()
    leave_queue(w, token)
    forget(w, token)
    w.order = tuple(other for other in w.order if other != token)
    start_lease(w, token)
    if rules.shorter_pokes:
        poke_first(w, rules, w.life)


def start_lease(w: World, token: str) -> None:
    """``PX``: what was counted from before now ends before ``N`` expires."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token == token:
        if client.sent == "sent":
            w.set(number, sent="covered")
        if client.belief == "sent":
            w.set(number, belief="covered")
        if client.named == "sent":
            w.set(number, named="covered")


def _count_overtaken(w: World, token: str) -> None:
    before = w.order[: w.order.index(token)] if token in w.order else w.order
    for other in before:
        client = w.clients[w.owner(other)]
        if client.token == other and client.queues():
            if other not in w.over:
                w.wrong = "overtaken"
            w.overtaken = tuple(sorted((*w.overtaken, other)))
