"""What the kit says of locks, and what it has another process do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, lock, rwlock
from django_setnx_lock.signals import lock_lost
from django_setnx_lock.testing import LockTester
from tests.processes import in_thread
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from tests.servers import FakeServer


def test_a_lock_that_is_held_elsewhere_is_busy_and_names_another_process(
    locks: LockTester,
) -> None:
    held = locks.held_elsewhere("order:42", label="pay", user="ada")
    with held, pytest.raises(LockBusy) as caught:
        lock("order:42", reentrant=True).take(0)

    assert caught.value.holder is not None
    assert (caught.value.holder.host, caught.value.holder.label) == ("elsewhere.invalid", "pay")
    assert caught.value.holder.user == "ada"
    locks.assert_not_locked("order:42")


def test_readers_elsewhere_let_readers_in_and_writers_wait(locks: LockTester) -> None:
    with locks.held_elsewhere("report", shared=True):
        with rwlock("report").read():
            pass
        with pytest.raises(LockBusy):
            lock("report").take(0)


def test_permits_that_are_used_elsewhere_are_gone(locks: LockTester) -> None:
    one, other = (locks.held_elsewhere("mail", limit=2) for _ in range(2))
    with one, other, pytest.raises(LockBusy):
        any_lock("mail", limit=2).take(0)


def test_what_is_held_already_cannot_be_held_elsewhere(locks: LockTester) -> None:
    with lock("order:42"), pytest.raises(LockBusy), locks.held_elsewhere("order:42"):
        pass


def test_the_first_who_waits_gets_what_is_let_go_elsewhere(locks: LockTester) -> None:
    done = threading.Event()

    def wait() -> None:
        with lock("order:42"):
            done.set()

    with locks.held_elsewhere("order:42"):
        thread = threading.Thread(target=wait)
        thread.start()
        locks.assert_waiting("order:42", 1)
        assert not done.is_set()
    thread.join(10)

    assert done.is_set()


def test_whoever_does_not_wait_is_missed(locks: LockTester) -> None:
    with lock("a"), pytest.raises(AssertionError, match="0 wait for the lock 'a', not 1"):
        locks.assert_waiting("a", 1, within=0.01)


def test_a_held_lock_is_locked_and_not_released(locks: LockTester) -> None:
    with lock("a", label="here"):
        info = locks.assert_locked("a")
        with pytest.raises(AssertionError, match=r"'a' is held, by .*\(here\)"):
            locks.assert_not_locked("a")
        with pytest.raises(AssertionError, match=r"not released: 'a' is held"):
            locks.assert_released("a")

    assert info.holder is not None
    assert info.holder.label == "here"


def test_a_free_lock_is_released_and_not_locked(locks: LockTester) -> None:
    with lock("a"):
        pass

    locks.assert_released("a")
    locks.assert_not_locked("a")
    with pytest.raises(AssertionError, match="nobody holds the lock 'a'"):
        locks.assert_locked("a")


def test_what_min_hold_keeps_is_released_and_yet_not_free(locks: LockTester) -> None:
    with lock("a", min_hold=60):
        pass

    locks.assert_released("a")
    with pytest.raises(AssertionError, match="is kept"):
        locks.assert_not_locked("a")


@pytest.mark.parametrize("renew", [True, False])
def test_a_lost_lock_is_lost_at_once_and_another_gets_it(locks: LockTester, renew: bool) -> None:
    told: list[dict[str, Any]] = []

    def receive(**about: Any) -> None:
        told.append(about)

    lock_lost.connect(receive)
    try:
        held = lock("a", renew=renew).take()
        locks.lost(held)
    finally:
        lock_lost.disconnect(receive)

    assert held.lost
    assert [one["key"] for one in told] == ["a"]
    with pytest.raises(LockLost, match="ran out"):
        held.check()
    with lock("a", blocking_timeout=0):
        pass


def test_a_lock_that_was_force_released_says_by_whom(locks: LockTester) -> None:
    held = lock("a").take()

    locks.lost(held, by="ada", reason="stuck")

    with pytest.raises(LockLost, match=r"ada.*stuck"):
        held.check()


def test_what_this_process_holds_is_lost_by_its_key(locks: LockTester) -> None:
    held = lock("a").take()

    locks.lost("a")

    assert held.lost


@pytest.mark.parametrize("what", ["key", "handle"])
def test_what_is_not_held_cannot_be_lost(locks: LockTester, what: str) -> None:
    held = lock("a").take()
    held.release()

    with pytest.raises(LookupError, match="'a' is not held"):
        locks.lost(held if what == "handle" else "a")


def test_one_of_two_readers_is_lost_alone(locks: LockTester) -> None:
    with locks.held_elsewhere("a", shared=True) as other:
        held = any_lock("a", shared=True).take()
        locks.lost(held)

        assert held.lost
        other.check()


def test_nobody_reaches_redis_for_a_while(locks: LockTester) -> None:
    with locks.unreachable(), pytest.raises(LockUnavailable):
        lock("a").take(0)

    with lock("a"):
        pass


def test_a_test_begins_with_an_empty_server_and_leaves_nothing_on_the_own_one(
    fake_server: FakeServer,
) -> None:
    with LockTester() as first:
        caches["default"].set("answer", 42)
        with lock("a"):
            first.assert_locked("a")
    with LockTester() as second:
        second.assert_not_locked("a")
        assert caches["default"].get("answer") is None

    assert fake_server.client().keys() == []


def test_servers_are_as_many_as_there_are_places() -> None:
    def cache(url: str) -> dict[str, Any]:
        return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}

    places = {"default": "redis://a/0", "same": "redis://a:6379/0", "other": "redis://a/1"}
    set_up = override_settings(CACHES={name: cache(url) for name, url in places.items()})
    with set_up, LockTester() as locks, lock("a"):
        locks.assert_locked("a", using="same")
        locks.assert_not_locked("a", using="other")


def test_a_cache_that_tests_replaced_gets_a_server_where_the_settings_name_it() -> None:
    local = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(CACHES={"default": local}), LockTester() as locks, lock("a"):
        locks.assert_locked("a")


def test_other_threads_use_the_same_server(locks: LockTester) -> None:
    held = lock("a").take()

    with pytest.raises(LockBusy):
        in_thread(lambda: lock("a").take(0))

    held.release()


def test_a_lock_that_is_held_at_the_end_fails_the_test() -> None:
    told = "held at the end of the test: 'a' is held, by"
    with pytest.raises(AssertionError, match=told), LockTester():
        held = lock("a").take()

    assert not held.released


def test_a_lock_that_is_held_at_the_end_is_worth_a_warning() -> None:
    with pytest.warns(UserWarning, match="'a' is held"), LockTester(leftovers="warn"):
        lock("a").take()


def test_a_lock_that_is_held_at_the_end_may_be_meant() -> None:
    with LockTester(leftovers="ignore"):
        held = lock("a").take()

    assert not held.released


def test_what_fails_in_the_test_is_what_is_reported() -> None:
    tester = LockTester()
    tester.__enter__()
    held = lock("a").take()

    # Raises nothing.
    tester.__exit__(KeyError)

    assert not held.released


def test_an_unknown_choice_for_leftovers_is_refused() -> None:
    tester = LockTester(leftovers="shout")  # type: ignore[arg-type]  # it is what is tested
    with pytest.raises(ValueError, match="'fail', 'warn', 'ignore'"), tester:
        pass
