"""What several hold together, checked in every state that a few callers can reach.

The scripts that are shipped are what runs here. Each of their rules taken out gives a violation:
``shared_controls.py`` has them and their bounds, and ``-s`` prints the shortest traces.
"""

from __future__ import annotations

import functools
import sys

import pytest

from tests.support.seams import scripts

from .explorer import Found, explore
from .shared_controls import BRIEF, CONTROLS, Control, bounds
from .shared_model import FAULTS, LONG, SHORT, Bounds, Model, State
from .shared_server import Servers

ANY = " ".join(sorted(FAULTS))


def search(model: Model) -> Found[State]:
    found = explore(model.start(), model.moves, model.wrong)
    sys.stdout.write(f"\n{bounded(model.bounds)}: {found.told(model.show)}\n")
    return found


@functools.cache
def shipped(within: Bounds) -> Found[State]:
    return search(Model(within, Servers()))


def walk(within: Bounds, steps: str, rule: str = "", instead: str = "") -> str:
    """What is wrong after those steps, one a line, which lie too deep to be searched for."""
    model = Model(within, Servers(lambda source: source.replace(rule, instead) if rule else source))
    state = model.start()
    for step in filter(None, map(str.strip, steps.splitlines())):
        state = dict(model.moves(state))[step]
        sys.stdout.write(f"{step:38} {model.show(state)}\n")
        if wrong := model.wrong(state):
            return wrong
    return ""


def bounded(within: Bounds) -> str:
    befalls = "any" if within.befalls == FAULTS else " ".join(sorted(within.befalls))
    more = " renews" * within.renews
    more += " short" * (SHORT in within.leases) + f" {within.turns} turns" * (within.turns > 1)
    return f"{within.kinds} {within.faults} faults {befalls}{more}"


SHORT_SEARCHES = [
    bounds("wr", ANY),
    bounds("222", "crash"),
    bounds("wrr"),
    bounds("r2", ANY),
]
LONG_SEARCHES = [
    bounds("222", "crash impatient"),
    bounds("rw", "again crash", 2, leases=(SHORT, SHORT)),
    bounds("wr", ANY, renews=True),
    bounds("wr", ANY, leases=(LONG, SHORT), renews=True),
    bounds("wrr", "crash impatient", leases=BRIEF),
    bounds("wwr", "crash impatient", leases=(LONG, LONG, SHORT)),
    bounds("wrr", renews=True),
    bounds("wrr", "again"),
    bounds("w22", "crash impatient cancel"),
    bounds("222", "again force exit"),
    bounds("222", "crash stall", 2, leases=BRIEF),
]
LONGEST_SEARCHES = [
    bounds("111", "again crash", 2),
    bounds("wrr", ANY),
    bounds("wwr", ANY),
    bounds("w22", ANY),
    bounds("2222"),
    bounds("wrwr"),
]

# One process searches for both.
SEARCHES = pytest.mark.xdist_group("short searches of the model of shares")


@SEARCHES
@pytest.mark.parametrize(
    "within",
    [
        SHORT_SEARCHES[0],
        *(pytest.param(one, marks=pytest.mark.matrix) for one in SHORT_SEARCHES[1:]),
    ],
    ids=bounded,
)
def test_the_scripts_as_shipped_allow_no_violation(within: Bounds) -> None:
    found = shipped(within)

    assert found.complete
    assert not found.wrong


@SEARCHES
@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_the_search_meets_every_kind_of_step() -> None:
    seen = " ".join(step for within in SHORT_SEARCHES for step in shipped(within).steps_seen)

    for step in (
        "late, sends again",
        "lost, sends again",
        "late copy: ask read:",
        "late copy: look",
        "is cancelled",
        "waits no longer",
        "ASK once: BUSY",
        "is killed",
        "loses power",
        "ms pass while those who act are slow",
        "the clock steps back",
        "the operator: force",
        "the operator: look",
        "a foreign client takes N",
        "gets OK",
        "RELEASE: LOST",
        "LEAVE: OK",
        "watchdog: LOOK at permit:2:c1: permit:2:c1",
        "last LOOK",
        "has slept",
    ):
        assert step in seen, step


@pytest.mark.matrix
@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.about)
def test_without_a_rule_there_is_a_violation(control: Control) -> None:
    only = "asleep beside" if control.wrong == "asleep" else control.wrong
    servers = Servers(lambda source: source.replace(control.rule, control.instead))

    found = search(Model(control.bounds, servers, only))

    assert found.wrong.startswith(control.wrong)
    assert found.steps == control.found


def test_each_rule_stands_in_a_script() -> None:
    sources = [one.source for one in vars(scripts).values() if isinstance(one, scripts.Script)]

    for control in CONTROLS:
        assert any(control.rule in source for source in sources), control.about


def test_unless_a_look_follows_what_is_left_to_a_killed_waiter_lies_there() -> None:
    found = shipped(Bounds("111", 1, frozenset({"crash"}), looks=False))

    assert found.wrong == "asleep beside a lock that can be had"
    assert found.steps == 9


def test_a_reader_behind_a_dead_writer_asks_again_soon() -> None:
    within = Bounds("rwr", faults=1, befalls=frozenset({"crash"}), leases=(2 * LONG, LONG, LONG))
    steps = """
        a ASK: OK
        a gets OK
        b ASK: BUSY
        b BLPOP
        b is killed
        c ASK: BUSY
        c BLPOP
        5000 ms pass
        c has slept
        c ASK: BUSY
        c BLPOP
        2001 ms pass
        2999 ms pass
        c has slept
        c ASK: OK
    """

    assert not walk(within, steps)


JOINED_SINCE = """
    a ASK: OK
    b ASK: OK
    b gets OK
    c ASK: BUSY
    c BLPOP
    a gets OK
    a while passes: 2500 ms
    b leaves the body
    b RELEASE: OK
    500 ms pass while those who act are slow
    the operator sees permits:1700000000000100
    c ASK: OK
    c gets OK
"""


@pytest.mark.parametrize(
    ("rule", "answer", "wrong"),
    [("", "CHANGED", ""), (" or group_at(value)", "OK", "believes in vain")],
    ids=["as shipped", "without the rule"],
)
def test_a_group_that_was_empty_when_it_was_seen_is_not_forced(
    rule: str, answer: str, wrong: str
) -> None:
    within = Bounds(
        "222",
        faults=2,
        befalls=frozenset({"force", "stall"}),
        leases=(SHORT, LONG, LONG),
        pauses=1,
        pause=2_500,
    )
    forced = f"the operator: force  w permits:1700000000000100: {answer}"

    found = walk(within, JOINED_SINCE + forced, rule)

    assert found == wrong


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "within",
    [
        *(pytest.param(within, marks=pytest.mark.storm) for within in LONG_SEARCHES),
        *(pytest.param(within, marks=pytest.mark.marathon) for within in LONGEST_SEARCHES),
    ],
    ids=bounded,
)
def test_the_scripts_as_shipped_hold_out_longer(within: Bounds) -> None:
    found = shipped(within)

    assert found.complete
    assert not found.wrong
