from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from django_setnx_lock.core import MultiLock, MultiLockHandle
from tests.core.helpers import in_thread, listed
from tests.core.many.helpers import fail_once, held_names, many
from tests.processes import eventually


def test_what_is_left_is_that_of_the_lease_that_ends_first(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab", timeout=10).take(0)

    held["a"].extend(10)

    assert 9 < held.remaining() <= 10


def test_there_is_no_fence_for_all(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab").take(0)

    with pytest.raises(LockUnsupported, match="fences"):
        _ = held.fence


def test_a_check_names_the_one_that_was_lost(redis_client: redis.Redis) -> None:
    held = many(redis_client, "abc").take(0)
    redis_client.delete("lock:b")

    with pytest.raises(LockLost) as caught:
        held.check()

    assert caught.value.key == "b"
    assert held.lost
    assert held.loss is caught.value
    assert held.remaining() == 0
    assert not held.owned()


def test_what_is_owned_is_all(redis_client: redis.Redis) -> None:
    lock = many(redis_client, "ab")
    lock.acquire()
    before = lock.owned()

    redis_client.delete("lock:b")

    assert before
    assert not lock.owned()


def test_every_lease_is_extended(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab", timeout=10).take(0)

    held.extend(10)

    assert 16 < held.remaining() <= 20
    assert all(redis_client.pttl(f"lock:{key}") > 19_000 for key in "ab")


def test_every_lease_is_set(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab", timeout=10).take(0)

    held.extend(50, replace_ttl=True)

    assert 46 < held.remaining() <= 50
    assert all(49_000 < redis_client.pttl(f"lock:{key}") <= 50_000 for key in "ab")


def test_every_lease_is_made_whole(redis_client: redis.Redis) -> None:
    lock = many(redis_client, "ab", timeout=10)
    lock.acquire()
    assert lock.held
    redis_client.pexpire("lock:b", 1_000)

    lock.reacquire()

    assert redis_client.pttl("lock:b") > 9_000


@pytest.mark.parametrize("replace_ttl", [False, True])
def test_those_that_are_ours_are_extended_although_another_is_lost(
    redis_client: redis.Redis, *, replace_ttl: bool
) -> None:
    held = many(redis_client, "ab", timeout=10).take(0)
    redis_client.delete("lock:a")

    with pytest.raises(LockLost, match="'a'"):
        held.extend(20, replace_ttl)

    assert held["b"].remaining() > 19


def test_a_time_that_is_none_is_refused(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="additional_time"):
        many(redis_client, "ab").take(0).extend(0)


def test_all_are_let_go_although_one_was_lost(redis_client: redis.Redis) -> None:
    lock = many(redis_client, "abc")
    lock.acquire()
    redis_client.delete("lock:b")

    with pytest.raises(LockLost, match="'b'"):
        lock.release()

    assert held_names(redis_client) == ""
    assert lock.held is None


def test_of_several_losses_the_first_is_raised_and_the_others_are_logged(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    held = many(redis_client, "ab").take(0)
    redis_client.delete("lock:a", "lock:b")

    with caplog.at_level(logging.WARNING), pytest.raises(LockLost, match="'a'"):
        held.release()

    assert "the lock 'b' is no longer ours" in caplog.text


def test_what_redis_could_not_be_told_can_be_released_again(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = many(redis_client, "ab")
    lock.acquire()

    fail_once(monkeypatch, redis.exceptions.TimeoutError("down"), is_sent=False)

    with pytest.raises(LockUnavailable):
        lock.release()
    lock.release()

    assert held_names(redis_client) == ""


def test_what_is_released_twice_is_an_error(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab").take(0)
    held.release()

    with pytest.raises(LockError, match="released already"):
        held.release()


def test_one_can_be_let_go_before_the_others(redis_client: redis.Redis) -> None:
    with many(redis_client, "ab") as held:
        held["a"].release()
        assert held_names(redis_client) == "b"

    assert held_names(redis_client) == ""


def test_the_exception_of_a_block_is_not_hidden_by_a_loss(redis_client: redis.Redis) -> None:
    def fail() -> None:
        with many(redis_client, "ab"):
            redis_client.delete("lock:b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert held_names(redis_client) == ""


def test_the_end_of_a_block_tells_of_a_loss(redis_client: redis.Redis) -> None:
    block = many(redis_client, "ab")
    block.__enter__()
    redis_client.delete("lock:b")

    with pytest.raises(LockLost, match="'b'"):
        block.__exit__(None, None, None)


def test_a_loss_is_only_logged_where_that_is_wanted(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with many(redis_client, "ab", raise_on_release_error=False):
        redis_client.delete("lock:b")

    assert "the lock 'b' is no longer ours" in caplog.text


def test_on_lost_is_called_once_with_the_handle_of_all(redis_client: redis.Redis) -> None:
    told: list[MultiLockHandle] = []
    held = many(redis_client, "ab", on_lost=told.append).take(0)
    redis_client.delete("lock:a", "lock:b")

    for _ in range(2):
        with pytest.raises(LockLost):
            held.check()

    assert told == [held]


def test_on_lost_is_called_for_those_that_were_lost_only(redis_client: redis.Redis) -> None:
    told: list[MultiLockHandle] = []
    lock = many(redis_client, "ab", on_lost=told.append)
    first = lock.take(0)
    first.release()
    second = lock.take(0)
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        second.check()

    assert told == [second]


def test_an_on_lost_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="on_lost"):
        many(None, "ab", on_lost="nobody")


def test_all_are_renewed(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab", timeout=3, renew=True).take(0)
    ends = [one.lease.end for one in held.parts]
    eventually(lambda: all(one.lease.end > end for one, end in zip(held.parts, ends, strict=True)))

    redis_client.delete("lock:b")

    eventually(lambda: held.loss)
    assert held_names(redis_client) == "a"
    with pytest.raises(LockLost, match="'b'"):
        held.release()


def test_another_thread_has_nothing_of_it(redis_client: redis.Redis) -> None:
    lock = many(redis_client, "ab")

    with lock:
        assert in_thread(lambda: lock.held) is None
        assert in_thread(lock.locked)

    assert not lock.locked()


def test_the_handle_is_released_by_another_thread(redis_client: redis.Redis) -> None:
    held = many(redis_client, "ab").take(0)

    in_thread(held.release)

    assert held_names(redis_client) == ""


@pytest.mark.parametrize("operation", ["check", "reacquire", "release"])
def test_what_is_not_held_is_an_error(redis_client: redis.Redis, operation: str) -> None:
    with pytest.raises(LockError, match="not held here"):
        getattr(many(redis_client, "ab"), operation)()


def test_keys_that_the_caller_holds_already_are_had_again(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a", reentrant=True) as outer:
        with many(redis_client, "ab", reentrant=True) as held:
            assert held["a"].token == outer.token
        assert held_names(redis_client) == "a"
        outer.check()


def test_what_was_taken_together_is_had_again(redis_client: redis.Redis) -> None:
    with many(redis_client, "ab", reentrant=True) as held:
        with listed(redis_client, "b", reentrant=True) as inner:
            assert inner.fence == held.fences["b"]
        with many(redis_client, "ba", reentrant=True) as again:
            assert again.fences == held.fences
        held.check()

    assert held_names(redis_client) == ""


def test_who_gets_nothing_leaves_what_it_had_before_as_it_was(redis_client: redis.Redis) -> None:
    in_thread(listed(redis_client, "b", thread_local=False).acquire)

    with listed(redis_client, "a", reentrant=True) as outer:
        with pytest.raises(LockBusy):
            many(redis_client, "ab", reentrant=True).take(0)
        outer.check()

    assert held_names(redis_client) == "b"


def test_what_was_had_before_and_is_lost_meanwhile_is_taken_anew(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = listed(redis_client, "a", reentrant=True).take()
    lock = many(redis_client, "ab", reentrant=True, blocking_timeout=20)
    take = MultiLock._take_together

    def lose_it_first(self: MultiLock, *arguments: Any) -> Any:
        if not outer.lost:
            redis_client.delete("lock:a")
            with pytest.raises(LockLost):
                outer.check()
        return take(self, *arguments)

    monkeypatch.setattr(MultiLock, "_take_together", lose_it_first)

    with lock as held:
        held.check()
        assert held["a"].token != outer.token


def test_where_there_is_no_time_to_take_it_anew_it_is_busy(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = many(redis_client, "ab")
    monkeypatch.setattr(MultiLockHandle, "lost", True)

    with pytest.raises(LockBusy, match="lost again"):
        lock.take(0)

    assert held_names(redis_client) == ""
