"""The rules of the hand-over, checked in every state that a few clients can reach.

Each rule taken out gives a violation; the shortest traces (their steps are this model's own, and
``-s`` prints them) and the bounds they were found in stand in ``CONTROLS``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from .bounds import ALL_FAULTS, State
from .explorer import Found, explore
from .handover import Model
from .properties import TWO_SILENT
from .rules import Rules
from .server import LONG, SHORT, World

ALL = "abcd"


@functools.cache
def search(model: Model) -> Found[State]:
    found = explore(model.start(), model.moves, model.wrong)
    text = found.told(lambda state: str(World(*state)))
    sys.stdout.write(
        f"\n{model.clients} clients, {model.turns} turns, {model.faults} faults: {text}\n"
    )
    return found


def bounds(
    clients: int = 2,
    turns: int = 1,
    kinds: str = "",
    faults: int = 1,
    short: int | None = None,
    cuts: bool = False,
    ahead: bool = False,
    keeps: bool = False,
    in_loops: bool = False,
    one_loop: bool = False,
) -> Model:
    leases = tuple(SHORT if number == short else LONG for number in range(clients))
    chosen = frozenset(kinds.split())
    faults = faults if kinds else 0
    model = Model(clients, turns, faults, chosen, leases=leases, cuts=cuts)
    model = replace(model, ahead=ALL * ahead, keeps=ALL * keeps, one_loop=one_loop)
    return replace(model, in_loops=ALL * (in_loops or one_loop))


@dataclass(frozen=True)
class Control:
    """A rule taken out: what goes wrong, within which bounds, and after how many steps."""

    without: str
    wrong: str
    model: Model
    found: int

    @property
    def rules(self) -> Rules:
        changes: dict[str, Any] = {}
        for change in self.without.split():
            name, _, value = change.partition("=")
            changes[name] = (int(value) if value.isdigit() else value) if value else False
        return replace(Rules(), **changes)


SHORT_AND_KILLED = bounds(clients=3, kinds="crash", short=1)
SEEN = replace(bounds(clients=3, kinds="crash fail-fast", faults=2), more=1)
SEEN_AHEAD = replace(SEEN, ahead=ALL)
CUT_LOST_AND_KILLED = bounds(kinds="again crash", faults=2, cuts=True)
CONTROLS = [
    Control("belief_from_send", "two believers", bounds(), 5),
    Control("again_sets_px", "two believers", bounds(kinds="again"), 6),
    Control("gone_refused", "ghost holder", bounds(kinds="again"), 6),
    Control("busy_is_gone", "ghost holder", bounds(kinds="again fail-fast", faults=2), 7),
    Control("doubt_stays", "ghost holder", bounds(kinds="again"), 6),
    Control("let_go_noted", "false loss", bounds(kinds="again"), 5),
    Control("lost_noted", "false success", bounds(kinds="again"), 7),
    Control("copy_told", "false loss", bounds(kinds="again"), 5),
    Control("lease_over_doubts", "false success", bounds(kinds="again clock expire", faults=2), 9),
    Control("meta_outlasts_retries", "false loss", bounds(kinds="again clock"), 6),
    Control("lost_leaves lapsed_is_gone", "ghost holder", bounds(kinds="again"), 7),
    Control("lost_leaves lapsed_is_gone", "gone", bounds(kinds="again"), 9),
    Control("release_compares", "two believers", bounds(turns=2), 9),
    Control("renew_compares", "two believers", bounds(turns=2, kinds="expire", short=0), 13),
    Control("force_compares", "two believers", bounds(turns=2, kinds="force"), 10),
    Control("released_remembered=0", "false loss", bounds(kinds="again", faults=2), 6),
    Control("released_remembered=1", "false loss", bounds(kinds="again", faults=3), 11),
    Control("baton_names", "overtaken", bounds(clients=3), 6),
    Control("queue_first", "overtaken", bounds(clients=3), 6),
    Control("head_leaves", "late", bounds(clients=3, kinds="crash"), 10),
    Control("until_told", "asleep", bounds(kinds="crash"), 5),
    Control("place_kept", "overtaken", bounds(clients=3), 11),
    Control("alive_until", "late", bounds(kinds="crash"), 7),
    Control("alive_renewed", "overtaken", bounds(clients=3), 7),
    Control("alive_outlasts", "overtaken", bounds(clients=3), 8),
    Control("stopped_leaves", "gone", bounds(kinds="cancel"), 6),
    Control("leave_hands_on", "asleep", bounds(kinds="cancel"), 5),
    Control("force_hands_on", "asleep", bounds(kinds="force"), 6),
    Control("release_hands_on", "asleep", bounds(), 6),
    Control("absent_hands_on", "asleep", bounds(clients=3, kinds="crash"), 10),
    Control("ours_by_meta", "asleep", bounds(kinds="foreign"), 4),
    Control("foreign_listens", "overtaken", bounds(clients=3, kinds="foreign"), 8),
    Control("noted_grows", "asleep", bounds(clients=3, kinds="again"), 16),
    Control("renew_grows_meta", "no fence", bounds(), 4),
    Control("meta_outlives", "fence", bounds(kinds="clock"), 7),
    Control("fence_above_last", "fence", bounds(kinds="clock"), 6),
    Control("look=", "asleep", bounds(clients=3, kinds="crash"), 9),
    Control("look_onward", "endless", bounds(clients=3), 9),
    Control("look_leaves_mail", "asleep", bounds(clients=3), 15),
    Control("look_again", "asleep", bounds(clients=3, kinds="crash"), 11),
    Control("seen=anyone", "asleep beside", SEEN, 10),
    Control("last_look_pokes", "asleep", bounds(clients=3, kinds="crash exit", faults=2), 11),
    Control("foreign_pokes", "asleep", bounds(clients=3, kinds="crash foreign", faults=2), 12),
    Control("shorter_pokes", "asleep", SHORT_AND_KILLED, 12),
    Control("cut_pokes", "asleep", bounds(kinds="crash", cuts=True), 8),
    Control("cut_from_send", "two believers", bounds(kinds="again", cuts=True), 7),
    Control("busy_leaves_mail", "asleep", CUT_LOST_AND_KILLED, 10),
    Control("cut_stays", "two believers", bounds(kinds="again", cuts=True), 11),
    Control("claim_short", "late", bounds(kinds="vanish", ahead=True), 7),
    Control("claim_believed_short", "two believers", bounds(clients=3, ahead=True), 10),
    Control("claim_fresh", "two believers", bounds(clients=3, kinds="stall", ahead=True), 10),
    Control("claim_looked_at", "asleep", bounds(clients=3, kinds="crash", ahead=True), 11),
    Control("claim_seen", "asleep", SEEN_AHEAD, 11),
    Control("early_kept", "asleep", bounds(in_loops=True), 9),
    Control("cut_wakes", "asleep", bounds(kinds="cut", in_loops=True), 9),
    Control("cut_noted", "asleep", bounds(kinds="cut", in_loops=True), 9),
    Control("successor_first", "overtaken", bounds(clients=3, one_loop=True), 7),
    Control("successor_from_send", "two believers", bounds(clients=3, one_loop=True), 9),
    Control("successor_told", "asleep", bounds(kinds="again force", faults=2, one_loop=True), 9),
    Control("kept_pokes=", "asleep", bounds(keeps=True), 7),
    Control("kept_pokes=first", "asleep", bounds(clients=3, kinds="crash", keeps=True), 9),
    Control("kept_renamed", "not kept", bounds(kinds="again", keeps=True), 8),
]
# It takes a second and more to find something within these.
WIDE = [
    SEEN,
    SEEN_AHEAD,
    SHORT_AND_KILLED,
    CUT_LOST_AND_KILLED,
    bounds(clients=3, kinds="again"),
    bounds(clients=3, kinds="crash foreign", faults=2),
]
# The rules as shipped take long to search within these.
TWICE = bounds(clients=3, turns=2)
LOST_AND_KILLED = bounds(clients=3, kinds="again crash", faults=2)
TWO_KILLED = bounds(clients=4, kinds="crash", faults=2)
CUT_AND_LEFT = bounds(clients=3, kinds="crash impatient", faults=2, cuts=True)
DEEP_CONTROLS = [
    Control("lapsed_is_gone", "gone", bounds(clients=3, kinds="expire", one_loop=True), 18),
    Control("gone_refused fresh_token", "two believers", bounds(turns=2, kinds="again"), 10),
    Control("retry_told", "asleep", LOST_AND_KILLED, 10),
    Control("look_follows", "asleep", TWO_KILLED, 12),
    Control("leaver_pokes", "asleep", CUT_AND_LEFT, 11),
    Control("look=drop", "overtaken", TWICE, 13),
    Control("look=skip", "overtaken", TWICE, 13),
]


def named(control: Control) -> str:
    return f"{control.without}-{control.wrong}"


def bounded(model: Model) -> str:
    kinds = "any" if model.kinds == ALL_FAULTS else " ".join(sorted(model.kinds))
    more = " once more" * model.more + " short" * (SHORT in model.leases) + " cuts" * model.cuts
    more += f" {model.ahead[: model.clients]} ahead" * bool(model.ahead)
    more += " kept" * bool(model.keeps)
    more += " in one loop" if model.one_loop else " in loops" * bool(model.in_loops)
    more += f" rank_returns={model.rules.rank_returns}" * (model.rules != Rules())
    return f"{model.clients} clients {model.turns} turns {model.faults} faults {kinds}{more}"


SHORT_SEARCHES = [
    Model(2, 1, faults=2),
    Model(2, 1, faults=1, cuts=True),
    Model(3, 1, faults=1),
    Model(2, 1, faults=1, cuts=True, ahead=ALL),
    Model(2, 1, faults=1, keeps=ALL),
    Model(2, 1, faults=1, in_loops=ALL),
    Model(2, 1, faults=1, in_loops=ALL, one_loop=True),
]
LONG_SEARCHES = [
    SEEN,
    Model(2, 1, faults=2, ahead=ALL),
    Model(2, 1, faults=2, keeps=ALL),
    Model(2, 1, faults=2, in_loops=ALL),
    Model(2, 1, faults=2, in_loops=ALL, one_loop=True),
    bounds(clients=3, kinds="cut crash", faults=2, in_loops=True),
    replace(bounds(clients=3, kinds="crash", short=0), keeps=ALL),
    CUT_AND_LEFT,
    Model(2, 1, faults=2, cuts=True),
    Model(2, 2, faults=1),
    Model(3, 1, faults=1, rules=replace(Rules(), rank_returns="always")),
    Model(3, 1, faults=1, rules=replace(Rules(), rank_returns="")),
    Model(3, 1, faults=2, kinds=ALL_FAULTS - {"again", "clock", "force"}),
    bounds(clients=4),
]
LONGEST_SEARCHES = [
    SEEN_AHEAD,
    Model(3, 1, faults=1, ahead=ALL),
    Model(3, 1, faults=1, ahead="b"),
    Model(3, 1, faults=1, in_loops=ALL),
    Model(3, 1, faults=1, in_loops=ALL, one_loop=True),
    Model(3, 1, faults=1, in_loops="b", ahead="ac"),
    Model(3, 1, faults=1, keeps=ALL),
    Model(3, 1, faults=1, ahead=ALL, keeps=ALL),
    Model(2, 2, faults=1, keeps=ALL),
    Model(2, 2, faults=1, ahead=ALL),
    LOST_AND_KILLED,
    TWO_KILLED,
    TWICE,
    Model(2, 1, faults=3),
    Model(3, 1, faults=1, cuts=True),
    Model(3, 1, faults=1, leases=(LONG, SHORT, LONG)),
]


def takes_long(model: Model) -> bool:
    """Whether that many states are left to the long tests, as one of a kind."""
    return model.faults + model.clients > 3


# One process searches for both.
SEARCHES = pytest.mark.xdist_group("short searches of the model")


@SEARCHES
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=[pytest.mark.storm] if takes_long(model) else [])
        for model in SHORT_SEARCHES
    ],
    ids=bounded,
)
def test_the_rules_as_shipped_allow_no_violation(model: Model) -> None:
    found = search(model)

    assert found.complete
    assert not found.wrong


@SEARCHES
@pytest.mark.storm
@pytest.mark.timeout(300)
def test_the_search_meets_every_kind_of_step() -> None:
    searches = map(search, SHORT_SEARCHES)
    seen = " ".join(step for found in searches for step in found.steps_seen)

    for step in (
        "late, sends again",
        "lost, sends again",
        "late copy",
        "is cancelled",
        "waits no longer",
        "ASK once: BUSY",
        "is killed",
        "loses power",
        "believes no longer",
        "the claim of",
        "the lease of",
        "alive-until of",
        "the clock steps back",
        "meta expires",
        "operator: FORCE",
        "operator: LOOK",
        "a foreign client takes N",
        "gets OK",
        "RENEW: OK",
        "RENEW: LOST",
        "RELEASE: LOST",
        "ASK: GONE",
        "LEAVE: OK",
        "CUT: OK",
        "CUT: LOST",
        "watchdog: LOOK at b1: b1",
        "watchdog: LOOK at b1: c1",
        "watchdog: LOOK at -: c1",
        "watchdog: LOOK at -: done",
        "lost, to be sent again",
        "late, to be sent again",
        "late copy: look",
        "late copy: cut",
        "last LOOK",
        "slice ends",
        "took it by what was sent ahead",
        "took it by what was sent too long ago",
        "its loop fetches its mail",
        "its loop is cut off",
        "the time of kept:a1 is over",
    ):
        assert step in seen, step


@pytest.mark.parametrize(
    "control",
    [
        *(
            pytest.param(one, marks=[pytest.mark.storm] if one.model in WIDE else [])
            for one in CONTROLS
        ),
        *(pytest.param(one, marks=pytest.mark.storm) for one in DEEP_CONTROLS),
    ],
    ids=named,
)
def test_without_a_rule_there_is_a_violation(control: Control) -> None:
    only = "asleep beside" if control.wrong == "asleep" else control.wrong

    found = search(replace(control.model, rules=control.rules, only=only))

    assert found.wrong.startswith(control.wrong)
    assert found.steps == control.found


def of_controls() -> Iterator[Any]:
    """Give the bounds of the controls, unless wider ones are searched: here or later."""
    for model in dict.fromkeys(control.model for control in CONTROLS):
        searched = SHORT_SEARCHES + LONG_SEARCHES + LONGEST_SEARCHES
        if not any(model.is_within(wider) for wider in searched):
            takes_long = model == SHORT_AND_KILLED
            yield pytest.param(model, marks=[pytest.mark.storm] if takes_long else [])


@pytest.mark.parametrize("model", list(of_controls()), ids=bounded)
def test_with_all_rules_there_is_none_within_the_same_bounds(model: Model) -> None:
    found = search(model)

    assert found.complete
    assert not found.wrong


# LOOK and who is between two slices

LOOKED_AT = replace(TWICE, overtaken=0)


@pytest.mark.storm
def test_a_look_that_comes_later_than_any_trip_lets_none_be_overtaken() -> None:
    found = search(replace(LOOKED_AT, trips_end=True))

    assert found.complete
    assert not found.wrong


def test_look_in_the_same_trip_as_the_release_overtakes_even_so() -> None:
    at_once = replace(Rules(), look_later=False)

    found = search(replace(LOOKED_AT, trips_end=True, rules=at_once))

    assert found.wrong == "overtaken too often by way of LOOK"


@pytest.mark.parametrize("times", [0, 1, pytest.param(2, marks=pytest.mark.storm)])
def test_a_waiter_slow_between_two_slices_is_overtaken_once_for_each_look(times: int) -> None:
    found = search(replace(LOOKED_AT, overtaken=times))

    looks = sum("LOOK at" in step and "done" not in step for step, _ in found.trace)
    assert found.wrong == "overtaken too often by way of LOOK"
    assert looks >= times + 1


def test_two_that_fall_silent_cost_the_others_a_slice() -> None:
    # One was to look after the other: who releases and the head of the queue are both killed.
    found = search(replace(bounds(clients=3, kinds="crash", faults=2), only=TWO_SILENT))

    assert found.wrong == TWO_SILENT


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "model",
    [
        *(pytest.param(model, marks=pytest.mark.storm) for model in LONG_SEARCHES),
        *(pytest.param(model, marks=pytest.mark.marathon) for model in LONGEST_SEARCHES),
    ],
    ids=bounded,
)
def test_the_rules_as_shipped_hold_out_longer(model: Model) -> None:
    found = search(model)

    assert found.complete
    assert not found.wrong
