"""What the answers of several masters come to."""

from __future__ import annotations

from typing import Any

import pytest

from django_setnx_lock.core.connections.quorum import busy, decide, drift
from django_setnx_lock.core.protocol.requests import ACQUIRE, LOCKED, RELEASE, RENEW, Request

OK, GONE, LOST = [b"OK", 10_000], [b"GONE"], [b"LOST", None]
BUSY, FOREIGN = [b"BUSY", 5000, b"ann"], [b"BUSY", -1, None]


def decided(script: Any, values: list[Any], count: int = 5, missing: int = 0, how: str = "") -> Any:
    return decide(Request(script, ("lock:a",), ("token", how)), values, count, missing)


@pytest.mark.parametrize(("count", "needed"), [(3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(count: int, needed: int) -> None:
    assert decided(ACQUIRE, [OK] * needed, count) == OK
    assert decided(ACQUIRE, [OK] * (needed - 1), count) is None


@pytest.mark.parametrize(
    ("values", "missing", "word"),
    [
        ([OK, OK, OK, BUSY, BUSY], 0, b"OK"),
        ([OK, OK, OK], 2, b"OK"),
        ([BUSY, BUSY, BUSY, OK, OK], 0, b"BUSY"),
        # Two took it at once and nobody has a majority.
        ([OK, OK, BUSY, BUSY, GONE], 0, b"BUSY"),
        # A majority has answered, and one of them that somebody else has it.
        ([OK, OK, BUSY], 0, b"BUSY"),
        ([GONE, GONE, GONE], 0, b"BUSY"),
        ([BUSY, BUSY], 0, None),
        # One that answers yet may grant it.
        ([OK, OK, BUSY, BUSY], 1, None),
        ([OK, BUSY, BUSY, BUSY], 1, b"BUSY"),
    ],
)
def test_what_answers_to_a_taking_come_to(
    values: list[Any], missing: int, word: bytes | None
) -> None:
    assert (decided(ACQUIRE, values, missing=missing) or [None])[0] == word


def test_a_busy_lock_is_held_by_who_has_most_of_it_for_as_long_as_the_last_of_these() -> None:
    longer = [b"BUSY", 7000, b"ann"]

    assert busy([BUSY, longer, FOREIGN], has_some=True) == [b"BUSY", 7000, b"ann", None, True]
    assert busy([FOREIGN, [b"BUSY", 7000, None], BUSY], has_some=False)[1:3] == [-1, None]
    # Whoever is to ask again pauses.
    assert busy([[b"BUSY", 1, b"ann"]], has_some=False)[1] == 50


@pytest.mark.parametrize("script", [RENEW, RELEASE])
@pytest.mark.parametrize(
    ("values", "count", "word"),
    [
        ([OK, OK, OK, LOST, LOST], 5, b"OK"),
        ([LOST, LOST, LOST], 5, b"LOST"),
        ([OK, OK, LOST, LOST], 5, None),
        # Nobody can have three of four.
        ([OK, OK, LOST, LOST], 4, b"LOST"),
    ],
)
def test_what_answers_to_a_holder_come_to(
    script: Any, values: list[Any], count: int, word: bytes | None
) -> None:
    assert (decided(script, values, count) or [None])[0] == word


def test_a_renewal_has_given_what_a_majority_has_less_the_drift() -> None:
    values = [[b"OK", ms] for ms in (9000, 10_000, 20_000, 1000, 30_000)]

    assert drift(10) == pytest.approx(0.102)
    assert decided(RENEW, values) == [b"OK", 10_000 - 102]
    assert decided(RENEW, [[b"OK", -1], [b"OK", -1], [b"OK", 5]], 3) == [b"OK", -1]


def test_one_master_that_knows_of_a_stop_or_of_force_is_enough() -> None:
    assert decided(RENEW, [OK, [b"OK", 10_000, b"stop"], OK], 3) == [b"OK", 9898, b"stop"]
    assert decided(RELEASE, [LOST, [b"LOST", b"joe"], LOST]) == [b"LOST", b"joe", None]


def test_what_is_taken_back_is_so_whoever_answers() -> None:
    assert decided(RELEASE, [], how="cancel") == decided(RELEASE, [], how="doubt") == [b"OK", None]


def test_a_lock_is_held_where_nobody_can_have_a_majority() -> None:
    held = [decided(LOCKED, some) for some in ([1, 1, 1], [1, 1, 0, 0, 0], [1, 1])]

    assert held == [True, False, None]
    # Nobody can get three of four any more.
    assert decided(LOCKED, [1, 1, 0, 0], 4) == 1
