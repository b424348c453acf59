"""The lock for servers that let a script touch none but the keys that it was told of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, Outcome, RedisLock, State
from django_setnx_lock.core.protocol import replies
from tests.support.locks import INDEX, PREFIX, value_of
from tests.support.seams import mutate
from tests.wire.helpers import ask, meta_of

if TYPE_CHECKING:
    pass


def polled(client: Any, timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` of somebody who polls, listed in the index."""
    options = {"index": INDEX, "key": "a", **options}
    return RedisLock(client, "lock:a", timeout, protocol="hosted", **options)


def queueing(client: Any, timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` of somebody who queues."""
    return RedisLock(client, "lock:a", timeout, key="a", index=INDEX, **options)


# What stands in Redis


def test_the_token_stands_at_the_name_and_the_rest_beside_it(redis_client: redis.Redis) -> None:
    with polled(redis_client, label="test") as held:
        meta = meta_of(redis_client)

        assert value_of(redis_client) == held.token
        assert (meta.fence, meta.token) == (held.fence, f"hosted:{held.token}")
        assert '"label":"test"' in meta.record
        assert redis_client.zrange(INDEX, 0, -1) == [b"lock:a"]
    assert redis_client.keys("*:wa*") == []
    assert redis_client.zrange(INDEX, 0, -1) == []


def test_fences_grow_over_both_kinds(redis_client: redis.Redis) -> None:
    fences = []
    for make in (polled, queueing, polled, queueing, queueing, polled):
        with make(redis_client) as held:
            fences.append(held.fence)

    assert fences == sorted(set(fences))


# Excluding


@pytest.mark.parametrize("first", [polled, queueing])
@pytest.mark.parametrize("second", [polled, queueing])
def test_each_kind_keeps_each_out_and_tells_who_has_it(
    redis_client: redis.Redis, first: Any, second: Any
) -> None:
    held = first(redis_client, label="first").take()

    with pytest.raises(LockBusy) as caught:
        second(redis_client).take(0)

    assert caught.value.holder is not None
    assert caught.value.holder.label == "first"
    assert caught.value.remaining == pytest.approx(10, abs=1)
    held.release()
    assert second(redis_client).acquire(blocking=False)


@pytest.mark.parametrize("first", [polled, queueing])
@pytest.mark.parametrize("second", [polled, queueing])
def test_who_waits_has_it_soon_after_it_was_let_go(
    redis_client: redis.Redis, first: Any, second: Any
) -> None:
    held = first(redis_client, 60).take()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second(redis_client).take, 30)
        wait([waiting], 0.3)
        assert not waiting.done()
        held.release()

        # Long before the lease would have ended.
        assert waiting.result(10).owned()


def test_one_who_queues_sleeps_no_longer_behind_one_who_polls_than_behind_a_stranger(
    redis_client: redis.Redis,
) -> None:
    polled(redis_client, 60).take()

    answer = ask(queueing(redis_client).attempt(), waits=True)

    assert isinstance(answer, replies.Busy)
    assert answer.foreign


def test_a_lock_that_is_left_to_a_waiter_is_busy(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", "baton:somebody", px=1000)

    with pytest.raises(LockBusy):
        polled(redis_client).take(0)

    assert redis_client.zrange(INDEX, 0, -1) == []


# Copies of requests


# Through the doors


@pytest.mark.parametrize("make", [polled, queueing])
@pytest.mark.parametrize("protocol", ["hosted", "setnx"])
def test_an_operator_sees_and_releases_either_kind(
    redis_client: redis.Redis, make: Any, protocol: str
) -> None:
    held = make(redis_client, label="first").take()
    inspector = Inspector(redis_client, PREFIX, protocol=protocol)
    (seen,) = inspector.find().locks
    assert seen.holder is not None

    outcome = inspector.force_release("lock:a", seen.fingerprint, by="ann", reason="stuck")

    assert (seen.key, seen.state, seen.holder.label, seen.fence) == (
        "a",
        State.HELD,
        "first",
        held.fence,
    )
    assert outcome is Outcome.RELEASED
    with pytest.raises(LockLost, match="ann: stuck"):
        held.check()
    assert inspector.find().locks == []


# A server that refuses


@pytest.mark.parametrize(
    "said",
    [
        "ERR Error running script: @user_script:2: script tried accessing undeclared key, key: k",
        "ERR bad lua script for redis cluster, all the keys that the script uses should be passed "
        "using the KEYS array, and KEYS should not be in expression",
    ],
    ids=["Dragonfly", "Tair"],
)
def test_one_who_queues_is_told_to_poll_where_the_server_refuses(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    begins = "local token, value = ARGV[1]"
    refused = f"if true then return redis.error_reply('{said}') end\n{begins}"
    mutate(monkeypatch, "ACQUIRE", begins, refused)

    with pytest.raises(LockUnavailable, match="set PROTOCOL in SETNX_LOCK to 'hosted'") as caught:
        queueing(redis_client).take(0)

    assert caught.value.cause == "undeclared"
    with polled(redis_client) as held:
        assert held.owned()
