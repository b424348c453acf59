"""What is told of locks beside which something strange stands, and what it costs."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import Holder, Inspector, LockInfo, Outcome, State, StopRequest
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.hostile import RECORDS, unsound
from tests.support.locks import INDEX, PREFIX, holder, listed, queue_of, value_of
from tests.wire.helpers import ask, let_lapse
from tests.wire.queueing import CLAIM, baton_of, caller, claim, is_woken, waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RealServer

KEYS = lock_keys("lock:a")
ALIVE = KEYS.alive


# A lock that was left to the next


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_a_lock_that_was_left_to_the_next_is_changing_hands(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", label="view pay").take(0)
    first, second = waiters(redis_client, 2)
    before = inspector.get("lock:a").fingerprint
    held.release()

    info = inspector.get("lock:a", waiters=9)

    assert info.state is State.CHANGING_HANDS
    assert (info.holder, info.fence, info.held_for) == (None,) * 3
    assert 0 < (info.remaining or 0) <= CLAIM / 1000
    assert (info.waiting, [one.position for one in info.waiters]) == (2, [1, 2])
    assert not [one for one in (first, second) if one.token in repr(info)]
    assert [one.key for one in inspector.find().locks] == ["a"]
    for seen in (before, info.fingerprint):
        assert inspector.force_release("lock:a", seen) is Outcome.CHANGED_HANDS
    assert claim(first).owned()


@pytest.mark.usefixtures("nobody_looks", "patient")
@pytest.mark.parametrize("options", [{}, {"shared": True}], ids=str)
def test_a_force_release_leaves_the_lock_to_the_next_who_waits(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    holder(redis_client, **options)
    first, second = waiters(redis_client, 2)
    info = inspector.get("lock:a")

    outcomes = [inspector.force_release("lock:a", info.fingerprint) for _ in range(2)]

    assert outcomes == [Outcome.RELEASED, Outcome.CHANGED_HANDS]
    assert value_of(redis_client) == baton_of(first)
    assert (is_woken(first), queue_of(redis_client)) == (True, [second.token])


def test_who_was_forced_out_is_told_for_as_long_as_its_lease_would_have_lasted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", timeout=7200).take()

    inspector.force_release("lock:a", inspector.get("lock:a").fingerprint, by="joe")

    assert redis_client.pttl(KEYS.tombstone(held.token)) > 7_100_000


# Waiters


def test_waiters_that_ask_no_more_are_neither_counted_nor_named(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    turns = [caller(redis_client, label=label) for label in ("killed", "2", "")]
    for turn in turns:
        ask(turn, waits=True)
    let_lapse(redis_client, turns[0].token)
    # As a version would that leaves no record.
    redis_client.hdel(ALIVE, f"who:{turns[2].token}")

    info = inspector.get("lock:a", waiters=9)

    assert info.waiting == 2
    assert [one.holder and one.holder.label for one in info.waiters] == ["2", None]


def test_of_a_long_queue_those_behind_the_first_500_count_without_a_look(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    turns = waiters(redis_client, 503)
    redis_client.hdel(ALIVE, turns[0].token, turns[-1].token)

    info = inspector.get("lock:a", waiters=120)

    assert (info.waiting, len(info.waiters)) == (502, 120)


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"limit": 1}], ids=str)
def test_who_gets_the_lock_leaves_no_record_in_the_queue(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    held = holder(redis_client)
    first, _ = turns = [caller(redis_client, label="x", **options) for _ in range(2)]
    for turn in turns:
        ask(turn, waits=True)
    assert redis_client.hexists(ALIVE, f"who:{first.token}")
    held.release()
    claim(first)

    assert first.token not in str(redis_client.hkeys(ALIVE))


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_record_of_a_waiter_breaks_what_is_shown(
    redis_client: redis.Redis, inspector: Inspector, record: bytes
) -> None:
    holder(redis_client)
    (turn,) = waiters(redis_client, 1)
    redis_client.hset(ALIVE, f"who:{turn.token}", record)

    (waiter,) = inspector.get("lock:a", waiters=50).waiters

    assert not unsound(str(waiter.holder), longest=3000, is_line=True)


@pytest.mark.parametrize("known", [b"", b"x", b"1", b"9" * 5000, b"9" * 13 + b" " + b"9" * 5000])
def test_times_that_no_clock_tells_are_not_known(
    redis_client: redis.Redis, inspector: Inspector, known: bytes
) -> None:
    holder(redis_client)
    (turn,) = waiters(redis_client, 1)
    redis_client.hset(ALIVE, turn.token, known)

    assert [one.waited for one in inspector.get("lock:a", waiters=5).waiters] in ([], [None])


SAID = {
    "empty": b"",
    "no name": b"1 0 T  {}",
    "huge lengths": b"99999999999 99999999999 T N {}",
    "endless": b"9" * 5000 + b" 1 T N {}",
    "not UTF-8": b"1 2 T \xff\xfe {}",
    "braces": b"1 2 T {} {}",
    "a companion": b"1 14 T {lock:a}:alive {}",
    "nobody queues there": b"1 6 x lock:b {}",
    "a name that no lock can have": b"1 1 T \xff {}",
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_nothing_said_of_a_wait_is_believed_that_cannot_be_so(
    redis_client: redis.Redis, inspector: Inspector, said: bytes
) -> None:
    held = holder(redis_client)
    redis_client.hset(b"{\xff}:alive", "T", "9999999999999 1 1")
    redis_client.zadd(b"{\xff}:waiters", {"T": 1})
    redis_client.set(f"{{lock:a}}:waits:{held.token}", said)

    assert inspector.get("lock:a").waits_for is None


# What stands beside a lock


@pytest.mark.parametrize("companion", ["meta", "waiters", "alive"])
def test_a_companion_key_of_another_type_does_not_hide_the_lock(
    redis_client: redis.Redis, inspector: Inspector, companion: str
) -> None:
    listed(redis_client, "a").take()
    redis_client.delete("{lock:a}:" + companion)
    redis_client.sadd("{lock:a}:" + companion, "no hash, no sorted set, no string")

    info = inspector.get("lock:a")

    assert (info.remaining is not None, info.waiting) == (True, 0)


@pytest.mark.parametrize("fence", ["9" * 20, "9" * 400, "9" * 5000], ids=len)
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_number_that_no_fence_can_be_is_no_fence(
    redis_client: redis.Redis, inspector: Inspector, fence: str, is_shared: bool
) -> None:
    held = listed(redis_client, "a", shared=is_shared).take()
    record = '{"host":"web1"}'
    if is_shared:
        redis_client.hset(KEYS.holders, held.token, f"{fence} {record}")
        (one,) = inspector.get("lock:a").shares
        assert (one.fence, one.holder) == (0, Holder(host="web1"))
    else:
        redis_client.set(KEYS.meta, f"{fence} {len(held.token)} {held.token} {record}")
        info = inspector.get("lock:a")
        assert (info.fence, info.held_for, info.holder) == (None, None, Holder(host="web1"))


@pytest.mark.parametrize(
    "number", ["", "x", "-3", "9" * 5000, "\xb2", "\u0663"], ids=lambda one: ascii(one)[:6]
)
def test_what_is_no_number_of_permits_is_not_told(
    redis_client: redis.Redis, inspector: Inspector, number: str
) -> None:
    held = listed(redis_client, "a", limit=2).take(0)
    redis_client.hset(KEYS.holders, f"permit:{number}:x", f"{held.fence} ")
    redis_client.zadd(KEYS.shares, {f"permit:{number}:x": time.time() * 1000 + 60_000})

    info = inspector.get("lock:a")

    assert (len(info.shares), info.limit) == (2, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease", "true"),
        ("lease", "-1"),
        ("lease", "1e99"),
        ("lease", "NaN"),
        ("lease", '"30"'),
        ("max_hold", "[]"),
        ("renewed", "1"),
        ("process", '"a:b"'),
        ("process", '"x\\n"'),
        ("process", f'"{"x" * 33}"'),
        ("process", "7"),
        ("since", "-1"),
        ("since", "1.5"),
        ("since", str(2**53)),
        ("since", "true"),
    ],
)
def test_what_cannot_be_so_in_a_record_counts_as_missing(field: str, value: str) -> None:
    assert Holder.from_json(f'{{"host":"web1","{field}":{value}}}') == Holder(host="web1")


@pytest.mark.parametrize(
    "record",
    ["", "[]", '{"stop":1}', '{"stop":{"by":1,"reason":[],"at":"x"}}', '{"stop":' + "[" * 99_999],
)
def test_what_others_wrote_of_a_request_to_stop_does_no_harm(record: str) -> None:
    read = StopRequest.from_record(record)

    assert read is None or (read.by, read.reason, read.at) == ("", "", 0.0)


STRANGE = {
    "tricks": rb'{"host":"\"\\/\u001b[2J","stop":{"by":"joe"}}',
    "Latin-1": b'{"host":"caf\xe9"}',
    "no JSON": b"\xff\0",
}


def without_times(lock: LockInfo) -> LockInfo:
    return replace(lock, as_of=0, remaining=0, held_for=0)


def test_a_strange_lock_among_others_is_told_as_alone(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for key, record in STRANGE.items():
        token = listed(redis_client, key).take(0).token.encode()
        redis_client.set(
            lock_keys(f"lock:{key}").meta, b"17 %d %s %s" % (len(token), token, record)
        )
    redis_client.set("lock:number", "9" * 400, px=20_000)
    names = [f"lock:{key}" for key in [*STRANGE, "number"]]

    together = [without_times(one) for one in inspector.get_each(names)]

    assert together == [without_times(inspector.get(name)) for name in names]
    hosts = {one.key: one.holder and one.holder.host for one in together}
    assert hosts == {"tricks": r'"\/\x1b[2J', "Latin-1": None, "no JSON": None, "number": None}


# The index


def test_a_foreign_lock_that_never_expires_is_listed_for_a_finite_time(
    redis_client: redis.Redis,
) -> None:
    redis_client.set("lock:a", "somebody")
    assert listed(redis_client, "a").acquire(blocking=False) is False

    score: Any = redis_client.zscore(INDEX, "lock:a")
    assert score < float("inf")


def test_an_index_forgets_leases_that_ended_long_ago(redis_client: redis.Redis) -> None:
    redis_client.zadd(INDEX, {"lock:crashed": 1})
    lock = listed(redis_client, "a")

    # One in a hundred sweeps; that none of so many does is as good as impossible.
    tries = 0
    while redis_client.zscore(INDEX, "lock:crashed") and tries < 3000:
        with lock:
            tries += 1

    assert redis_client.zscore(INDEX, "lock:crashed") is None


# What it costs


@pytest.fixture
def client(real_server: RealServer) -> redis.Redis:
    return real_server.client()


def calls(client: redis.Redis, ask: Callable[[], object]) -> dict[str, int]:
    """Return how often the server runs each command for what is asked, also in scripts."""
    ask()
    client.config_resetstat()
    ask()
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


def test_one_call_looks_at_many_locks(client: redis.Redis) -> None:
    names = [f"lock:{number}" for number in range(120)]
    with_index, without = (Inspector(client, PREFIX, use_index=which) for which in (True, False))

    together, alone = (
        calls(client, partial(by.get_each, names))["evalsha"] for by in (with_index, without)
    )

    # Without an index the keys of two locks may be in different slots.
    assert (together, alone) == (3, 120)


@pytest.mark.parametrize(("waiting", "locks"), [(2, 50), (300, 10)])
def test_a_call_looks_at_fewer_locks_where_many_wait(
    client: redis.Redis, waiting: int, locks: int
) -> None:
    names = [f"lock:{number}" for number in range(50)]
    look = Inspector(client, PREFIX)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            keys = lock_keys(name)
            pipe.set(name, "somebody", px=600_000)
            pipe.zadd(keys.waiters, {f"w{number}": number for number in range(waiting)})
            for number in range(waiting):
                pipe.hset(keys.alive, f"w{number}", f"{10**15} {10**15} {10**15}")
        pipe.execute()

    stats = calls(client, lambda: look.get_each(names))

    assert stats["type"] == 50
    assert stats["type"] / stats["evalsha"] <= locks
    assert (stats["evalsha"] > 1) is (locks < 50)
    assert [one.waiting for one in look.get_each(names)] == [waiting] * 50


def test_a_renewal_reads_the_token_and_the_record_and_nothing_else(client: redis.Redis) -> None:
    with listed(client, "a", timeout=20) as held:
        assert calls(client, held.reacquire)["get"] == 2
