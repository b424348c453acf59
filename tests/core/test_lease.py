"""How long a lease is believed in, whatever arrives in whatever order."""

from __future__ import annotations

import pytest

from django_setnx_lock.core.locks.options import LockOptions
from django_setnx_lock.core.renewal.lease import Lease

SENT = 1000.0


@pytest.fixture
def lease() -> Lease:
    return Lease(30, SENT + 30)


def test_a_lease_is_to_be_renewed_when_a_third_of_it_is_over(lease: Lease) -> None:
    assert lease.due == SENT + 10


def test_a_confirmation_counts_from_when_the_request_was_sent(lease: Lease) -> None:
    lease.confirm(SENT + 10, 30)

    assert lease.end == SENT + 40


def test_a_confirmation_that_arrives_late_takes_nothing_back(lease: Lease) -> None:
    lease.confirm(SENT + 10, 600)

    lease.confirm(SENT + 5, 30)

    assert lease.end == SENT + 610


def test_a_renewed_lease_is_due_a_third_later(lease: Lease) -> None:
    lease.confirm(SENT + 10, 30)

    lease.plan(SENT + 10)

    assert lease.due == SENT + 20


def test_a_lease_with_less_left_than_could_be_is_due_at_once(lease: Lease) -> None:
    lease.plan(SENT + 10)

    assert lease.due == SENT + 10


@pytest.mark.parametrize(
    ("at", "asked"), [(10, 30_000), (20, 25_000), (44.9995, 1), (45, 1), (50, 1)]
)
def test_no_renewal_asks_for_more_than_max_hold_leaves(at: float, asked: int) -> None:
    lease = Lease(30, SENT + 30, max_hold=45)

    assert lease.to_ask(SENT + at) == asked


def test_a_lease_that_reaches_max_hold_is_not_renewed_over_and_over() -> None:
    lease = Lease(30, SENT + 30, max_hold=45)
    lease.confirm(SENT + 20, 25)

    lease.plan(SENT + 20)

    assert lease.end == SENT + 45
    assert lease.reached_max_hold
    assert lease.due == SENT + 30


@pytest.mark.parametrize(
    ("max_hold", "first"), [(None, 30_000), (60, 30_000), (10, 10_000), (0.25, 250)]
)
def test_the_first_lease_is_no_longer_than_max_hold(max_hold: float | None, first: int) -> None:
    assert LockOptions(renew=True, max_hold=max_hold, timeout=30).lease_ms == first
