from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockUnavailable
from django_setnx_lock.core import RedisLock


def test_a_lock_of_redis_py_excludes_ours(redis_client: redis.Redis) -> None:
    theirs = redis_client.lock("lock:a", timeout=20)
    theirs.acquire()

    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a").take(0)

    assert caught.value.holder is None
    assert caught.value.remaining == pytest.approx(20, abs=1)
    theirs.release()
    assert RedisLock(redis_client, "lock:a").acquire(blocking=False)


def test_ours_excludes_a_lock_of_redis_py(redis_client: redis.Redis) -> None:
    ours = RedisLock(redis_client, "lock:a")
    ours.acquire()
    theirs = redis_client.lock("lock:a", timeout=20)

    assert theirs.acquire(blocking=False) is False
    ours.release()
    assert theirs.acquire(blocking=False) is True


def test_a_foreign_holder_is_not_given_our_last_holders_record(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "lock:a", label="view pay"):
        pass
    redis_client.set("lock:a", "somebody", px=9_000)

    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a").take(0)

    assert caught.value.holder is None


@pytest.mark.parametrize("kind", ["list", "hash", "zset", "set"])
def test_a_name_that_holds_something_else_is_unavailable(
    redis_client: redis.Redis, kind: str
) -> None:
    fill: dict[str, Any] = {
        "list": lambda: redis_client.lpush("lock:a", "x"),
        "hash": lambda: redis_client.hset("lock:a", "x", "y"),
        "zset": lambda: redis_client.zadd("lock:a", {"x": 1}),
        "set": lambda: redis_client.sadd("lock:a", "x"),
    }
    fill[kind]()
    before = redis_client.dump("lock:a")

    with pytest.raises(LockUnavailable, match="holds something that is no lock") as caught:
        RedisLock(redis_client, "lock:a", key="a").take(0)

    assert caught.value.cause == "wrongtype"
    assert redis_client.dump("lock:a") == before
    assert len(redis_client.keys("*")) == 1


@pytest.mark.parametrize(
    "companion", ["{lock:a}:meta", "{lock:a}:waiters", "{lock:a}:alive", "{lock:}:index"]
)
def test_a_companion_key_of_another_type_leaves_no_lock_behind(
    redis_client: redis.Redis, companion: str
) -> None:
    redis_client.lpush(companion, "somebody's")

    with pytest.raises(LockUnavailable) as caught:
        RedisLock(redis_client, "lock:a", index="{lock:}:index").take(0)

    assert caught.value.cause == "wrongtype"
    assert not redis_client.exists("lock:a")


OPTIONS: list[dict[str, Any]] = [
    {"decode_responses": True},
    {"protocol": 2},
    {"protocol": 3},
    {"protocol": 3, "decode_responses": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_kind_of_client_works(server: Any, options: dict[str, Any]) -> None:
    client = server.client(**options)
    lock = RedisLock(client, "lock:a", index="{lock:}:index", label="é", key="a")

    with lock as held:
        held.check()
        held.extend(5)
        assert lock.locked()
        with pytest.raises(LockBusy) as caught:
            RedisLock(client, "lock:a", blocking=False).take(0)
        assert caught.value.holder is not None
        assert caught.value.holder.label == "é"

    assert not lock.locked()


def test_a_lock_shows_its_key_and_never_its_token(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", timeout=12.5, key="a")
    lock.acquire()

    assert repr(lock) == "<RedisLock 'a' timeout=12.5>"


def test_no_log_and_no_error_shows_a_token(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for spoil in ("delete", "overwrite", "release twice", "busy", "wrong type"):
            held = RedisLock(redis_client, "lock:a").take(0)
            try:
                if spoil == "busy":
                    RedisLock(redis_client, "lock:a", blocking=False).take(0)
                elif spoil == "release twice":
                    held.release()
                elif spoil == "overwrite":
                    redis_client.set("lock:a", "x")
                elif spoil == "wrong type":
                    redis_client.delete("lock:a")
                    redis_client.lpush("lock:a", "x")
                    RedisLock(redis_client, "lock:a").take(0)
                else:
                    redis_client.delete("lock:a")
                held.release()
            except LockError as error:
                held.finish(error)
                said += [str(error), repr(error), repr(vars(error)), str(error.__context__)]
            said.append(held.token)
            redis_client.delete("lock:a")

    tokens = [text for text in said if len(text) == 32]
    rest = "".join(text for text in said if text not in tokens) + caplog.text
    assert len(tokens) == 5
    assert not [token for token in tokens if token in rest]
