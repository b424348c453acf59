from __future__ import annotations

import json
from dataclasses import replace

import pytest
import redis

from django_setnx_lock.core import clock, protocol
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.holder import Holder
from django_setnx_lock.core.keys import lock_keys
from django_setnx_lock.core.target import Target
from django_setnx_lock.core.turn import Turn
from tests.core.helpers import Meta, meta_of, queue_of, value_of, write_meta

A_MINUTE = 60_000


@pytest.fixture
def target(redis_client: redis.Redis) -> Target:
    return Target(redis_client, lock_keys("lock:a"), "a", None)


def turn_at(target: Target, lease_ms: int = 30_000, label: str = "") -> Turn:
    return Turn(target, lease_ms, Holder(host="web1", pid=7, label=label))


def test_every_turn_has_a_token_of_its_own(target: Target) -> None:
    assert len({turn_at(target).token for _ in range(100)}) == 100


def test_asking_twice_is_one_grant_with_one_fence(target: Target) -> None:
    turn = turn_at(target)

    first, second = turn.ask(waits=False), turn.ask(waits=False)

    assert isinstance(first, Held)
    assert isinstance(second, Held)
    assert (first.fence, first.token) == (second.fence, second.token)


def test_a_lease_counts_from_before_the_request_was_sent(target: Target) -> None:
    turn = turn_at(target)
    reply = target.call(turn.request(waits=False))

    held = turn.read(reply, sent=clock.now() - 10)

    assert isinstance(held, Held)
    assert 19 < held.remaining() <= 20


def test_a_grant_that_took_longer_than_its_lease_is_given_back(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target)
    asked = turn.token
    reply = target.call(turn.request(waits=False))

    answer = turn.read(reply, sent=clock.now() - 31)

    assert answer == protocol.Busy(remaining=0.0, holder=None)
    assert not redis_client.exists("lock:a")
    assert turn.token != asked


def test_a_grant_read_in_time_is_kept(target: Target, redis_client: redis.Redis) -> None:
    turn = turn_at(target)
    reply = target.call(turn.request(waits=False))

    assert isinstance(turn.read(reply, sent=clock.now() - 29), Held)
    assert redis_client.exists("lock:a")


def test_a_turn_that_left_is_refused_and_goes_on_with_a_fresh_token(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target)
    given_up = turn.token
    turn.leave()

    refused = turn.ask(waits=False)
    granted = turn.ask(waits=False)

    assert isinstance(refused, protocol.Busy)
    assert isinstance(granted, Held)
    assert granted.token != given_up


def test_leaving_gives_back_what_was_granted(target: Target, redis_client: redis.Redis) -> None:
    turn = turn_at(target)
    turn.ask(waits=False)

    turn.leave()

    assert not redis_client.exists("lock:a")


def test_leaving_takes_nothing_from_another(target: Target, redis_client: redis.Redis) -> None:
    holder, other = turn_at(target), turn_at(target)
    holder.ask(waits=False)
    other.ask(waits=True)

    other.leave()

    assert value_of(redis_client) == holder.token
    assert queue_of(redis_client) == []


def test_a_waiting_turn_is_in_the_queue_until_it_has_the_lock(
    target: Target, redis_client: redis.Redis
) -> None:
    holder, waiter = turn_at(target), turn_at(target)
    holder.ask(waits=False)

    waiter.ask(waits=True)
    waiter.ask(waits=True)
    waiting = queue_of(redis_client)
    holder.leave()
    waiter.ask(waits=True)

    assert waiting == [waiter.token]
    assert queue_of(redis_client) == []
    assert not redis_client.exists("{lock:a}:alive")


def test_a_waiter_that_no_longer_waits_is_out_of_the_queue(
    target: Target, redis_client: redis.Redis
) -> None:
    turn_at(target).ask(waits=False)
    waiter = turn_at(target)
    waiter.ask(waits=True)

    waiter.ask(waits=False)

    assert not redis_client.exists("{lock:a}:waiters", "{lock:a}:alive")


def test_a_busy_answer_knows_the_holder(target: Target) -> None:
    turn_at(target, label="view pay").ask(waits=False)

    answer = turn_at(target).ask(waits=False)

    assert isinstance(answer, protocol.Busy)
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
    error = turn_at(target).busy(protocol.Busy(remaining, holder))

    assert str(error) == text
    assert (error.key, error.holder, error.remaining) == ("a", holder, remaining)


def test_a_record_in_meta_belongs_to_the_token_at_the_name(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target, label="view pay")
    turn.ask(waits=False)

    meta = meta_of(redis_client)

    assert meta.token == turn.token == value_of(redis_client)
    assert json.loads(meta.record) == {"host": "web1", "pid": 7, "label": "view pay"}


def test_fences_grow_from_holder_to_holder(target: Target) -> None:
    fences = []
    for _ in range(50):
        turn = turn_at(target)
        held = turn.ask(waits=False)
        assert isinstance(held, Held)
        fences.append(held.fence)
        turn.leave()

    assert fences == sorted(set(fences))


def test_a_fence_grows_even_when_the_clock_of_the_server_stepped_back(
    target: Target, redis_client: redis.Redis
) -> None:
    ahead = 9_000_000_000_000_000
    write_meta(redis_client, Meta(ahead, "x", "{}"))

    first = turn_at(target).ask(waits=False)
    assert isinstance(first, Held)
    first.release()
    second = turn_at(target).ask(waits=False)

    assert isinstance(second, Held)
    assert (first.fence, second.fence) == (ahead + 1, ahead + 2)


def test_the_fence_outlives_the_lease(target: Target, redis_client: redis.Redis) -> None:
    turn_at(target, lease_ms=5_000).ask(waits=False)

    assert redis_client.pttl("{lock:a}:meta") > 5_000 + A_MINUTE - 1_000


def test_a_late_copy_does_not_cut_the_life_of_the_fence(
    target: Target, redis_client: redis.Redis
) -> None:
    turn = turn_at(target, lease_ms=5_000)
    held = turn.ask(waits=False)
    assert isinstance(held, Held)
    held.extend(600)

    turn.ask(waits=False)

    assert redis_client.pttl("lock:a") > 600_000
    assert redis_client.pttl("{lock:a}:meta") > 600_000 + A_MINUTE - 1_000


def test_every_key_expires(target: Target, redis_client: redis.Redis) -> None:
    indexed = replace(target, index="{lock:}:index")
    holder, waiter = turn_at(indexed), turn_at(indexed)
    holder.ask(waits=False)
    waiter.ask(waits=True)

    lives = {protocol.text(key): redis_client.pttl(key) for key in redis_client.keys("*")}

    assert {"{lock:a}:waiters", "{lock:a}:alive"} < set(lives)
    assert {key for key, ms in lives.items() if ms < 0} == {"{lock:}:index"}
