"""What the bench says of figures, and what makes it refuse a run."""

from __future__ import annotations

from typing import Any

from bench.bars import judge
from bench.part import medians
from bench.report import problems, section


def contended(**figures: Any) -> dict[str, Any]:
    """Return the results of a part in which one peer had ``figures``, and the control overlaps."""
    return {"full": {"figures": figures}, "nothing": {"figures": {"overlaps": 7}}}


def test_a_figure_is_the_median_of_its_rounds() -> None:
    rounds = [{"handover_p50_ms": value} for value in (9.0, 1.0, 2.0)]

    assert medians(rounds) == {"handover_p50_ms": 2.0}


def test_one_overlap_in_one_round_is_not_lost_in_a_median() -> None:
    rounds = [{"overlaps": count} for count in (0, 1, 0)]

    assert medians(rounds) == {"overlaps": 1}


def test_the_most_overtaken_is_that_of_the_worst_round() -> None:
    rounds = [{"most_overtaken": count} for count in (0, 5, 1)]

    assert medians(rounds) == {"most_overtaken": 5}


def test_a_figure_that_some_rounds_do_not_have_comes_from_the_others() -> None:
    assert medians([{"a": 1.0}, {"a": None}, {}]) == {"a": 1.0}


def test_a_run_without_overlaps_of_ours_is_sound() -> None:
    results = {"parts": {"contended": contended(overlaps=0)}}

    assert problems(results, ["full"]) == []


def test_an_overlap_of_ours_voids_the_run() -> None:
    results = {"parts": {"contended": contended(overlaps=1)}}

    assert "was wrong" in problems(results, ["full"])[0]


def test_a_control_without_overlaps_voids_the_run() -> None:
    results = {"parts": {"contended": {"nothing": {"figures": {"overlaps": 0}}}}}

    assert "prove nothing" in problems(results, ["full"])[0]


def test_a_failure_of_ours_voids_the_run() -> None:
    results = {"parts": {"pool": {"full": {"failed": "LockUnavailable: no"}}}}

    assert problems(results, ["full"]) == [
        "pool: django-setnx-lock, all on failed: LockUnavailable: no"
    ]


def test_a_peer_that_failed_is_told_in_words() -> None:
    part = {"sherlock": {"failed": "ModuleNotFoundError:\n no module"}}

    assert "sherlock failed: ModuleNotFoundError: no module" in section("solo", part)


def test_a_figure_that_cannot_be_had_is_a_dash() -> None:
    part = {"plain": {"figures": {"release_p50_ms": 1.0}}}

    assert "| django-setnx-lock, plain | 1.0 | - |" in section("pool", part)


def test_a_bar_is_met_at_its_limit_and_missed_above_it() -> None:
    verdicts = [
        judge({"solo": {"full": {"figures": {"new_ratio": value}}}})[0].met
        for value in (0.82, 0.83)
    ]

    assert verdicts == [True, False]


def test_the_total_is_held_against_the_best_of_the_others() -> None:
    part = {
        "full": {"figures": {"total_over_ideal": 1.15}},
        "plain": {"figures": {"total_over_ideal": 1.0}},
        "sherlock": {"figures": {"total_over_ideal": 1.1}},
        "pottery": {"figures": {"total_over_ideal": 1.3}},
    }

    first, second = judge({"contended": part})

    assert first.met
    assert (second.bar, second.met) == ("<= 1.10", False)


def test_a_thousand_locks_without_a_renewal_miss_their_bar() -> None:
    figures = {"threads": 1, "requests_per_cycle": None}

    assert [bar.met for bar in judge({"many": {"full": {"figures": figures}}})] == [False]


def test_a_control_without_overlaps_voids_each_part_that_has_one() -> None:
    parts = {name: {"nothing": {"figures": {"overlaps": 0}}} for name in ("tasks", "capacity")}

    assert len(problems({"parts": parts}, ["full"])) == 2


def test_a_crowd_that_failed_misses_its_bar_and_the_others_keep_theirs() -> None:
    figures = {
        "crowd": 3000,
        "handover_p50_ms": 0.4,
        "each_queued_s": 0.9,
        "each_connections": 3001,
    }

    verdicts = {bar.what: bar.met for bar in judge({"tasks": {"full": {"figures": figures}}})}

    assert verdicts == {
        "hand-over between tasks p50": True,
        "3,000 tasks that wait for one lock": False,
        "3,000 tasks that wait for a lock each, queued in": True,
        "3,000 tasks that wait for a lock each, connections": False,
    }


def test_the_footprint_has_a_bar_for_each_thing_that_could_leave_a_key() -> None:
    figures = {
        "times": 20_000,
        "keys_after_cycles": 2,
        "keys_of_busy": 2,
        "keys_per_name": 2.0,
        "bytes_per_name": 401.0,
    }

    verdicts = judge({"footprint": {"full": {"figures": figures}}})

    assert [bar.met for bar in verdicts] == [True, False, True, False]
    assert verdicts[0].what == "keys after 20,000 cycles of one name"


def test_the_time_of_the_server_has_bars_for_a_cycle_and_for_a_turn() -> None:
    figures = {"server_us_100_names": 45.0, "server_us_10_waiters": 301.0}

    verdicts = judge({"capacity": {"full": {"figures": figures}}})

    assert [bar.met for bar in verdicts] == [True, False]


def test_a_queue_in_which_nobody_had_a_turn_misses_its_bar() -> None:
    figures = {"server_us_100_names": 45.0, "server_us_10_waiters": None}

    verdicts = judge({"capacity": {"full": {"figures": figures}}})

    assert [(bar.seen, bar.met) for bar in verdicts] == [
        ("45 us", True),
        ("nobody had a turn", False),
    ]


def test_a_part_that_was_left_out_has_no_bars() -> None:
    assert judge({}) == []
