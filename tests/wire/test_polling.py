"""The lock for servers that let a script touch none but the keys that it was told of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, Outcome, RedisLock, Redlock, State, clock
from django_setnx_lock.core.locks.batch import release_each, take_each
from django_setnx_lock.core.protocol import commands, replies
from django_setnx_lock.core.protocol.keys import lock_keys
from django_setnx_lock.core.protocol.replies import text
from tests.processes import eventually, in_thread
from tests.support.locks import INDEX, PREFIX, value_of
from tests.support.seams import mutate
from tests.wire.helpers import ask, called, meta_of, send

if TYPE_CHECKING:
    from django_setnx_lock.core.locks.attempt import AcquireAttempt
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


def polled(client: Any, timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` of somebody who polls, listed in the index."""
    options = {"index": INDEX, "key": "a", **options}
    return RedisLock(client, "lock:a", timeout, polling=True, **options)


def queueing(client: Any, timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` of somebody who queues."""
    return RedisLock(client, "lock:a", timeout, key="a", index=INDEX, **options)


def asking(client: Any, **options: Any) -> AcquireAttempt:
    return polled(client, **options).attempt()


# What stands in Redis


def test_the_token_stands_at_the_name_and_the_rest_beside_it(redis_client: redis.Redis) -> None:
    with polled(redis_client, label="test") as held:
        meta = meta_of(redis_client)

        assert value_of(redis_client) == held.token
        assert (meta.fence, meta.token) == (held.fence, f"polling:{held.token}")
        assert '"label":"test"' in meta.record
        assert redis_client.zrange(INDEX, 0, -1) == [b"lock:a"]
    assert redis_client.keys("*:wa*") == []
    assert redis_client.zrange(INDEX, 0, -1) == []


def test_it_lives_as_long_as_its_lease_and_the_fence_longer(redis_client: redis.Redis) -> None:
    held = polled(redis_client, 10).take()
    held.extend(5)

    assert 14_000 < redis_client.pttl("lock:a") <= 15_000
    assert redis_client.pttl("{lock:a}:meta") > 70_000


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


def test_a_lock_of_redis_py_is_busy_and_listed(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", "foreign")

    with pytest.raises(LockBusy) as caught:
        polled(redis_client).take(0)

    assert caught.value.holder is None
    assert caught.value.remaining is None
    assert redis_client.zrange(INDEX, 0, -1) == [b"lock:a"]


def test_a_name_that_holds_no_string_is_refused(redis_client: redis.Redis) -> None:
    redis_client.lpush("lock:a", 1)

    with pytest.raises(LockUnavailable) as caught:
        polled(redis_client).take(0)

    assert caught.value.cause == "wrongtype"


# Copies of requests


def test_a_copy_of_the_request_gets_the_same_fence_and_cuts_no_lease(
    redis_client: redis.Redis,
) -> None:
    turn = asking(redis_client)
    request = turn.request(waits=True)
    first = replies.read_acquire(called(turn.target, request))
    redis_client.pexpire("lock:a", 60_000)

    assert replies.read_acquire(called(turn.target, request)) == first
    assert redis_client.pttl("lock:a") > 50_000


@pytest.mark.parametrize("end", ["release", "cancel"])
def test_a_late_copy_takes_nothing_any_more(redis_client: redis.Redis, end: str) -> None:
    turn = asking(redis_client)
    request = turn.request(waits=True)
    called(turn.target, request)
    command_set, target = turn.target.command_set, turn.target
    called(target, getattr(command_set, end)(target.keys, target.index, turn.token))

    assert replies.read_acquire(called(target, request)) == replies.Gone()
    assert not redis_client.exists("lock:a")


def test_a_late_copy_of_one_that_was_found_busy_takes_nothing(redis_client: redis.Redis) -> None:
    held = polled(redis_client).take()
    turn = asking(redis_client)
    turn.note_repeat()
    request = turn.request(waits=False)
    called(turn.target, request)
    held.release()

    assert replies.read_acquire(called(turn.target, request)) == replies.Gone()


def test_letting_go_twice_is_as_good_as_once(redis_client: redis.Redis) -> None:
    turn = asking(redis_client)
    called(turn.target, turn.request(waits=True))
    request = turn.target.command_set.release(turn.target.keys, None, turn.token)

    replies = [called(turn.target, request)[0] for _ in range(2)]

    assert [text(reply) for reply in replies] == ["OK", "OK"]


def test_a_lock_that_another_has_is_lost_and_left_to_him(redis_client: redis.Redis) -> None:
    held = polled(redis_client).take()
    redis_client.delete("lock:a")
    other = in_thread(queueing(redis_client).take)

    for step in (held.check, held.release):
        with pytest.raises(LockLost):
            step()

    assert value_of(redis_client) == other.token


def test_a_lost_reply_makes_no_ghost(proxy: Proxy, real_server: RealServer) -> None:
    lost = proxy.drop_next_reply(b"EVALSHA")

    with polled(proxy.client()) as held:
        assert lost.is_set()
        assert value_of(real_server.client()) == held.token


# Through the doors


def test_the_thread_that_has_it_gets_it_again(redis_client: redis.Redis) -> None:
    lock = polled(redis_client, reentrant=True)

    with lock as held, lock as again:
        assert again.fence == held.fence
        assert held.owned()
    assert not lock.locked()


def test_it_is_renewed_and_a_loss_is_found(redis_client: redis.Redis) -> None:
    held = polled(redis_client, 3, renew=True).take()
    until = clock.now() + held.remaining()

    eventually(lambda: clock.now() + held.remaining() > until + 0.1)
    redis_client.delete("lock:a")
    eventually(lambda: held.lost)
    with pytest.raises(LockLost, match="its key was removed"):
        held.finish(None)


def test_many_are_taken_at_once(redis_client: redis.Redis) -> None:
    locks = [RedisLock(redis_client, f"lock:{name}", polling=True) for name in "abc"]

    taken = take_each(locks)

    assert all(one.held for one in taken)
    assert release_each([one.held for one in taken if one.held]) == []
    assert not redis_client.exists("lock:a", "lock:b", "lock:c")


@pytest.mark.parametrize("make", [polled, queueing])
@pytest.mark.parametrize("is_polling", [True, False])
def test_an_operator_sees_and_releases_either_kind(
    redis_client: redis.Redis, make: Any, *, is_polling: bool
) -> None:
    held = make(redis_client, label="first").take()
    inspector = Inspector(redis_client, PREFIX, polling=is_polling)
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


def test_an_operator_releases_nothing_else_than_he_saw(redis_client: redis.Redis) -> None:
    inspector = Inspector(redis_client, PREFIX, polling=True)
    polled(redis_client).take()
    request = commands.POLLING.force_release(lock_keys("lock:a"), INDEX, b"x", None, "ann", "")

    replies = [send(redis_client, request)]
    redis_client.delete("lock:a")
    replies.append(send(redis_client, request))

    assert [text(reply[0]) for reply in replies] == ["CHANGED", "FREE"]
    assert inspector.get("lock:a").state is State.FREE


def test_an_operator_is_told_of_what_is_no_lock(redis_client: redis.Redis) -> None:
    redis_client.lpush("lock:a", 1)
    redis_client.lpush("{lock:a}:meta", 1)

    assert Inspector(redis_client, PREFIX, polling=True).get("lock:a").state is State.NO_LOCK


# What it is not to be had with


def test_min_hold_and_a_chosen_token_are_refused(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="min_hold is not to be had with polling=True"):
        polled(redis_client, min_hold=1)
    with pytest.raises(ValueError, match="with polling=True a caller cannot choose"):
        polled(redis_client).acquire(token="mine")


def test_the_timestamp_protocol_is_refused(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="polling is for protocol='setnx'"):
        polled(redis_client, protocol="timestamp")


def test_several_masters_are_refused() -> None:
    clients = [redis.Redis(port=port) for port in (1, 2, 3)]

    with pytest.raises(ValueError, match="polling is not to be had"):
        Redlock(clients, "lock:a", polling=True)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_what_is_neither_true_nor_false_is_refused(redis_client: redis.Redis, value: Any) -> None:
    with pytest.raises(TypeError, match="polling is True or False"):
        RedisLock(redis_client, "lock:a", polling=value)


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

    with pytest.raises(LockUnavailable, match="set POLLING in SETNX_LOCK to True") as caught:
        queueing(redis_client).take(0)

    assert caught.value.cause == "undeclared"
    with polled(redis_client) as held:
        assert held.owned()
