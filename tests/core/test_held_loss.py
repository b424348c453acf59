"""What a handle does that is renewed, or that is found to be lost."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.locks.batch import release_each, take_each
from django_setnx_lock.core.renewal import watchdog
from tests.core.helpers import ask, cancel
from tests.core.watching import IdleWatchdog, pass_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.core.helpers import FakeTime
    from tests.servers import FakeServer

pytestmark = pytest.mark.usefixtures("dog")


@pytest.fixture
def dog(fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> Iterator[IdleWatchdog]:
    """Give the watchdog of all handles, which works on the real server when it is told to."""
    dog = IdleWatchdog()
    monkeypatch.setattr(watchdog, "WATCHDOG", dog)
    yield dog
    dog.forget_all()
    # Its connections are closed when they were of no use for a while.
    fake_time.now += 60
    dog.tick()


def renewed(client: Any, name: str = "lock:a", **options: Any) -> RedisLock:
    return RedisLock(client, name, key=name.removeprefix("lock:"), renew=True, **options)


FINDERS: dict[str, Callable[[LockHandle], object]] = {
    "check": lambda held: held.check(),
    "extend": lambda held: held.extend(10),
    "replace": lambda held: held.extend(10, replace_ttl=True),
    "reacquire": lambda held: held.reacquire(),
    "release": lambda held: held.release(),
}


@pytest.mark.parametrize("finder", FINDERS)
@pytest.mark.parametrize("renew", [True, False])
def test_on_lost_is_called_once_by_whoever_finds_the_loss(
    redis_client: redis.Redis, finder: str, renew: bool
) -> None:
    found: list[LockHandle] = []
    lock = RedisLock(redis_client, "lock:a", renew=renew, on_lost=found.append)
    held = lock.take(0)
    redis_client.delete("lock:a")

    for _ in range(2):
        with pytest.raises(LockLost):
            FINDERS[finder](held)

    assert found == [held]


def test_on_lost_is_called_once_when_the_watchdog_has_found_it(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    found: list[LockHandle] = []
    held = renewed(redis_client, on_lost=found.append).take(0)
    redis_client.delete("lock:a")
    pass_time(dog, fake_time, 11)

    with pytest.raises(LockLost):
        held.check()

    assert found == [held]


def test_a_loss_that_was_found_is_asked_about_no_more(
    redis_client: redis.Redis,
    dog: IdleWatchdog,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = renewed(redis_client).take(0)
    redis_client.delete("lock:a")
    with pytest.raises(LockLost):
        held.check()

    redis_client.set("lock:a", held.token, px=5_000)
    pass_time(dog, fake_time, 60)
    with pytest.raises(LockLost):
        held.release()

    assert 0 < redis_client.pttl("lock:a") <= 5_000
    assert caplog.records == []


def interrupted_after(work: Callable[..., object]) -> Callable[..., object]:
    def interrupted(*arguments: Any) -> object:
        work(*arguments)
        raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("how", ["release", "leave", "batch"])
def test_who_hands_the_lock_on_looks_after_the_waiter_it_was_handed_to(
    redis_client: redis.Redis,
    dog: IdleWatchdog,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    lock = RedisLock(redis_client, "lock:a")
    turn, dead, living = (lock.attempt() for _ in range(3))

    def queue_up(*_: Any) -> None:
        for waiter in (dead, living):
            ask(waiter, waits=True)

    if how == "batch":
        # Granted, but it is interrupted before it hears of that.
        monkeypatch.setattr("django_setnx_lock.core.locks.batch._read", interrupted_after(queue_up))
        with pytest.raises(KeyboardInterrupt):
            take_each([lock])
    else:
        held = ask(turn, waits=False)
        assert isinstance(held, LockHandle)
        queue_up()
        held.release() if how == "release" else cancel(turn)
    handed_to = redis_client.get("lock:a")
    pass_time(dog, fake_time, 0.03)

    assert handed_to == f"baton:{dead.token}".encode()
    assert redis_client.get("lock:a") == f"baton:{living.token}".encode()


def test_on_lost_is_not_called_for_a_lock_that_was_let_go(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    found: list[LockHandle] = []
    renewed(redis_client, on_lost=found.append).take(0).release()

    pass_time(dog, fake_time, 60)

    assert found == []


def test_what_on_lost_raises_is_logged_and_hides_nothing(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(held: LockHandle) -> None:
        raise RuntimeError("the callback's own")

    held = renewed(redis_client, on_lost=fail).take(0)
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        held.check()

    assert caplog.records[0].levelno == logging.ERROR
    assert "on_lost of the lock 'a' failed" in caplog.text
    assert "the callback's own" in caplog.text


def test_leaving_the_block_of_a_lock_that_was_declared_lost_raises_though_redis_still_has_it(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    stood: list[int] = []

    def work() -> None:
        with renewed(redis_client):
            fake_time.now += 31
            dog.tick()
            stood.append(redis_client.exists("lock:a"))

    with pytest.raises(LockLost, match="stood still"):
        work()

    assert stood == [1]
    assert not redis_client.exists("lock:a")


def test_leaving_the_block_past_the_deadline_raises_though_nobody_has_looked_yet(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    with pytest.raises(LockLost, match="stood still"), renewed(redis_client):
        fake_time.now += 31

    assert not redis_client.exists("lock:a")


def test_a_lock_that_is_not_renewed_is_let_go_late_if_redis_still_has_it(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    with RedisLock(redis_client, "lock:a") as held:
        fake_time.now += 31

    assert held.released
    assert not redis_client.exists("lock:a")


def test_the_error_of_a_block_whose_lock_was_lost_comes_out_with_a_note(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    def work() -> None:
        with renewed(redis_client):
            fake_time.now += 31
            dog.tick()
            raise KeyError("the block's own")

    with pytest.raises(KeyError) as caught:
        work()

    if sys.version_info >= (3, 11):
        assert "stood still" in caught.value.__notes__[0]


def test_a_loss_is_told_though_redis_is_gone_when_the_block_ends(
    fake_server: FakeServer, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    lock = renewed(fake_server.client())
    lock.acquire()
    fake_server.connected = False
    pass_time(dog, fake_time, 31)

    with pytest.raises(LockLost, match="cannot be reached"):
        lock.release()


def test_many_locks_are_let_go_at_once_and_those_that_were_lost_told(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    late = renewed(redis_client, "lock:a", timeout=5).take(0)
    fresh = renewed(redis_client, "lock:b", timeout=60).take(0)
    fake_time.now += 6

    errors = release_each([late, fresh])

    assert [type(error) for error in errors] == [LockLost]
    assert (late.lost, fresh.released) == (True, True)
    assert not redis_client.exists("lock:a", "lock:b")


def test_many_locks_that_are_taken_at_once_are_renewed(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    taken = take_each([renewed(redis_client, "lock:a"), renewed(redis_client, "lock:b")])

    pass_time(dog, fake_time, 60)

    assert [one.held and one.held.lost for one in taken] == [False, False]


def test_a_grant_that_is_given_back_is_not_renewed(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    found: list[LockHandle] = []
    turn = renewed(redis_client, on_lost=found.append).attempt()
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)

    cancel(turn)
    pass_time(dog, fake_time, 11)

    assert found == []
    assert not redis_client.exists("lock:a")


def test_a_release_that_failed_is_not_followed_by_renewals(
    fake_server: FakeServer, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    held = renewed(fake_server.client()).take(0)
    fake_server.connected = False
    with pytest.raises(LockUnavailable):
        held.release()
    fake_server.connected = True

    pass_time(dog, fake_time, 60)
    held.release()

    assert held.released


def test_a_lock_that_was_extended_is_renewed_beside_that(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    held = renewed(redis_client, timeout=30).take(0)
    held.extend(60)

    pass_time(dog, fake_time, 20)

    assert held.remaining() > 69


def test_the_lease_is_no_longer_than_max_hold(redis_client: redis.Redis) -> None:
    held = RedisLock(redis_client, "lock:a", timeout=30, max_hold=2).take(0)

    assert held.timeout == 2
    assert redis_client.pttl("lock:a") <= 2000


def test_a_lock_that_is_not_renewed_is_left_alone(
    redis_client: redis.Redis, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    held = RedisLock(redis_client, "lock:a").take(0)
    held.handover()

    pass_time(dog, fake_time, 31)

    assert held.lost


@pytest.mark.parametrize("max_hold", [0, -1, True, "5", float("nan")], ids=repr)
def test_a_max_hold_that_is_no_time_is_refused_at_once(max_hold: float) -> None:
    with pytest.raises(ValueError, match="max_hold"):
        RedisLock(None, "lock:a", max_hold=max_hold)


async def asynchronous(held: LockHandle) -> None:
    """Be awaited by nobody."""


@pytest.mark.parametrize("on_lost", ["raise", 5, asynchronous])
def test_an_on_lost_that_cannot_be_called_is_refused_at_once(on_lost: Any) -> None:
    with pytest.raises(TypeError, match="on_lost is a callable"):
        RedisLock(None, "lock:a", on_lost=on_lost)


@pytest.mark.parametrize("renew", [None, 1, "yes"])
def test_a_renew_that_is_no_bool_is_refused_at_once(renew: Any) -> None:
    with pytest.raises(TypeError, match="renew is True or False"):
        RedisLock(None, "lock:a", renew=renew)


def test_two_threads_that_find_a_loss_at_once_tell_it_once(redis_client: redis.Redis) -> None:
    found: list[LockHandle] = []
    together = threading.Barrier(2)
    held = renewed(redis_client, on_lost=found.append).take(0)
    reasons = [LockLost("one"), LockLost("other")]
    told: list[LockLost] = []

    def find(reason: LockLost) -> None:
        together.wait(10)
        told.append(held.grant.lose(reason))

    threads = [threading.Thread(target=find, args=[reason]) for reason in reasons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert found == [held]
    assert told[0] is told[1]


def test_each_time_it_is_told_of_a_loss_is_an_error_of_its_own(
    redis_client: redis.Redis,
) -> None:
    held = RedisLock(redis_client, "lock:a").take(0)
    redis_client.delete("lock:a")
    found: list[LockLost] = []
    for _ in range(3):
        with pytest.raises(LockLost) as caught:
            held.check()
        found.append(caught.value)

    assert len({id(error) for error in found}) == 3
    assert len({(str(error), error.key, error.forced_by, error.reason) for error in found}) == 1
    # One that is raised again and again would keep the frames of all who have raised it.
    depths = {len(traceback.extract_tb(error.__traceback__)) for error in found}
    assert max(depths) < 10
