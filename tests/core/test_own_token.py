"""Tokens that callers choose, once or again and again."""

from __future__ import annotations

import secrets
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.protocol import commands
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import in_thread, listed, send
from tests.core.redis_py import around

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = lock_keys("lock:a")


@pytest.mark.parametrize("token", ["worker-7", b"worker-7", "Grüße", "web1:42"], ids=repr)
def test_the_token_is_what_stands_at_the_name(redis_client: redis.Redis, token: Any) -> None:
    lock = RedisLock(redis_client, "lock:a")

    assert lock.acquire(token=token) is True

    expected = token if isinstance(token, bytes) else token.encode()
    assert redis_client.get("lock:a") == expected
    assert lock.token == expected.decode()
    assert 29_000 < redis_client.pttl("lock:a") <= 30_000


def test_a_lock_with_a_token_of_ones_own_can_do_what_others_can(redis_client: redis.Redis) -> None:
    lock = listed(redis_client, "a", timeout=10, label="view pay")
    lock.acquire(token="worker-7")

    lock.check()
    assert lock.extend(5) is True
    assert lock.reacquire() is True
    assert lock.owned()
    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a").take(0)
    lock.release()

    assert caught.value.holder is not None
    assert caught.value.holder.label == "view pay"
    assert not redis_client.exists("lock:a")


def test_one_token_serves_again_and_again(redis_client: redis.Redis) -> None:
    fences = []
    for _ in range(3):
        lock = RedisLock(redis_client, "lock:a", blocking=False)
        assert lock.acquire(token="worker-7") is True
        fences.append(lock.fence or 0)
        lock.release()

    assert fences == sorted(set(fences))


def test_two_callers_with_one_token_exclude_each_other(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").acquire(token="worker-7")

    assert RedisLock(redis_client, "lock:a").acquire(blocking=False, token="worker-7") is False


def test_the_script_that_takes_a_lock_would_grant_one_token_twice(
    redis_client: redis.Redis,
) -> None:
    request = commands.SETNX.acquire(KEYS, None, "worker-7", 30_000, "{}", 0)

    replies = [send(redis_client, request) for _ in range(2)]

    assert [reply[0] for reply in replies] == [b"OK", b"OK"]


def test_a_caller_with_a_token_of_its_own_waits_its_turn(redis_client: redis.Redis) -> None:
    holder = RedisLock(redis_client, "lock:a", timeout=0.2)
    holder.acquire(token="worker-7")

    waiter = RedisLock(redis_client, "lock:a")

    assert in_thread(lambda: waiter.acquire(blocking_timeout=10, token="worker-7"))


def test_a_release_after_an_earlier_one_with_this_token_still_tells_of_a_loss(
    redis_client: redis.Redis,
) -> None:
    lock = RedisLock(redis_client, "lock:a")
    for _ in range(2):
        lock.acquire(token="worker-7")
        lock.release()
    lock.acquire(token="worker-7")
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        lock.release()


def test_it_costs_one_round_trip_more(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.acquire(token="worker-7")
    lock.release()
    asked: list[str] = []

    def note(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        asked.append(words[0])
        return send()

    around(redis_client, monkeypatch, note)
    lock.acquire(token="worker-7")

    assert asked == ["EVALSHA", "EVALSHA"]


@pytest.mark.parametrize("token", ["", b"", b"\xff\x00", "\udc80", "baton:worker-7"], ids=repr)
def test_a_value_that_cannot_be_a_token_is_refused_at_once(token: Any) -> None:
    with pytest.raises(ValueError, match="a token must") as caught:
        RedisLock(None, "lock:a").acquire(token=token)

    assert not isinstance(caught.value, LockError)


@pytest.mark.parametrize("token", [7, ["x"], bytearray(b"x")], ids=repr)
def test_a_token_of_another_type_is_refused_at_once(token: Any) -> None:
    with pytest.raises(TypeError, match="a token is a str or bytes"):
        RedisLock(None, "lock:a").acquire(token=token)


def test_a_refused_token_is_not_told() -> None:
    token = secrets.token_hex(8)

    with pytest.raises(ValueError, match="a token must") as caught:
        RedisLock(None, "lock:a").acquire(token=token.encode() + b"\xff")

    assert token not in "".join(traceback.format_exception(caught.value))
