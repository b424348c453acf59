from __future__ import annotations

import json
from dataclasses import replace

import pytest
import redis

from django_setnx_lock.core import Holder, LockHandle, clock
from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.connections.endpoints import Target
from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.protocol import replies
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import Meta, ask, called, cancel, meta_of, queue_of, value_of, write_meta

A_MINUTE = 60_000


@pytest.fixture
def target(redis_client: redis.Redis) -> Target:
    return Target(redis_client, lock_keys("lock:a"), "a", None)


def turn_at(target: Target, lease_ms: int = 30_000, label: str = "") -> AcquireAttempt:
    return AcquireAttempt(target, lease_ms, Holder(host="web1", pid=7, label=label))


def test_every_turn_has_a_token_of_its_own(target: Target) -> None:
    assert len({turn_at(target).token for _ in range(100)}) == 100


def test_asking_twice_is_one_grant_with_one_fence(target: Target) -> None:
    turn = turn_at(target)

    first, second = ask(turn, waits=False), ask(turn, waits=False)

    assert isinstance(first, LockHandle)
    assert isinstance(second, LockHandle)
    assert (first.fence, first.token) == (second.fence, second.token)


def test_a_lease_counts_from_before_the_request_was_sent(target: Target) -> None:
    turn = turn_at(target)
    reply = called(target, turn.request(waits=False))

    held = run(turn.read(BLOCKING, reply, sent=clock.now() - 10))

    assert isinstance(held, LockHandle)
    assert 16 < held.remaining() <= 20


def test_a_grant_that_took_longer_than_its_lease_is_given_back(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target)
    asked = turn.token
    reply = called(target, turn.request(waits=False))

    answer = run(turn.read(BLOCKING, reply, sent=clock.now() - 31))

    assert answer == replies.Busy(remaining=0.0, holder=None)
    assert not redis_client.exists("lock:a")
    assert turn.token != asked


def test_a_grant_read_in_time_is_kept(target: Target, redis_client: redis.Redis) -> None:
    turn = turn_at(target)
    reply = called(target, turn.request(waits=False))

    assert isinstance(run(turn.read(BLOCKING, reply, sent=clock.now() - 29)), LockHandle)
    assert redis_client.exists("lock:a")


def test_a_turn_that_left_is_refused_and_goes_on_with_a_fresh_token(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target)
    given_up = turn.token
    turn.note_repeat()
    cancel(turn)

    refused = ask(turn, waits=False)
    granted = ask(turn, waits=False)

    assert isinstance(refused, replies.Busy)
    assert isinstance(granted, LockHandle)
    assert granted.token != given_up


def test_leaving_gives_back_what_was_granted(target: Target, redis_client: redis.Redis) -> None:
    turn = turn_at(target)
    ask(turn, waits=False)

    cancel(turn)

    assert not redis_client.exists("lock:a")


def test_leaving_takes_nothing_from_another(target: Target, redis_client: redis.Redis) -> None:
    holder, other = turn_at(target), turn_at(target)
    ask(holder, waits=False)
    ask(other, waits=True)

    cancel(other)

    assert value_of(redis_client) == holder.token
    assert queue_of(redis_client) == []


def test_a_waiting_turn_is_in_the_queue_until_it_has_the_lock(
    target: Target, redis_client: redis.Redis
) -> None:
    holder, waiter = turn_at(target), turn_at(target)
    ask(holder, waits=False)

    ask(waiter, waits=True)
    ask(waiter, waits=True)
    waiting = queue_of(redis_client)
    cancel(holder)
    ask(waiter, waits=True)

    assert waiting == [waiter.token]
    assert queue_of(redis_client) == []
    assert not redis_client.exists("{lock:a}:alive")


def test_a_waiter_that_no_longer_waits_is_out_of_the_queue(
    target: Target, redis_client: redis.Redis
) -> None:
    ask(turn_at(target), waits=False)
    waiter = turn_at(target)
    ask(waiter, waits=True)

    ask(waiter, waits=False)

    assert not redis_client.exists("{lock:a}:waiters", "{lock:a}:alive")


def test_a_busy_answer_knows_the_holder(target: Target) -> None:
    ask(turn_at(target, label="view pay"), waits=False)

    answer = ask(turn_at(target), waits=False)

    assert isinstance(answer, replies.Busy)
    assert answer.holder == Holder(host="web1", pid=7, label="view pay")
    assert answer.remaining == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    ("holder", "remaining", "text"),
    [
        (
            Holder(host="web1", pid=7),
            2.46,
            "the lock 'a' is held by web1:7; the lease has 2.5 s left",
        ),
        (None, None, "the lock 'a' is held by somebody else; the lease never expires"),
    ],
    ids=["ours", "foreign"],
)
def test_a_busy_error_says_who_and_how_long(
    target: Target, holder: Holder | None, remaining: float | None, text: str
) -> None:
    error = turn_at(target).busy(replies.Busy(remaining, holder))

    assert str(error) == text
    assert (error.key, error.holder, error.remaining) == ("a", holder, remaining)


def test_a_record_in_meta_belongs_to_the_token_at_the_name(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target, label="view pay")
    ask(turn, waits=False)

    meta = meta_of(redis_client)

    assert meta.token == turn.token == value_of(redis_client)
    assert json.loads(meta.record) == {"host": "web1", "pid": 7, "label": "view pay"}


def test_fences_grow_from_holder_to_holder(target: Target) -> None:
    fences = []
    for _ in range(50):
        turn = turn_at(target)
        held = ask(turn, waits=False)
        assert isinstance(held, LockHandle)
        fences.append(held.fence)
        cancel(turn)

    assert fences == sorted(set(fences))


def test_a_fence_grows_even_when_the_clock_of_the_server_stepped_back(
    target: Target, redis_client: redis.Redis
) -> None:
    ahead = 9_000_000_000_000_000
    write_meta(redis_client, Meta(ahead, "x", "{}"))

    first = ask(turn_at(target), waits=False)
    assert isinstance(first, LockHandle)
    first.release()
    second = ask(turn_at(target), waits=False)

    assert isinstance(second, LockHandle)
    assert (first.fence, second.fence) == (ahead + 1, ahead + 2)


def test_the_fence_outlives_the_lease(target: Target, redis_client: redis.Redis) -> None:
    ask(turn_at(target, lease_ms=5_000), waits=False)

    assert redis_client.pttl("{lock:a}:meta") > 5_000 + A_MINUTE - 1_000


def test_a_late_copy_does_not_cut_the_life_of_the_fence(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target, lease_ms=5_000)
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    held.extend(600)

    ask(turn, waits=False)

    assert redis_client.pttl("lock:a") > 600_000
    assert redis_client.pttl("{lock:a}:meta") > 600_000 + A_MINUTE - 1_000


def test_every_key_expires(target: Target, redis_client: redis.Redis) -> None:
    indexed = replace(target, index="{lock:}:index")
    holder, waiter = turn_at(indexed), turn_at(indexed)
    ask(holder, waits=False)
    ask(waiter, waits=True)

    lives = {replies.text(key): redis_client.pttl(key) for key in redis_client.keys("*")}

    assert {"{lock:a}:waiters", "{lock:a}:alive"} < set(lives)
    assert {key for key, ms in lives.items() if ms < 0} == {"{lock:}:index"}
