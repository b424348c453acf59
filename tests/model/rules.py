"""The rules, one by one; a control takes one out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """The rules as shipped."""

    belief_from_send: bool = True
    """The lease counts from before the request was sent, not from its reply."""
    again_sets_px: bool = True
    """An ACQUIRE of the lock's holder starts the lease anew."""
    fresh_token: bool = True
    """Every acquire has a token of its own."""
    gone_refused: bool = True
    """A token released or given up is refused when a late ACQUIRE brings it."""
    busy_is_gone: bool = True
    """A caller that does not wait, and meets BUSY, has its token marked gone if a copy of one of
    its requests may be under way."""
    doubt_stays: bool = True
    """Once a copy of one of its requests may be under way, all later ones of that token say so."""
    let_go_noted: bool = True
    """A RELEASE after which nothing else is remembered notes in meta that the token let go."""
    meta_outlasts_retries: bool = True
    """Meta is known for longer than a RELEASE is tried again."""
    lost_noted: bool = True
    """Who takes the lock after a token that has not let go has that one marked lost."""
    copy_told: bool = True
    """A RELEASE that may have been carried out says so, and is answered OK unless its token is
    marked lost or gone, or stands in meta and has not let go."""
    lease_over_doubts: bool = True
    """Who releases after the end of its lease, by its own clock, does not rely on that."""
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
    rank_returns: str = "handed"
    """Who joins again with a token still known has the rank that it had: who was "handed" the
    baton; or who was dropped as well: "always"; "": nobody."""
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
    absent_hands_on: bool = True
    """RELEASE, LEAVE and LOOK that find N absent hand on as well."""
    ours_by_meta: bool = True
    """The holder is ours only if meta's token stands at N."""
    foreign_listens: bool = True
    """The pause behind a foreign holder listens to the own mailbox."""
    early_kept: bool = True
    """What a loop fetches for a task that is not asleep yet keeps that from falling asleep."""
    cut_wakes: bool = True
    """A loop that is cut off from its mailbox wakes all its tasks, who ask again."""
    cut_noted: bool = True
    """So does one that was asking then, in the place of falling asleep."""
    busy_leaves_mail: bool = True
    """BUSY does not empty the own mailbox: a late copy would take what came after it."""
    renew_grows_meta: bool = True
    meta_outlives: bool = True
    """Meta outlives the lease by more than the clock may step back."""
    fence_above_last: bool = True
    """Fence = max(clock, last + 1), not the clock alone."""
    look: str = "cut"
    """A baton not fetched goes on, and its waiter: "keep"s its place; keeps it, its alive-until
    "cut" to the claim time; is "skip"ped until it asks again; or is "drop"ped. "": no LOOK."""
    look_later: bool = True
    """LOOK is not sent together with what handed the baton on."""
    look_onward: bool = True
    """LOOK hands on to waiters behind the one it looked at only."""
    look_leaves_mail: bool = True
    """LOOK leaves the element in the mailbox of a waiter that it passes."""
    look_follows: bool = True
    """Whose LOOK passed the baton on, or found it passed on, looks after its new head."""
    look_again: bool = True
    """LOOK that finds the baton fetched, but not claimed, is sent again later."""
    seen: str = "held"
    """Who was to LOOK need not when it sees the lock "held" by one of ours; or by "anyone": on its
    way, too. "": it has to all the same."""
    claim_short: bool = True
    """What is sent ahead takes the lock for the claim time only."""
    claim_believed_short: bool = True
    """Who took it so does not count on more until Redis has confirmed the whole lease."""
    claim_fresh: bool = True
    """What was sent ahead too long ago is not believed, but asked for again."""
    claim_looked_at: bool = True
    """LOOK that finds the lock taken for the claim time is sent again later."""
    claim_seen: bool = True
    """Who does not wait has not seen the lock held when it may be for the claim time only."""
    successor_first: bool = True
    """A release grants the lock to the waiter that it names only if that is the first."""
    successor_from_send: bool = True
    """Who was granted it so counts the lease from before the release was sent."""
    successor_told: bool = True
    """A release that was sent again has that waiter ask."""
    lapsed_is_gone: bool = True
    """A token that had the lock, and lost it unheard, does not queue again."""
    last_look_pokes: bool = True
    """The LOOK of a process that ends makes the next waiter ask, who looks on in its stead."""
    foreign_pokes: bool = True
    """LOOK that finds a foreign holder makes the next waiter ask."""
    retry_told: bool = True
    """A RELEASE or LEAVE sent again tells again to whom the baton went."""
    shorter_pokes: bool = True
    """Who takes the lock makes the first waiter ask that would sleep longer than the lease."""
    cut_pokes: bool = True
    """So does a holder that makes its lease shorter."""
    kept_pokes: str = "all"
    """So does a holder that lets the lock go, but keeps its name taken: "all" who would sleep
    beyond that; or the "first" of them only; "": nobody."""
    kept_renamed: bool = True
    """What stands at N then is not the token: no copy of a request finds that there."""
    leaver_pokes: bool = True
    """So does a waiter that leaves the queue, of the lease that is left."""
    noted_grows: bool = True
    """A late copy of ACQUIRE does not bring forward when its waiter is known to ask again."""
    cut_from_send: bool = True
    """A holder counts on the shorter lease from before it asked for it."""
    cut_stays: bool = True
    """A holder that made its lease shorter does not count on a longer one afterwards."""
