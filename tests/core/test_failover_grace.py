from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core.locks.attempt import LONGEST_OUTAGE, FailoverGrace
from tests.core.helpers import FakeTime

WATCHED = SimpleNamespace(connection_pool=SimpleNamespace(sentinel_manager=object()))
ALONE = SimpleNamespace(connection_pool=SimpleNamespace())


def gone(cause: str = "unreachable") -> LockUnavailable:
    return LockUnavailable("Redis is away", key="a", cause=cause)


@pytest.mark.parametrize("cause", ["unreachable", "timeout", "readonly"])
def test_a_wait_goes_on_soon_where_sentinels_name_the_primary(
    fake_time: FakeTime, cause: str
) -> None:
    assert 0.1 <= FailoverGrace(WATCHED).retry_delay(gone(cause), None) <= 0.2


@pytest.mark.parametrize("client", [ALONE, SimpleNamespace()], ids=["one server", "a cluster"])
def test_elsewhere_it_ends(fake_time: FakeTime, client: Any) -> None:
    with pytest.raises(LockUnavailable):
        FailoverGrace(client).retry_delay(gone(), None)


@pytest.mark.parametrize("cause", ["denied", "memory", "replicas", "server"])
def test_it_ends_for_what_a_failover_does_not_end(fake_time: FakeTime, cause: str) -> None:
    with pytest.raises(LockUnavailable):
        FailoverGrace(WATCHED).retry_delay(gone(cause), None)


def test_it_ends_when_the_callers_time_is_over(fake_time: FakeTime) -> None:
    outage, give_up_at = FailoverGrace(WATCHED), fake_time.now + 0.05

    assert outage.retry_delay(gone(), give_up_at) == pytest.approx(0.05)
    fake_time.now = give_up_at
    with pytest.raises(LockUnavailable):
        outage.retry_delay(gone(), give_up_at)


def test_one_without_limit_ends_after_a_minute_without_any_answer(fake_time: FakeTime) -> None:
    outage = FailoverGrace(WATCHED)
    outage.retry_delay(gone(), None)
    fake_time.now += LONGEST_OUTAGE

    with pytest.raises(LockUnavailable):
        outage.retry_delay(gone(), None)


def test_an_answer_in_between_gives_it_another_minute(fake_time: FakeTime) -> None:
    outage = FailoverGrace(WATCHED)
    outage.retry_delay(gone(), None)
    fake_time.now += LONGEST_OUTAGE
    outage.is_over()

    assert outage.retry_delay(gone(), None)


def test_it_is_logged_once_an_outage(fake_time: FakeTime, caplog: pytest.LogCaptureFixture) -> None:
    outage = FailoverGrace(WATCHED)

    with caplog.at_level(logging.DEBUG, "django_setnx_lock.lock"):
        outage.retry_delay(gone(), None)
        outage.retry_delay(gone(), None)

    assert caplog.messages == ["waits on for the lock 'a' through an outage: Redis is away"]
