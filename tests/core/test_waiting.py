from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_setnx_lock.core.locks import mailbox
from django_setnx_lock.core.locks.mailbox import time_to_sleep
from django_setnx_lock.core.protocol.replies import Busy

TRIES = st.integers(1, 10**6)
SECONDS = st.floats(0, 1e6)
SLICE = mailbox.SLICE_MS / 1000


def ours(remaining: float | None = 3600.0) -> Busy:
    return Busy(remaining, None)


def foreign(remaining: float | None = None) -> Busy:
    return Busy(remaining, None, foreign=True)


@given(st.builds(Busy, st.none() | SECONDS, st.none(), st.booleans()), TRIES, st.none() | SECONDS)
def test_a_sleep_is_never_negative_nor_longer_than_a_slice(
    answer: Busy, tries: int, left: float | None
) -> None:
    assert 0 < time_to_sleep(answer, tries, left) <= SLICE


@given(st.builds(Busy, SECONDS, st.none(), st.booleans()), TRIES, SECONDS)
def test_a_sleep_does_not_reach_beyond_the_lease_or_the_callers_time(
    answer: Busy, tries: int, left: float
) -> None:
    seconds = time_to_sleep(answer, tries, left)

    assert answer.remaining is not None
    assert seconds <= answer.remaining + 0.001
    assert seconds <= max(left, 0.001)


@given(TRIES, st.floats(0.001, 1e6))
def test_behind_a_holder_of_ours_a_waiter_sleeps_until_the_lease_ends(
    tries: int, remaining: float
) -> None:
    assert time_to_sleep(ours(remaining), tries, None) >= min(remaining, 0.9 * SLICE)


@given(TRIES)
def test_behind_a_foreign_holder_a_waiter_asks_again_soon(tries: int) -> None:
    assert time_to_sleep(foreign(), tries, None) <= 0.1


def test_pauses_behind_a_foreign_holder_grow_from_a_few_milliseconds_to_a_tenth_of_a_second() -> (
    None
):
    first = max(time_to_sleep(foreign(), 1, None) for _ in range(100))
    later = max(time_to_sleep(foreign(), 30, None) for _ in range(100))

    assert 0.004 < first <= 0.01
    assert 0.05 < later <= 0.1


@pytest.mark.parametrize("answer", [foreign(), ours(60.0)], ids=["foreign", "ours"])
def test_waiters_do_not_ask_in_step(answer: Busy) -> None:
    assert len({time_to_sleep(answer, 5, None) for _ in range(20)}) > 10


def test_a_lease_that_just_ended_is_not_waited_for_in_a_busy_loop() -> None:
    assert time_to_sleep(ours(0.0), 5, None) == pytest.approx(0.001)
