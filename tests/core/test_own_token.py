"""Tokens that callers choose."""

from __future__ import annotations

import asyncio
import secrets
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import Inspector, RedisLock
from tests.core.helpers import in_thread
from tests.core.redis_py import both
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RealServer

TOKENS = ["worker-7", b"worker-7", "Grüße", "web1:42", "worker@web1"]


@pytest.mark.parametrize("token", TOKENS, ids=repr)
def test_the_token_is_what_stands_at_the_name(redis_client: redis.Redis, token: Any) -> None:
    lock = RedisLock(redis_client, "lock:a")

    assert lock.acquire(token=token) is True

    expected = token if isinstance(token, bytes) else token.encode()
    assert redis_client.get("lock:a") == expected
    assert lock.token == expected.decode()
    assert 29_000 < redis_client.pttl("lock:a") <= 30_000


def test_a_lock_with_a_token_of_ones_own_can_do_what_others_can(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", timeout=10, label="view pay")
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


def taken_by_a_thread(lock: RedisLock, token: str) -> bool:
    return lock.acquire(token=token)


def taken_by_a_task(lock: RedisLock, token: str) -> bool:
    return asyncio.run(lock.aacquire(token=token))


@pytest.mark.parametrize("take", [taken_by_a_thread, taken_by_a_task])
@pytest.mark.parametrize("token", ["worker-7", "worker@web1"])
def test_a_caller_with_a_token_of_its_own_waits_its_turn(
    real_server: RealServer, take: Callable[[RedisLock, str], bool], token: str
) -> None:
    client, look = real_server.client(), Inspector(real_server.client(), "lock")
    waiter = RedisLock(client, "lock:a", blocking_timeout=20)

    with ThreadPoolExecutor(2) as pool:
        with RedisLock(client, "lock:a"):
            waiting = pool.submit(take, waiter, token)
            eventually(lambda: look.get("lock:a").waiting == 1)
            behind = pool.submit(RedisLock(client, "lock:a").take, 20)
            eventually(lambda: look.get("lock:a").waiting == 2)

        assert waiting.result(10) is True
        assert client.get("lock:a") == token.encode()
        # Not the one that came later.
        assert not behind.done()
        look.force_release("lock:a", look.get("lock:a").fingerprint)
        behind.result(20).release()


def test_a_task_with_a_token_of_its_own_waits_for_as_long_as_it_was_told(
    real_server: RealServer,
) -> None:
    client = real_server.client()
    RedisLock(client, "lock:a").acquire()
    waiter = RedisLock(client, "lock:a", blocking_timeout=0.2)

    assert taken_by_a_task(waiter, "worker-7") is False

    assert Inspector(client, "lock").get("lock:a").waiting == 0


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


def test_a_token_that_was_forced_out_is_refused_and_not_replaced(
    redis_client: redis.Redis,
) -> None:
    RedisLock(redis_client, "lock:a").acquire(token="worker-7")
    look = Inspector(redis_client, "lock")
    look.force_release("lock:a", look.get("lock:a").fingerprint)

    with pytest.raises(LockError, match="choose another one") as caught:
        RedisLock(redis_client, "lock:a").acquire(token="worker-7")

    assert "worker-7" not in str(caught.value)
    assert not redis_client.exists("lock:a")


@both
def test_a_thread_sees_the_token_of_another_one_only_if_it_is_meant_to(
    library: Any, redis_client: redis.Redis
) -> None:
    apart = library(redis_client, "lock:apart", timeout=20)
    together = library(redis_client, "lock:together", timeout=20, thread_local=False)
    for lock in (apart, together):
        lock.acquire(token="worker-7")

    assert in_thread(lambda: getattr(apart.local, "token", None)) is None
    assert in_thread(lambda: together.local.token) == b"worker-7"


@pytest.mark.parametrize("token", [None, "worker-7"], ids=str)
def test_the_token_can_be_read_where_redis_py_keeps_it_and_not_written(
    redis_client: redis.Redis, token: str | None
) -> None:
    lock: Any = RedisLock(redis_client, "lock:a")
    before = lock.local.token
    lock.acquire(token=token)

    assert before is None
    assert lock.local.token == lock.held.local.token == redis_client.get("lock:a")
    assert lock.token not in repr(lock.local)
    with pytest.raises(AttributeError):
        lock.local.token = b"another"
    lock.release()
    assert lock.local.token is None


@pytest.mark.parametrize(
    "token", ["", b"", b"\xff\x00", "\udc80", "baton:worker-7", "read:worker-7"], ids=repr
)
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
