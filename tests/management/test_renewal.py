"""When a lock that cannot be renewed is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockUnavailable
from django_setnx_lock.core.held import Held
from django_setnx_lock.management.renewal import Renewal
from tests.processes import eventually


class FakeHeld:
    """A lock whose renewals and release do what ``answer`` does."""

    def __init__(self, timeout: float, answer: Callable[[], object] = lambda: None) -> None:
        self.timeout = timeout
        self.answer = answer
        self.renewals = 0

    def remaining(self) -> float:
        return self.timeout

    def reacquire(self) -> None:
        self.renewals += 1
        self.answer()

    release = reacquire


class FakeClock:
    time = 1000.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(clock, "now", fake.now)
    return fake


@pytest.fixture
def renewal_of() -> Iterator[Callable[[FakeHeld], Renewal]]:
    """Give a function that makes a renewal, which is stopped in the end."""
    made: list[Renewal] = []

    def renewal_of(held: FakeHeld) -> Renewal:
        made.append(Renewal(cast("Held", held), lambda: None))
        return made[-1]

    yield renewal_of
    for renewal in made:
        renewal.stop()


RenewalOf = Callable[[FakeHeld], Renewal]


def fail() -> None:
    raise LockUnavailable("down")


@pytest.mark.parametrize(("timeout", "notice"), [(0.6, 0.1), (30, 5), (3600, 10)])
def test_the_first_look_is_a_sixth_of_the_lease_before_its_end_or_ten_seconds(
    fake_clock: FakeClock, renewal_of: RenewalOf, timeout: float, notice: float
) -> None:
    renewal = renewal_of(FakeHeld(timeout))

    assert renewal.gives_up_at == pytest.approx(1000 + timeout - notice)


def test_without_a_failure_it_is_given_up_at_the_end_of_its_lease(
    fake_clock: FakeClock, renewal_of: RenewalOf
) -> None:
    renewal = renewal_of(FakeHeld(30))

    fake_clock.time += 26

    assert renewal.gives_up_at == 1030


def test_renewals_that_fail_for_long_give_it_up_before_its_end(
    fake_clock: FakeClock, renewal_of: RenewalOf
) -> None:
    held = FakeHeld(30, fail)
    renewal = renewal_of(held)

    fake_clock.time += 10
    renewal.start()
    eventually(lambda: renewal.error)

    assert renewal.gives_up_at == 1025


def test_an_attempt_that_begins_late_has_until_the_end(
    fake_clock: FakeClock, renewal_of: RenewalOf
) -> None:
    answered = threading.Event()
    held = FakeHeld(30, lambda: answered.wait(10))
    renewal = renewal_of(held)

    fake_clock.time += 28
    renewal.start()
    eventually(lambda: held.renewals)

    assert renewal.gives_up_at == 1030
    answered.set()
    eventually(lambda: renewal.lease_end == 1058)


def test_a_renewal_that_works_again_forgets_the_failure(
    fake_clock: FakeClock, renewal_of: RenewalOf
) -> None:
    held = FakeHeld(30, fail)
    renewal = renewal_of(held)
    fake_clock.time += 10
    renewal.start()
    eventually(lambda: renewal.error)

    held.answer = lambda: None
    fake_clock.time += 1
    eventually(lambda: renewal.lease_end == 1041)

    assert renewal.error is None
