from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_setnx_lock import LockBusy, LockError, inspector, lock, redis_lock, rwlock, semaphore
from django_setnx_lock.core import State


def test_readers_hold_a_lock_together_and_exclude_lock() -> None:
    report = rwlock("report")

    with report.read(), report.read(reentrant=False):
        assert inspector().get("lock:report").state is State.READ
        with pytest.raises(LockBusy):
            lock("report", reentrant=False).take(0)


@override_settings(SETNX_LOCK={"REENTRANT": True})
def test_whoever_writes_is_a_holder_like_any_other() -> None:
    with rwlock("report").write(), lock("report") as again:
        assert again.owned()
        assert inspector().get("lock:report").state is State.HELD


@override_settings(SETNX_LOCK={"REENTRANT": True})
def test_the_settings_count_for_it_too() -> None:
    report = rwlock("report")

    with report.read(), pytest.raises(LockError, match="would wait for itself"):
        report.write().take()


def test_a_semaphore_has_so_many_permits() -> None:
    exports = semaphore("exports", 2)

    with exports, exports, pytest.raises(LockBusy):
        semaphore("exports", 2).take(0)


def test_options_are_those_of_lock() -> None:
    assert semaphore("exports", 2, timeout=7).timeout == 7
    assert rwlock("report", timeout=7).read().timeout == 7


def test_what_is_wrong_is_told_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="limit is a number"):
        semaphore("exports", 0)
    with pytest.raises(TypeError, match="limits"):
        rwlock("report", limits=3)


def test_calls_that_are_shared_run_at_the_same_time() -> None:
    @redis_lock("report", shared=True)
    def read() -> bool:
        return lock("report", shared=True, reentrant=False).acquire(blocking=False)

    @redis_lock("other")
    def write() -> bool:
        return lock("other", shared=True, reentrant=False).acquire(blocking=False)

    assert (read(), write()) == (True, False)


def test_no_more_calls_than_the_limit_run() -> None:
    @redis_lock("exports", limit=2, blocking_timeout=0)
    def export(within: int) -> None:
        if within:
            export(within - 1)

    export(1)
    with pytest.raises(LockBusy):
        export(2)


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": 2, "shared": True}, {"shared": True, "min_hold": 1}],
)
def test_what_makes_no_sense_is_refused_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit is a number|give one of them|min_hold"):
        redis_lock("exports", **options)
