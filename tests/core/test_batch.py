from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.locks.batch import Taken, release_each, take_each
from tests.core.helpers import FakeTime
from tests.core.many.helpers import around_many, fail_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_setnx_lock.core.connections.connection import Command

INDEX = "{lock:}:index"


def locks(client: redis.Redis, names: str, **options: Any) -> list[RedisLock]:
    return [RedisLock(client, f"lock:{name}", key=name, index=INDEX, **options) for name in names]


def held_ones(taken: list[Taken]) -> list[LockHandle]:
    return [one.held for one in taken if one.held]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Note the names asked for together each time."""
    noted: list[list[str]] = []

    def note(send: Callable[[], Any], commands: Sequence[Command]) -> Any:
        noted.append([str(command[3]) for command in commands])
        return send()

    around_many(monkeypatch, note)
    return noted


def test_every_free_lock_is_taken(redis_client: redis.Redis) -> None:
    wanted = locks(redis_client, "abc")

    taken = take_each(wanted)

    assert [one.lock for one in taken] == wanted
    assert [one.error for one in taken] == [None] * 3
    for held in held_ones(taken):
        held.check()


def test_a_busy_lock_is_reported_and_the_others_are_taken(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:b", label="view pay").acquire()

    free, busy, last = take_each(locks(redis_client, "abc"))

    assert free.held
    assert last.held
    assert busy.held is None
    assert isinstance(busy.error, LockBusy)
    assert busy.error.key == "b"
    assert busy.error.holder
    assert busy.error.holder.label == "view pay"


def test_a_name_that_is_no_lock_is_reported_and_the_others_are_taken(
    redis_client: redis.Redis,
) -> None:
    redis_client.lpush("lock:b", "x")

    free, wrong, last = take_each(locks(redis_client, "abc"))

    assert free.held
    assert last.held
    assert isinstance(wrong.error, LockUnavailable)
    assert wrong.error.cause == "wrongtype"


def test_locks_are_asked_for_in_the_order_of_names_and_given_in_the_order_asked(
    redis_client: redis.Redis, trips: list[list[str]]
) -> None:
    redis_client.script_flush()
    take_each(locks(redis_client, "x"))
    trips.clear()

    taken = take_each(locks(redis_client, "cab"))

    assert [one.lock.key for one in taken] == ["c", "a", "b"]
    assert trips == [["lock:a", "lock:b", "lock:c"]]


def test_releasing_many_is_one_round_trip(
    redis_client: redis.Redis, trips: list[list[str]]
) -> None:
    held = held_ones(take_each(locks(redis_client, "abc")))
    release_each(held[:1])
    trips.clear()

    assert release_each(held[1:]) == []

    assert trips == [["lock:b", "lock:c"]]
    assert all(one.released for one in held)
    assert not redis_client.keys("lock:*")


def test_scripts_that_were_flushed_are_sent_again(redis_client: redis.Redis) -> None:
    redis_client.script_flush()
    held = held_ones(take_each(locks(redis_client, "ab")))
    redis_client.script_flush()

    assert len(held) == 2
    assert release_each(held) == []


def test_one_lock_asked_for_twice_is_taken_once(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    first, second = take_each([lock, lock])

    assert first.held
    assert second.held
    assert first.held.token == second.held.token


def test_two_locks_of_one_name_exclude_each_other(redis_client: redis.Redis) -> None:
    first, second = take_each(locks(redis_client, "aa"))

    assert first.held
    assert isinstance(second.error, LockBusy)


def test_no_locks_are_no_round_trip(redis_client: redis.Redis, trips: list[list[str]]) -> None:
    assert take_each([]) == []
    assert release_each([]) == []
    assert trips == []


def test_grants_that_took_longer_than_their_leases_are_given_back(
    redis_client: redis.Redis, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_many = execute.call_many

    async def late(*arguments: Any, **options: Any) -> Any:
        replies = await call_many(*arguments, **options)
        fake_time.now += 31
        return replies

    monkeypatch.setattr(execute, "call_many", late)

    taken = take_each(locks(redis_client, "ab"))

    assert [type(one.error) for one in taken] == [LockBusy, LockBusy]
    assert not redis_client.keys("lock:*")


@pytest.mark.parametrize("error", [KeyboardInterrupt, redis.exceptions.TimeoutError])
def test_a_batch_that_ends_in_an_error_leaves_no_lock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    take_each(locks(redis_client, "x"))
    fail_once(monkeypatch, error())

    with pytest.raises((KeyboardInterrupt, LockUnavailable)):
        take_each(locks(redis_client, "ab"))

    assert redis_client.keys("lock:*") == [b"lock:x"]


def test_an_interrupt_while_many_are_released_leaves_no_lock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = held_ones(take_each(locks(redis_client, "ab")))

    fail_once(monkeypatch, KeyboardInterrupt(), is_sent=False)

    with pytest.raises(KeyboardInterrupt):
        release_each(held)

    assert not redis_client.keys("lock:*")


def test_releasing_many_tells_which_were_lost(redis_client: redis.Redis) -> None:
    held = held_ones(take_each(locks(redis_client, "abc")))
    redis_client.delete("lock:b")

    (error,) = release_each(held)

    assert isinstance(error, LockLost)
    assert error.key == "b"
    assert [one.released for one in held] == [True, False, True]


def test_releasing_many_skips_what_was_released(redis_client: redis.Redis) -> None:
    held = held_ones(take_each(locks(redis_client, "ab")))
    held[0].release()

    assert release_each(held) == []


def test_releasing_many_raises_nothing_when_redis_cannot_be_asked(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = held_ones(take_each(locks(redis_client, "ab")))

    fail_once(monkeypatch, redis.exceptions.TimeoutError("down"), is_sent=False)

    (error,) = release_each(held)

    assert isinstance(error, LockUnavailable)
    assert not any(one.released for one in held)
    assert release_each(held) == []


def test_what_became_of_a_lock_shows_no_token(redis_client: redis.Redis) -> None:
    (taken,) = take_each(locks(redis_client, "a"))

    assert taken.held
    assert taken.held.token not in repr(taken)


def test_a_batch_that_fails_leaves_no_lock_that_was_had_again(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisLock(redis_client, "lock:a", reentrant=True):
        fail_once(monkeypatch, redis.exceptions.TimeoutError("down"))
        # The error holds on to the frames that it came through.
        with pytest.raises(LockUnavailable) as caught:
            take_each(locks(redis_client, "abc", reentrant=True))

    assert caught.value.cause == "timeout"
    assert not redis_client.exists("lock:a", "lock:b", "lock:c")


def test_a_batch_that_asks_for_what_it_cannot_have_leaves_no_lock_that_was_had_again(
    redis_client: redis.Redis,
) -> None:
    reads = RedisLock(redis_client, "lock:b", reentrant=True, shared=True).take()
    had = RedisLock(redis_client, "lock:a", reentrant=True).take()

    with pytest.raises(LockError, match="held for reading here") as caught:
        take_each(locks(redis_client, "ab", reentrant=True))
    had.release()
    reads.release()

    assert caught.value.key == "b"
    assert not redis_client.exists("lock:a", "lock:b")
