"""The scripts, each rule a function of its own. ``w`` is changed in place."""

from __future__ import annotations

from .server import CLAIM, DUE, FOREIGN, LONG, NEVER, Rules, World

Reply = tuple[str, str]


def acquire(w: World, rules: Rules, token: str, *, waits: bool) -> tuple[Reply, int]:
    """The reply, and with BUSY the end of life that it tells of."""
    if rules.gone_refused and token in w.gone:
        return ("GONE", ""), DUE
    if w.n == token:
        if rules.again_sets_px:
            start_lease(w, token)
        return ("OK", ""), DUE
    if may_claim(w, rules, token) or (w.n == "" and not somebody_before(w, rules, token)):
        take(w, token, rules)
        return ("OK", ""), DUE
    if w.n == "":
        hand_on(w, rules)
    if not rules.busy_leaves_mail:
        w.mail -= {token}
    if waits:
        join(w, rules, token)
    else:
        leave_queue(w, token)
        if rules.busy_is_gone:
            w.gone |= {token}
    return ("BUSY", FOREIGN if w.n == FOREIGN else ""), told(w, rules)


def release(w: World, rules: Rules, token: str) -> Reply:
    if w.n == token or (w.n and not rules.release_compares):
        w.gone |= {token}
        w.let_go |= {token}
        w.released = (*w.released, token)[-rules.released_remembered :]
        if rules.released_remembered == 0:
            w.released = ()
        return "OK", hand_on(w, rules) if rules.release_hands_on else delete(w)
    answer = "OK" if token in w.released else "LOST"
    return answer, leave(w, rules, token)[1] if rules.lost_leaves else head_at(w, rules)


def leave(w: World, rules: Rules, token: str) -> Reply:
    w.gone |= {token}
    leave_queue(w, token)
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
    if w.n != token and (rules.renew_compares or not w.n):
        return "LOST", ""
    if w.n == token:
        start_lease(w, token)
        if not rules.renew_grows_meta:
            w.meta = ""  # it ends in the course of the longer lease
    elif w.n != FOREIGN:
        lease, holder = w.clients[w.owner(token)].lease, w.n.removeprefix("baton:")
        if lease < w.life:
            w.life = lease
            w.set(w.owner(holder), belief="sent" if w.clients[w.owner(holder)].belief else "")
    return "OK", ""


def look(w: World, rules: Rules, head: str) -> Reply:
    """Hand the baton on if ``head`` has not fetched it; the reply tells to whom."""
    if w.n == "" and rules.absent_hands_on:
        return "OK", hand_on(w, rules)
    fetched = w.n == "baton:" + head and head not in w.mail
    if (fetched or w.n == FOREIGN) and rules.look_pokes:
        poke_next(w, rules)
    if fetched or w.n != "baton:" + head:
        return "OK", ""
    others = [token for token in w.queue if token != head and is_live(w, rules, token)]
    if rules.look_onward:
        rank = w.order.index(head)
        others = [token for token in others if w.order.index(token) > rank]
    if not others:
        return "OK", ""
    if rules.look != "drop":
        keep_place(w, head)
        if rules.look != "keep":
            w.doubted |= {head}
    if not rules.look_leaves_mail:
        w.mail -= {head}
    w.over = (*w.over, head)
    give_baton(w, rules, others[0])
    return "OK", others[0]


def hand_on(w: World, rules: Rules) -> str:
    """Give the baton to the first live waiter, or delete ``N``."""
    w.queue = tuple(token for token in w.queue if not (rules.alive_until and token in w.lapsed))
    heads = [token for token in w.queue if is_live(w, rules, token)]
    if not heads:
        return delete(w)
    w.over = tuple(token for token in w.queue if not is_live(w, rules, token))
    give_baton(w, rules, heads[0])
    return heads[0]


def delete(w: World) -> str:
    w.n = ""
    return ""


def give_baton(w: World, rules: Rules, head: str) -> None:
    if rules.head_leaves:
        leave_queue(w, head)
    w.n, w.life = "baton:" + head, CLAIM
    if head in w.lapsed:
        w.wrong = "late: the baton is made out to a waiter known to be gone"
    w.mail -= {head}
    push(w, head)


def push(w: World, token: str) -> None:
    """Put the element into the mailbox; a BLPOP on it is answered at once."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token == token and client.pc == "blocked":
        w.send(number, "ask")
    elif not (client.token == token and client.pc == "vanished"):
        w.mail |= {token}


def poke_next(w: World, rules: Rules) -> None:
    """Let the next waiter ask again how long it has to wait at most."""
    for token in w.queue:
        if is_live(w, rules, token):
            push(w, token)
            return


def is_live(w: World, rules: Rules, token: str) -> bool:
    skipped = rules.look == "skip" and token in w.doubted
    return not skipped and not (rules.alive_until and token in w.lapsed)


def somebody_before(w: World, rules: Rules, token: str) -> bool:
    """Whether a live waiter is queued before ``token``."""
    if not rules.queue_first:
        return False
    before = w.queue[: w.queue.index(token)] if token in w.queue else w.queue
    return any(is_live(w, rules, other) for other in before)


def may_claim(w: World, rules: Rules, token: str) -> bool:
    if rules.baton_names:
        return w.n == "baton:" + token
    return w.n.startswith("baton:")


def join(w: World, rules: Rules, token: str) -> None:
    """Queue once, and be alive for longer than a slice."""
    if not rules.place_kept:
        leave_queue(w, token)
    joined = token in w.queue
    w.wasted = tuple(other for other in w.wasted if other != token)
    if not joined:
        w.queue = (*w.queue, token)
    if token not in w.order:
        w.order = (*w.order, token)
    if rules.alive_renewed or not joined:
        w.lapsed -= {token}
        w.doubted -= {token}


def keep_place(w: World, token: str) -> None:
    if token not in w.queue:
        w.queue = tuple(sorted((*w.queue, token), key=w.order.index))


def leave_queue(w: World, token: str) -> None:
    w.queue = tuple(other for other in w.queue if other != token)


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
    w.meta, w.granted = token, True
    w.n, w.life = token, w.clients[w.owner(token)].lease
    w.over = ()
    leave_queue(w, token)
    w.order = tuple(other for other in w.order if other != token)
    start_lease(w, token)
    if rules.shorter_pokes and w.life < LONG:
        poke_next(w, rules)


def start_lease(w: World, token: str) -> None:
    """``PX``: what was counted from before now ends before ``N`` expires."""
    number = w.owner(token)
    client = w.clients[number]
    if client.token == token:
        if client.sent == "sent":
            w.set(number, sent="covered")
        if client.belief == "sent":
            w.set(number, belief="covered")


def _count_overtaken(w: World, token: str) -> None:
    before = w.order[: w.order.index(token)] if token in w.order else w.order
    for other in before:
        client = w.clients[w.owner(other)]
        if client.token == other and client.queues():
            if other not in w.over:
                w.wrong = "overtaken"
            w.overtaken = tuple(sorted((*w.overtaken, other)))
