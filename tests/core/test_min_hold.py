"""A lock that is let go before its ``min_hold`` is over: nobody gets it before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import Inspector, Outcome, RedisLock, State, clock
from django_setnx_lock.core.events import RELEASED
from django_setnx_lock.core.locks.batch import release_each, take_each
from django_setnx_lock.core.protocol import replies
from tests.core.helpers import INDEX, ask, in_thread, listed, meta_of, queue_of, value_of
from tests.core.queueing import caller, is_woken, open_mail, waiters
from tests.faults.controls import take_out
from tests.processes import eventually, may_be_late

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.servers import FakeServer, RealServer

# For a lock that is to be kept for as long as the test looks at it.
LONG = 20


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """Give what the listeners of releases are told."""
    found: list[dict[str, Any]] = []

    def listen(**about: Any) -> None:
        found.append(about)

    RELEASED.listeners.append(listen)
    yield found
    RELEASED.listeners.remove(listen)


def kept(client: Any, min_hold: float = LONG, **options: Any) -> LockHandle:
    """Take the lock and let it go at once."""
    held = listed(client, "a", min_hold=min_hold, **options).take(0)
    held.release()
    return held


def is_free(client: Any) -> bool:
    return listed(client, "a").acquire(blocking=False)


def test_a_lock_let_go_too_soon_is_got_by_nobody(redis_client: redis.Redis) -> None:
    kept(redis_client)

    with pytest.raises(LockBusy) as caught:
        listed(redis_client, "a").take(0)

    assert caught.value.remaining == pytest.approx(LONG, abs=2)
    assert listed(redis_client, "a").locked()


def test_without_min_hold_the_next_has_it_at_once(redis_client: redis.Redis) -> None:
    listed(redis_client, "a").take(0).release()

    assert is_free(redis_client)


def test_it_is_free_by_itself_when_the_time_from_the_grant_on_is_over(
    redis_client: redis.Redis,
) -> None:
    began = clock.now()
    held = listed(redis_client, "a", min_hold=3).take(0)
    time.sleep(0.2)

    held.release()

    assert redis_client.pttl("lock:a") <= 2_800
    assert not is_free(redis_client)
    eventually(lambda: is_free(redis_client))
    assert 2.99 < clock.now() - began < 10


def test_a_lock_held_for_longer_than_that_is_let_go_as_ever(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a", min_hold=0.01):
        time.sleep(0.02)

    assert not redis_client.exists("lock:a", INDEX)


@pytest.mark.parametrize(("timeout", "min_hold"), [(5, 3600), (3600, 5)])
def test_what_is_left_is_that_of_min_hold_whatever_the_lease_was(
    redis_client: redis.Redis, timeout: float, min_hold: float
) -> None:
    held = kept(redis_client, min_hold, timeout=timeout)

    # Both at one moment: what passes between two questions would count for the second only.
    both = redis_client.pipeline()
    both.pttl("lock:a")
    both.pttl("{lock:a}:meta")
    left, known = both.execute()
    assert min_hold * 1000 - 2000 < left <= min_hold * 1000
    # The last fence is known for longer than the name is taken.
    assert meta_of(redis_client).fence == held.fence
    assert known >= left + 60_000 - 10


def test_to_its_holder_it_is_released(
    redis_client: redis.Redis, told: list[dict[str, Any]]
) -> None:
    held = kept(redis_client)

    assert held.released
    assert not held.lost
    assert held.remaining() == 0
    assert [about["fence"] for about in told] == [held.fence]
    for use in (held.release, held.check, held.reacquire):
        with pytest.raises(LockError, match="released"):
            use()


def test_its_holder_does_not_get_it_again_either(redis_client: redis.Redis) -> None:
    kept(redis_client, reentrant=True)

    with pytest.raises(LockBusy):
        listed(redis_client, "a", reentrant=True).take(0)


def test_it_is_renewed_no_longer(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", min_hold=LONG, timeout=30, renew=True).take(0)

    held.release()

    assert not held.watchdog.forget(held.grant)


def test_the_body_that_failed_has_used_its_time(redis_client: redis.Redis) -> None:
    with pytest.raises(ZeroDivisionError), listed(redis_client, "a", min_hold=LONG):
        _ = 1 / 0

    assert not is_free(redis_client)


def test_what_was_never_used_is_let_go_at_once(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = listed(redis_client, "a", min_hold=LONG)

    def interrupted(_held: LockHandle) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock._handles, "enter", interrupted)

    with pytest.raises(KeyboardInterrupt), lock:
        pytest.fail("entered")

    assert is_free(redis_client)


def test_a_lock_that_was_lost_is_not_kept(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", min_hold=LONG).take(0)
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        held.release()

    assert not redis_client.exists("lock:a")


def test_the_last_handle_to_be_released_keeps_it_for_as_long_as_the_first_said(
    redis_client: redis.Redis,
) -> None:
    outer = listed(redis_client, "a", min_hold=LONG, reentrant=True).take(0)
    inner = listed(redis_client, "a", min_hold=0.001, reentrant=True).take(0)
    outer.release()
    still = value_of(redis_client)

    inner.release()

    assert still == outer.token
    assert redis_client.pttl("lock:a") > 0
    assert not is_free(redis_client)


def test_min_hold_of_an_inner_one_counts_for_nothing(redis_client: redis.Redis) -> None:
    with (
        listed(redis_client, "a", reentrant=True),
        listed(redis_client, "a", min_hold=LONG, reentrant=True),
    ):
        pass

    assert is_free(redis_client)


def test_a_token_of_ones_own_is_kept_out_too(redis_client: redis.Redis) -> None:
    lock = listed(redis_client, "a", min_hold=LONG)
    lock.acquire(token="worker-7")

    lock.release()

    assert lock.acquire(token="worker-7", blocking=False) is False


def test_many_are_kept_in_one_round_trip(redis_client: redis.Redis) -> None:
    taken = take_each([listed(redis_client, key, min_hold=LONG) for key in "ab"])

    errors = release_each([one.held for one in taken if one.held])

    assert errors == []
    assert all(one.held and one.held.released for one in taken)
    assert all(redis_client.pttl(name) > 0 for name in ("lock:a", "lock:b"))


# Who waits


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_all_who_wait_are_told_of_the_earlier_end(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", min_hold=3).take(0)
    queued = waiters(redis_client, 3)

    held.release()

    assert [is_woken(turn) for turn in queued] == [True, True, True]
    open_mail(queued[1])
    answer = ask(queued[1], waits=True)
    assert isinstance(answer, replies.Busy)
    assert not answer.foreign
    assert answer.remaining is not None
    assert answer.remaining <= 3


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_without_that_they_would_sleep_beside_a_free_lock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "RELEASE", "again > now_ms() + left then", "false then")
    held = listed(redis_client, "a", min_hold=3).take(0)
    (waiting,) = waiters(redis_client, 1)

    held.release()

    assert not is_woken(waiting)


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_who_asks_before_that_is_over_anyway_is_let_sleep(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", timeout=10, min_hold=LONG).take(0)
    (waiting,) = waiters(redis_client, 1)

    held.release()

    assert not is_woken(waiting)


@may_be_late(0.15)
def test_who_waits_has_it_as_soon_as_the_time_is_over(real_server: RealServer, late: float) -> None:
    client = real_server.client()
    began = clock.now()
    held = listed(client, "a", min_hold=0.5).take(0)

    def take() -> float:
        listed(client, "a").take(10)
        return clock.now() - began

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(take)
        eventually(lambda: queue_of(client))
        held.release()
        taken_after = result.result(20)

    assert 0.49 < taken_after < 0.5 + late


def test_the_order_of_arrival_is_kept(real_server: RealServer) -> None:
    client = real_server.client()
    held = listed(client, "a", min_hold=0.3).take(0)
    came: list[int] = []

    def take(number: int) -> None:
        with listed(client, "a"):
            came.append(number)

    with ThreadPoolExecutor(4) as pool:
        results = []
        for number in range(4):
            results.append(pool.submit(take, number))
            eventually(lambda: len(queue_of(client)) == len(results))
        held.release()
        for result in results:
            result.result(20)

    assert came == [0, 1, 2, 3]


def test_who_waits_for_less_is_told_how_long_it_is_kept(redis_client: redis.Redis) -> None:
    kept(redis_client)

    with pytest.raises(LockBusy) as caught:
        listed(redis_client, "a").take(0.05)

    assert caught.value.remaining == pytest.approx(LONG, abs=2)
    assert queue_of(redis_client) == []


# What an operator sees


def test_it_is_shown_as_kept_with_who_held_it(redis_client: redis.Redis) -> None:
    held = kept(redis_client, label="nightly")

    info = Inspector(redis_client, "lock:").get("lock:a")

    assert info.state is State.KEPT
    assert info.holder is not None
    assert info.holder.label == "nightly"
    assert info.fence == held.fence
    assert info.remaining == pytest.approx(LONG, abs=2)
    (listed_one,) = Inspector(redis_client, "lock:").find().locks
    assert listed_one.state is State.KEPT


def test_it_can_be_force_released(redis_client: redis.Redis) -> None:
    kept(redis_client)
    inspector = Inspector(redis_client, "lock:")

    outcome = inspector.force_release("lock:a", inspector.get("lock:a").fingerprint, by="ann")

    assert outcome is Outcome.RELEASED
    assert is_free(redis_client)


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_a_force_release_hands_it_to_who_waits(redis_client: redis.Redis) -> None:
    kept(redis_client)
    (waiting,) = waiters(redis_client, 1)
    inspector = Inspector(redis_client, "lock:")

    inspector.force_release("lock:a", inspector.get("lock:a").fingerprint)

    assert value_of(redis_client) == f"baton:{waiting.token}"


def test_who_saw_the_holder_at_work_does_not_free_what_is_kept(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", min_hold=LONG).take(0)
    inspector = Inspector(redis_client, "lock:")
    seen = inspector.get("lock:a").fingerprint
    held.release()

    assert inspector.force_release("lock:a", seen) is Outcome.CHANGED_HANDS
    assert not is_free(redis_client)


# What is refused


@pytest.mark.parametrize("min_hold", [0, -1, True, float("nan"), float("inf"), "5"])
def test_a_time_that_is_none_is_refused(fake_server: FakeServer, min_hold: Any) -> None:
    with pytest.raises(ValueError, match="min_hold"):
        RedisLock(fake_server.client(), "lock:a", min_hold=min_hold)


def test_more_than_max_hold_is_refused(fake_server: FakeServer) -> None:
    client = fake_server.client()

    with pytest.raises(ValueError, match=r"min_hold, 6, must not be more than max_hold, 5"):
        RedisLock(client, "lock:a", min_hold=6, max_hold=5)
    RedisLock(client, "lock:a", min_hold=5, max_hold=5)


def test_no_caller_may_choose_a_token_that_looks_kept(fake_server: FakeServer) -> None:
    with pytest.raises(ValueError, match="kept:"):
        RedisLock(fake_server.client(), "lock:a").acquire(token="kept:x")


def test_another_thread_finds_it_busy(redis_client: redis.Redis) -> None:
    kept(redis_client)

    assert in_thread(lambda: is_free(redis_client)) is False


def test_a_clock_that_stepped_back_keeps_it_for_no_longer_than_min_hold(
    redis_client: redis.Redis,
) -> None:
    turn = caller(redis_client, min_hold=3)
    held = ask(turn, waits=False)
    assert not isinstance(held, replies.Busy)
    # As where the last fence was ahead of the clock.
    held.grant.fence += 3_600_000_000

    held.release()

    assert 0 < redis_client.pttl("lock:a") <= 3000
