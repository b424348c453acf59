"""When a lock that cannot be renewed is given up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core.renewal.lease import Lease

# Moments of a lease that no clock outside can hit, and a release that never ends.
from django_setnx_lock.management.with_lock.supervisor import Release, gives_up_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import LockHandle


def lease_of(seconds: float) -> Lease:
    """Give a lease that began at 1000."""
    return Lease(seconds, 1000 + seconds)


def at(lease: Lease, now: float) -> float:
    """Say when the lease is given up with a notice of 11 s and a margin of 1 s."""
    return gives_up_at(lease, now, 11, 1)


def test_the_first_look_is_as_long_before_the_end_as_the_command_may_need() -> None:
    assert at(lease_of(30), 1000) == 1019


def test_without_a_failure_it_is_given_up_a_margin_before_its_end() -> None:
    assert at(lease_of(30), 1020) == 1029


def test_renewals_that_fail_for_long_give_it_up_before_its_end() -> None:
    lease = lease_of(30)
    lease.tried_since = 1010

    assert at(lease, 1015) == at(lease, 1027) == 1019


@pytest.mark.parametrize(("since", "expected"), [(1017, 1022), (1028, 1029)])
def test_an_attempt_that_begins_late_has_a_sixth_of_the_lease_or_until_the_margin(
    since: float, expected: float
) -> None:
    lease = lease_of(30)
    lease.tried_since = since

    assert at(lease, since) == expected


def test_a_renewal_that_works_again_gives_a_whole_lease() -> None:
    lease = lease_of(30)
    lease.tried_since = 1010
    lease.confirm(1011, 30)
    lease.tried_since = None

    assert at(lease, 1011) == 1030


class FakeHeld:
    """A lock whose release does what ``answer`` does."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self.release = answer


def unavailable() -> None:
    raise LockUnavailable("down")


def released(answer: Callable[[], object], changed: threading.Event) -> Release:
    release = Release(cast("LockHandle", FakeHeld(answer)), changed.set)
    release.start()
    return release


def test_a_release_that_does_not_end_keeps_nobody_waiting() -> None:
    answered, changed = threading.Event(), threading.Event()

    release = released(lambda: answered.wait(10), changed)

    assert not release.is_over.is_set()
    assert not changed.is_set()
    answered.set()
    assert changed.wait(10)
    assert release.is_over.is_set()
    assert release.error is None


def test_where_no_thread_can_be_started_the_release_is_over_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    changed = threading.Event()

    release = released(unavailable, changed)

    assert changed.is_set()
    assert release.is_over.is_set()
    assert str(release.error) == "down"


def test_a_release_that_fails_tells_why() -> None:
    changed = threading.Event()

    release = released(unavailable, changed)

    assert changed.wait(10)
    assert release.is_over.is_set()
    assert str(release.error) == "down"
