"""What the docs promise, and by what each promise is tried."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.mutant_table import MUTANTS, Mutant


class Promise(NamedTuple):
    """``mutants``: a pattern for ``name | file | killed_by``; the first promise that fits has it.

    ``properties``: what the model asks in each state. ``runs``: a pattern for the runs that are
    about it, ``storms`` for the storms.
    """

    text: str
    page: str
    mutants: str
    properties: tuple[str, ...] = ()
    runs: str = ""
    storms: str = ""


PROMISES = (
    Promise(
        "No secret is shown, and hostile text is escaped",
        "operations",
        r"no token stands|hostile|a ticket is not shown",
    ),
    Promise(
        "Different values have different keys, equal ones the same",
        "views",
        r"\| key_template|keys\.py|two_names_have|same name in another",
    ),
    Promise(
        "Older programs that keep a time at the name exclude, and are excluded",
        "redis",
        r"timestamp|writes the time",
        runs="timestamp|same time",
    ),
    Promise(
        "Several masters: whoever has a majority holds it",
        "redis",
        "quorum|redlock|replicas",
        storms="redlock",
    ),
    Promise("A cluster's slot may move", "redis", "cluster|hosted", storms="cluster"),
    Promise(
        "A write with a stale fence is refused by the database",
        "fencing",
        "contrib/fencing",
        storms="a fence|are stopped",
    ),
    Promise(
        "A lock outlives its transaction, and a lost one rolls it back",
        "transactions",
        "transaction|atomic",
    ),
    Promise(
        "Of two people at one form the second cannot overwrite the first",
        "admin",
        "admin/(model_admin|change_list)",
    ),
    Promise(
        "An operator takes a lock only from the holder that was seen",
        "operations",
        r"admin/|force|intervention|operators|dead_holders|request to stop|asked to stop",
        ("truth",),
        runs="force",
    ),
    Promise(
        "Lists and checks show what stands in Redis",
        "operations",
        r"inspect|history|descriptions|doctor|locks/(check|listing)|listed|index|waits\.lua",
    ),
    Promise(
        "No process of a command outlives its lock",
        "commands",
        r"with_lock|parent\.py",
    ),
    Promise(
        "A busy view answers 409; a lost or unavailable lock is 503",
        "views",
        r"\| (decorators|views|middleware)|labels|view",
    ),
    Promise(
        "A wrong option is refused, a changed setting counts",
        "settings",
        r"\| (conf|connection|options)",
    ),
    Promise(
        "A lock that is let go early is kept for its least time",
        "code",
        r"min_hold",
        ("hold",),
        "hold",
    ),
    Promise(
        "A release frees nobody else's lock",
        "how-it-works",
        r"release compares|short way.*releasing|nobody else|no lock at the name|looks like a group",
        ("exclusive", "truth"),
    ),
    Promise(
        "A server that fails is `LockUnavailable`, in a bounded time",
        "redis",
        r"call_limits|Unavailable|flushed|memory|right to",
        storms="one server, (kill|stop|pause|forget)",
    ),
    Promise(
        "Several keys are taken together, and a deadlock is refused",
        "kinds",
        r"deadlock|several|waits for itself|one permit that|stands before a reader",
        storms="together",
    ),
    Promise(
        "Readers and permits: never more than may",
        "kinds",
        r"share|reader|permit|longest lease|who_leaves_and_was_roused",
        ("exclusive", "room"),
        "readers|permits",
        "readers",
    ),
    Promise(
        "Only its thread, greenlet or task has a lock again",
        "code",
        r"reentran|had again|last handle|fork|sibling|child thread|handed out|given away|"
        r"taken over|ticket",
    ),
    Promise(
        "Whoever is interrupted or cancelled leaves nothing",
        "how-it-works",
        r"interrupt|cancel|leaves nothing|given up|gives up|connections? .*(closed|ends)|"
        r"undone|ends with its loop|sub-interpreter",
        ("over", "drain"),
        "cancel|mixed|limits",
    ),
    Promise(
        "A request that is lost, late or sent twice does no harm",
        "how-it-works",
        r"copy|copies|sent twice|called again|too late|network",
        ("over", "truth"),
        "loss|late",
        "server, cut|connections are",
    ),
    Promise(
        "A fence is larger than every earlier one",
        "fencing",
        "fence",
        ("fence",),
        storms="killed and late",
    ),
    Promise(
        "First come, first served",
        "how-it-works",
        r"keeps its place|came first|comes later|short way|waits for it|queue|place",
        ("order",),
    ),
    Promise(
        "Whoever waits is woken; a dead waiter costs half a second",
        "how-it-works",
        r"wak|roused|rouse|handover|mail|wait|given",
        ("sleep", "mail"),
    ),
    Promise(
        "A held lock is renewed, and counts as lost before another can have it",
        "code",
        r"renew|lease",
        ("exclusive",),
        "renewal|lease|frozen|slow",
        "server, freeze|holders work",
    ),
    Promise("A loss is told, at the end of the block at the latest", "code", r"loss|lost"),
    Promise(
        "One holder at a time, and a killed one costs a lease at the most",
        "code",
        "",
        ("exclusive", "expiry", "drain"),
        storms="^killed|holders are killed|nothing goes wrong",
    ),
)


def by_promise() -> dict[str, list[Mutant]]:
    """Return the mutants of each promise, by its text."""
    found: dict[str, list[Mutant]] = {promise.text: [] for promise in PROMISES}
    for mutant in MUTANTS:
        words = f"{mutant.name} | {mutant.file} | {mutant.killed_by}"
        first = next(promise for promise in PROMISES if re.search(promise.mutants, words))
        found[first.text].append(mutant)
    return found


# What the page says, too.
NOT_PROVEN = (
    "**A sample is no proof.** Storms show what happened in these minutes, on one machine. Mutants"
    " are the rules that somebody named.",
    "**The model** has two to four callers and one or two faults; where a run ends at a depth,"
    " nothing is known beyond. Not in it: locks taken again, several keys at once, the index,"
    " replicas that lag, and what the Python code does between two steps.",
    "**A holder that is stopped beyond its lease and writes without a fence** writes late: the"
    " second row of the tables below. So does whatever is not fenced, as a mail or a payment.",
    "**A Redis that forgets**: after `FLUSHALL`, an eviction, a restart without persistence, or a"
    " failover that loses writes, the next caller gets the lock while the first has not heard of"
    " it. With a fence, the store refuses the first one's next write once the second has written.",
    "**The clock of the server** that jumps ahead ends leases early.",
    "**Code that does not ask for the lock.**",
    "**Several hosts, a network that is cut in two, other systems than this one**: all ran on one"
    " machine. Failovers of Sentinels are left to `make storm`.",
)

# What others do not promise, as far as the storms touch it; none of them has a fence.
OF_OTHERS = {
    "redis-py": "to last beyond its `timeout`: longer work calls `extend()` or `reacquire()`",
    "python-redis-lock": "to tell of a loss before `release()`; `auto_renewal=True`, as here,"
    " renews while the work lasts",
    "pottery Redlock": "to last beyond `auto_release_time`: longer work calls `extend()`; made for"
    " several masters, it has one here",
    "sherlock": "to last beyond `expire`: longer work calls `renew()`",
}
