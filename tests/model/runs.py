"""The runs, and what each rule that is left out breaks: one table of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .callers import RULES, Caller
from .search import Found, search
from .server import Edit
from .world import World

ONE = Caller()
TRIES = Caller(limit=0)
TWICE = Caller(rounds=2)
READER = Caller("read:")
PERMIT = Caller("permit:2:")
FOREIGN = Caller(foreign=True)
RENEWS = Caller(renew=True)
HOLDS = Caller(hold=2, lasts=6)
TASK = Caller(loop=0)
OTHER_TASK = Caller(loop=1)
HOLDER = Caller(limit=0, mortal=False)
DOOMED = Caller(follows=True, mortal="asleep")
LIVES = Caller(follows=True, mortal=False)


@dataclass(frozen=True)
class Run:
    """``size``: in which run of pytest it is: default, further (in
    `make matrix`), matrix or marathon (both in `make marathon`); '' in none.

    ``states``: how many are searched at the most, unless it is asked for by its name.
    """

    about: str
    callers: tuple[Caller, ...]
    faults: dict[str, int] = field(default_factory=dict)
    size: str = "matrix"
    options: dict[str, Any] = field(default_factory=dict)
    states: int = 400_000


def run(
    about: str, *callers: Caller, size: str = "matrix", states: int = 400_000, **how: Any
) -> Run:
    known = {"sleep", "slack", "out"} & set(how)
    options: dict[str, Any] = {name: how.pop(name) for name in known}
    return Run(about, callers, how, size, options, states)


RUNS = {
    "plain": run("nothing goes wrong", ONE, ONE, ONE),
    "two": run("nothing goes wrong, and each takes it twice", TWICE, TWICE, size="default"),
    "four": run("nothing goes wrong", ONE, ONE, ONE, ONE, slack=2, size="marathon"),
    "loss": run("a request or an answer is lost", ONE, ONE, ONE, loss=1, size="marathon"),
    "losses": run("two of them are, and each takes it twice", TWICE, ONE, loss=2),
    "late": run("a copy of a request arrives late; each takes it twice", TWICE, TWICE, late=1),
    "late-loss": run("a copy is late, and something is lost", ONE, ONE, late=1, loss=1),
    "late-3": run("a copy of a request arrives late", ONE, ONE, ONE, late=1, size="marathon"),
    "limits": run(
        "one tries once, one waits for a tick, one for as long as it takes",
        *(TRIES, Caller(limit=1), ONE),
    ),
    "limits-slow": run(
        "one waits for three ticks, callers are frozen for two",
        *(Caller(limit=3), Caller(lasts=5)),
        slow=2,
    ),
    "limits-late": run(
        "one tries once, one waits for a tick, and a copy is late",
        *(TRIES, Caller(limit=1), ONE),
        late=1,
        size="marathon",
    ),
    "kill": run("a caller is killed", ONE, ONE, ONE, kill=1),
    "kills": run("two of three are killed", ONE, ONE, ONE, kill=2, size="marathon"),
    "cut-off": run("a waiter's host is gone, its connection stays", ONE, ONE, ONE, zombie=1),
    "cut-off-row": run(
        "so are two waiters' in a row; leases of six ticks",
        *(caller._replace(lasts=6) for caller in (HOLDER, DOOMED, DOOMED, LIVES)),
        zombie=2,
        sleep=8,
        slack=2,
        out=("ride",),
        size="marathon",
    ),
    "cut": run("a waiter's connection breaks", ONE, ONE, cut=1, size="default"),
    "cut-3": run("a waiter's connection breaks", ONE, ONE, ONE, cut=1, size="marathon"),
    "half": run("so it does, and the server does not know it", ONE, ONE, half=1, slack=3),
    "row": run(
        "two waiters before a live one are killed; leases of two ticks",
        *(caller._replace(lasts=2) for caller in (HOLDER, DOOMED, DOOMED, LIVES)),
        kill=2,
        out=("ride",),
        states=150_000,
    ),
    "row-rides": run(
        "the row of dead waiters, and first requests ride along",
        *(HOLDER, DOOMED, DOOMED, LIVES),
        kill=2,
        size="marathon",
    ),
    "cancel": run("a waiter is cancelled", ONE, ONE, ONE, cancel=1),
    "frozen": run("callers are frozen, for four ticks in all", ONE, ONE, slow=4),
    "frozen-3": run("callers are frozen for two ticks", ONE, ONE, ONE, slow=2, size="marathon"),
    "renewal": run("one renews; its renewal is lost, or frozen", RENEWS, ONE, loss=1, slow=1),
    "renewal-kill": run("one renews and is killed", RENEWS, ONE, kill=1),
    "force": run("an operator takes it away, a copy is late", ONE, ONE, force=1, late=1),
    "force-loss": run("an operator takes it away, something is lost", ONE, ONE, force=1, loss=1),
    "force-row": run(
        "an operator takes it away, the next waiter is killed",
        *(HOLDER._replace(lasts=5), DOOMED, LIVES),
        force=1,
        kill=1,
        out=("ride",),
        size="marathon",
    ),
    "clock-back": run(
        "the server's clock is stepped back by two ticks, a caller is killed",
        *(ONE, ONE),
        back=1,
        kill=1,
    ),
    "clock-back-3": run(
        "the server's clock is stepped back by two ticks", ONE, ONE, ONE, back=1, size="marathon"
    ),
    "clock-ahead": run(
        "the server's clock jumps ahead by two ticks, a caller is killed",
        *(ONE, ONE),
        forward=1,
        kill=1,
    ),
    "flush": run("everything in Redis is deleted", ONE, ONE, ONE, flush=1),
    "foreign": run("another program at the same name is killed", ONE, ONE, FOREIGN, kill=1),
    "readers": run("two readers and a writer", READER, READER, ONE),
    "readers-kill": run(
        "one of two readers and a writer is killed", READER, READER, ONE, kill=1, size="marathon"
    ),
    "readers-late": run(
        "two readers and a writer, a copy is late", READER, READER, ONE, late=1, size="marathon"
    ),
    "readers-limit": run(
        "a reader, and one behind a writer that gives up", READER, Caller(limit=1), READER
    ),
    "readers-leases": run(
        "a reader with a long lease, one with a short one that is killed, and a writer",
        READER._replace(lasts=5, mortal=False, limit=0),
        READER._replace(lasts=2, mortal="held", follows=True, limit=0),
        LIVES,
        kill=1,
        out=("ride",),
        sleep=8,
    ),
    "permits": run("two permits for three, one is killed", PERMIT, PERMIT, PERMIT, kill=1),
    "permits-loss": run(
        "two permits for three, something is lost", PERMIT, PERMIT, PERMIT, loss=1, size="marathon"
    ),
    "leases": run(
        "leases of three lengths, a waiter is killed",
        Caller(lasts=6, mortal=False),
        *(Caller(lasts=lease, mortal="asleep") for lease in (1, 3)),
        kill=1,
        sleep=8,
        size="marathon",
    ),
    "lease-shorter": run(
        "a short lease after a long one; its holder is killed",
        *(HOLDER._replace(lasts=5), Caller(lasts=1, follows=True, mortal="held"), LIVES),
        kill=1,
        out=("ride",),
        sleep=8,
    ),
    "leases-row": run(
        "and so is the next waiter",
        *(HOLDER._replace(lasts=5), Caller(lasts=1, follows=True, mortal="held"), DOOMED, LIVES),
        kill=2,
        out=("ride",),
        sleep=8,
        size="marathon",
    ),
    "lease-leave": run(
        "and who came last, and knows of it, gives up",
        *(HOLDER._replace(lasts=4), Caller(lasts=1, follows=True, mortal="held"), LIVES),
        LIVES._replace(limit=1),
        kill=1,
        out=("ride",),
        sleep=8,
        states=60_000,
    ),
    "lease-cancel": run(
        "or is cancelled",
        *(HOLDER._replace(lasts=4), Caller(lasts=1, follows=True, mortal="held"), LIVES, LIVES),
        kill=1,
        cancel=1,
        out=("ride",),
        sleep=8,
        size="marathon",
    ),
    "hold": run(
        "one keeps it for two ticks at the least, one waits for it, one of them is killed",
        *(HOLDS, ONE),
        kill=1,
        size="further",
    ),
    "hold-late": run("two keep it, a copy is late", HOLDS, HOLDS, late=1),
    "hold-loss": run("two keep it, something is lost", HOLDS, HOLDS, loss=1),
    "hold-3": run("one keeps it, two wait for it", HOLDS, ONE, ONE),
    "loop": run("two tasks of a loop", TASK, TASK, size="default"),
    "loop-3": run("three tasks of a loop", TASK, TASK, TASK),
    "loop-late": run("two tasks of a loop, a copy is late", TASK, TASK, late=1),
    "loop-loss": run("two tasks of a loop, something is lost", TASK, TASK, loss=1),
    "loop-slow": run("two tasks of a loop, frozen for three ticks", TASK, TASK, slow=3),
    "loop-cancel": run("a thread and two tasks, one is cancelled", HOLDER, TASK, TASK, cancel=1),
    "loop-cut": run(
        "a thread and two tasks; their mail connection breaks", HOLDER, TASK, TASK, cut=1
    ),
    "loop-again": run(
        "two tasks of a loop, one takes it twice; their mail connection breaks",
        *(TASK._replace(rounds=2), TASK),
        cut=1,
        size="further",
    ),
    "loop-half": run(
        "so it does, and the server does not know it",
        *(HOLDER, TASK, TASK),
        half=1,
        slack=3,
        size="marathon",
    ),
    "loop-kill": run(
        "a loop with two tasks is killed, a thread waits too",
        HOLDER,
        TASK,
        TASK,
        LIVES,
        kill=1,
        slack=3,
        states=150_000,
    ),
    "loop-cut-off": run(
        "a loop's host is gone, its connection stays",
        HOLDER,
        TASK,
        TASK,
        LIVES,
        zombie=1,
        slack=3,
        states=150_000,
    ),
    "loops": run(
        "two loops, one is killed", TASK, TASK, OTHER_TASK, kill=1, slack=3, states=150_000
    ),
    "loop-mixed": run(
        "two tasks of a loop and a thread", TASK, TASK, ONE, cancel=1, cut=1, size="marathon"
    ),
    "mixed": run(
        "one thing of each kind goes wrong",
        *(ONE, ONE),
        loss=1,
        kill=1,
        slow=1,
        cancel=1,
        size="marathon",
    ),
}


@dataclass(frozen=True)
class Mutant:
    """A rule that is left out, of the client (``change`` is its name) or of a script."""

    rule: str
    run: str
    breaks: str
    change: str | Edit


# What is left out, the run that shows it, and what breaks then; a rule of the client by its name.
MUTANTS = {
    "send": Mutant(RULES["send"], "frozen", "exclusive", "send"),
    "fresh": Mutant(RULES["fresh"], "late", "exclusive", "fresh"),
    "cancel": Mutant(RULES["cancel"], "losses", "over", "cancel"),
    "doubt": Mutant(RULES["doubt"], "late", "over", "doubt"),
    "taint": Mutant(RULES["taint"], "late", "over", "taint"),
    "truth": Mutant(RULES["truth"], "losses", "truth", "truth"),
    "look": Mutant(RULES["look"], "kill", "sleep", "look"),
    "look-cancel": Mutant(RULES["look_cancel"], "force-row", "sleep", "look_cancel"),
    "anew": Mutant(RULES["anew"], "frozen", "sleep", "anew"),
    "leave": Mutant(RULES["leave"], "limits-slow", "over", "leave"),
    "longer": Mutant(RULES["longer"], "plain", "order", "longer"),
    "awake": Mutant(
        "mail that lies unread while a waiter asks does not mean that nobody lives",
        *("plain", "order"),
        ("acquire", "  mark_awake(ARGV[5])\n", ""),
    ),
    "early": Mutant(RULES["early"], "loop-3", "sleep", "early"),
    "cut-early": Mutant(RULES["cut_early"], "loop-again", "sleep", "cut_early"),
    "order": Mutant(RULES["order"], "loop-cancel", "over", "order"),
    "first": Mutant(
        "nobody gets it while another is first in the queue",
        *("readers", "order"),
        ("acquire", " and not first_waiter() then", " then"),
    ),
    "fast": Mutant(
        "the short way is only for a lock that nobody waits for",
        *("foreign", "truth"),
        ("acquire", "redis.call('EXISTS', BESIDE .. 'waiting', BESIDE .. 'gone') == 0", "true"),
    ),
    "fast-gone": Mutant(
        "nor is it for a token that is done with",
        *("late", "over"),
        ("acquire", ", BESIDE .. 'gone') == 0", ") == 0"),
    ),
    "fence-fast": Mutant(
        "a fence is above the last, whatever the clock says",
        *("clock-back", "fence"),
        ("acquire", "and tonumber(last) >= tonumber(fence) then", "and false then"),
    ),
    "fence": Mutant(
        "so it is on the long way",
        *("clock-back", "fence"),
        ("lib", "math.max(now_us, read_meta() + 1)", "now_us"),
    ),
    "compare": Mutant(
        "a release deletes nobody else's",
        *("frozen", "exclusive or truth"),
        (
            "lib",
            "  if value == token then\n    redis.call('DEL'",
            "  if value and not group then\n    redis.call('DEL'",
        ),
    ),
    "gone": Mutant(
        "what was cancelled in doubt is refused for a minute",
        *("late", "over"),
        ("release", "if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' then", "if false then"),
    ),
    "twice": Mutant(
        "who asks for what it has hears so",
        *("losses", "drain"),
        ("lib", "  if value == token then\n    local fence", "  if false then\n    local fence"),
    ),
    "give": Mutant(
        "a release gives the lock to the first",
        *("two", "sleep"),
        ("release", "(not value or group) and admit(value, group) or", "false or"),
    ),
    "wake": Mutant(
        "who is given it is woken",
        *("two", "sleep"),
        ("lib", "local woken = wake(box, token)", "local woken = token"),
    ),
    "claim": Mutant(
        "what is given is given for a moment",
        *("kill", "sleep"),
        ("lib", "grant(token, CLAIM,", "grant(token, 4 * CLAIM,"),
    ),
    "mail": Mutant(
        "a look passes over whom the lock was given to in vain",
        *("kill", "drain"),
        ("look", "admit(value, group, true)", "admit(value, group)"),
    ),
    "mail-box": Mutant(
        "and over all at whose mailbox mail lies unread",
        *("loop-kill", "mail"),
        (
            "lib",
            "        elseif not is_passed_over(box, again, without_mail) then\n"
            "          return token, again, box, record\n"
            "        else\n"
            "          full = box\n",
            "        elseif not (without_mail and redis.call('LPOS', box, token)) then\n"
            "          return token, again, box, record\n",
        ),
    ),
    "rouse": Mutant(
        "the next one asks, should the first not come",
        *("cut-off", "sleep"),
        ("look", "given or rouse(CLAIM, true) or false", "given or false"),
    ),
    "rouse-ok": Mutant(
        "a shorter lease than the last has the first waiter ask earlier",
        *("lease-shorter", "sleep"),
        ("acquire", "token and given, rouse(lease)", "token and given, nil"),
    ),
    "rouse-last": Mutant(
        "that is the one who came last, and is the likeliest to live",
        *("cut-off-row", "sleep"),
        ("lib", "first_waiter(without_mail, 'ZREVRANGE')", "first_waiter(without_mail)"),
    ),
    "leave-room": Mutant(
        "who gives up lets in those behind it who may share the lock",
        *("readers-limit", "room"),
        ("acquire", "group and admit(value, group) or left", "left"),
    ),
    "leave-rouse": Mutant(
        "and has another ask in its place when the lease ends",
        *("lease-leave", "sleep"),
        ("acquire", "left >= 0 and rouse(left)", "nil"),
    ),
    "cancel-rouse": Mutant(
        "so does who is cancelled",
        *("lease-cancel", "sleep"),
        (
            "release",
            "leave_queue(token) or was_held",
            "leave_queue(token) and false or was_held",
        ),
    ),
    "rank": Mutant(
        "who asks again keeps its place",
        *("plain", "order"),
        ("acquire", "if not rank then", "if true then"),
    ),
    "rank-last": Mutant(
        "a place is behind the last, whatever the clock says",
        *("clock-back-3", "order"),
        ("acquire", "math.max(now_us, (last or 0) + 1)", "now_us"),
    ),
    "mark": Mutant(
        "force leaves a mark",
        *("force-loss", "truth"),
        ("force", "redis.call('HSET', BESIDE .. 'forced', token, ARGV[2])", ""),
    ),
    "shares": Mutant(
        "a share ends with its lease",
        *("readers-kill", "sleep or truth"),
        ("lib", "'-inf', now)) do", "'-inf', 0)) do"),
    ),
    "shares-name": Mutant(
        "the name is taken for as long as the longest lease of those who hold it",
        *("readers-leases", "sleep"),
        ("lib", "redis.call('PEXPIRE', NAME, whole(last_end() - now)) --", "--"),
    ),
    "shares-rouse": Mutant(
        "who lets a share go has a waiter ask when the others' leases end",
        *("readers-leases", "sleep"),
        ("release", "or was_held) and", "or false) and"),
    ),
    "room": Mutant(
        "there are as many permits as there are",
        *("permits", "exclusive"),
        ("lib", "SHARES) < limit", "SHARES) <= limit"),
    ),
    "kinds": Mutant(
        "a reader does not join permits, nor a writer readers",
        *("readers", "exclusive"),
        (
            "lib",
            "group and group == kind and redis.call('ZCARD', SHARES) < limit",
            "group and redis.call('ZCARD', SHARES) < (limit or 99)",
        ),
    ),
    "expiry": Mutant(
        "the queue has an end",
        *("two", "expiry"),
        ("acquire", "redis.call('PEXPIRE', WAITERS, slice + 4 * LATE)", ""),
    ),
    "hold": Mutant(
        "what is let go before its time is kept for the rest",
        *("hold", "hold"),
        ("release", "if rest > 0 then", "if false then"),
    ),
    "hold-rouse": Mutant(
        "whoever waits for what is kept asks when that is over",
        *("hold", "sleep"),
        ("release", "rest > 0 and rouse(rest) or false", "false"),
    ),
}


def explore(
    name: str, change: str | Edit | None = None, *, most: int = 3_000_000, seconds: float = 3600
) -> Found:
    """Search a run, with a rule left out if one is named."""
    chosen = RUNS[name]
    options = dict(chosen.options)
    if isinstance(change, str):
        options["out"] = (*options.get("out", ()), change)
    edits = (change,) if isinstance(change, tuple) else ()
    return search(World(chosen.callers, chosen.faults, edits=edits, **options), most, seconds)


def is_caught(mutant: Mutant, found: Found) -> bool:
    return found.wrong.partition(":")[0] in mutant.breaks.split(" or ")
