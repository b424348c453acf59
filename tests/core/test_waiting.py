from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_setnx_lock.core import waiting

TRIES = st.integers(1, 10**6)
SECONDS = st.floats(0, 1e6)


@given(TRIES, st.none() | SECONDS, st.none() | SECONDS)
def test_a_pause_is_never_negative_nor_long(
    tries: int, remaining: float | None, left: float | None
) -> None:
    assert 0 <= waiting.pause(tries, remaining, left) <= 0.1


@given(TRIES, SECONDS, SECONDS)
def test_a_pause_does_not_reach_beyond_the_lease_or_the_callers_time(
    tries: int, remaining: float, left: float
) -> None:
    pause = waiting.pause(tries, remaining, left)

    assert pause <= remaining + 0.001
    assert pause <= left


def test_pauses_grow_from_a_few_milliseconds_to_a_tenth_of_a_second() -> None:
    first = max(waiting.pause(1, None, None) for _ in range(100))
    later = max(waiting.pause(30, None, None) for _ in range(100))

    assert first <= 0.008
    assert 0.05 < later <= 0.1


def test_waiters_do_not_pause_in_step() -> None:
    assert len({waiting.pause(5, None, None) for _ in range(20)}) > 10


def test_a_lease_that_just_ended_is_not_waited_for_in_a_busy_loop() -> None:
    assert waiting.pause(5, 0.0, None) == pytest.approx(0.001)


def test_a_waiter_counts_as_waiting_beyond_its_longest_pause() -> None:
    assert waiting.PRESENCE_MS > 10 * 100
