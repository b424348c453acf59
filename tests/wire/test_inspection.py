"""What the inspector tells of locks beside which something strange stands, and what it costs."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Holder, Inspector, LockInfo, Outcome, State, StopRequest
from tests.hostile import RECORDS, unsound
from tests.support.locks import PREFIX, holder, listed
from tests.wire.running import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers import RealServer

WAITING, WAITERS = "{lock:a}:waiting", "{lock:a}:waiters"


def put_record(wire: Wire, token: str, record: bytes) -> None:
    """Have a waiter be one who left that record."""
    row = " ".join([*wire.row_of(token)[:4], f"{{lock:a}}:wake:{token} "])
    wire.client.hset(WAITING, token, row.encode() + record)


# Who waits


def test_a_lock_that_was_given_to_the_next_is_changing_hands(wire: Wire) -> None:
    held = holder(wire.client)
    wire.queue("first", "second")
    before = wire.info().fingerprint
    assert wire.let_go(held.token) == ["first"]

    info = wire.info(waiters=9)

    assert info.state is State.CHANGING_HANDS
    assert 0 < (info.remaining or 0) <= 0.5
    assert (info.waiting, len(info.waiters)) == (2, 2)
    look = Inspector(wire.client, PREFIX)
    for seen in (before, info.fingerprint):
        assert look.force_release("lock:a", seen) is Outcome.CHANGED_HANDS
    assert wire.client.get("lock:a") == b"first"


def test_waiters_that_ask_no_more_are_neither_counted_nor_named(wire: Wire) -> None:
    holder(wire.client)
    wire.queue("dead", "w1", "w2")
    wire.let_lapse("dead")
    put_record(wire, "w1", b'{"label":"alive"}')
    put_record(wire, "w2", b"")

    info = wire.info(waiters=9)

    assert info.waiting == 2
    assert [one.holder and one.holder.label for one in info.waiters] == ["alive", None]


def test_of_a_long_queue_those_behind_the_first_500_count_without_a_look(wire: Wire) -> None:
    holder(wire.client)
    wire.queue(*(f"w{number:03}" for number in range(503)), is_asleep=False)
    wire.client.hdel(WAITING, "w000", "w502")

    info = wire.info(waiters=120)

    assert (info.waiting, len(info.waiters)) == (502, 120)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_record_of_a_waiter_breaks_what_is_shown(wire: Wire, record: bytes) -> None:
    holder(wire.client)
    wire.queue("w1")
    put_record(wire, "w1", record)

    (waiter,) = wire.info(waiters=50).waiters

    assert not unsound(str(waiter.holder), longest=3000, is_line=True)


@pytest.mark.parametrize(
    "row",
    ["", "x", "1", "9" * 5000, f"{10**15} {'9' * 5000} 1 1 b {{}}", f"{10**15} 1 1 {10**30} "],
)
def test_rows_that_no_waiter_writes_do_no_harm(wire: Wire, row: str) -> None:
    holder(wire.client)
    wire.queue("w1")
    wire.client.hset(WAITING, "w1", row)
    wire.client.zadd(WAITERS, {"w1": float("inf")})

    info = wire.info(waiters=5)

    assert info.state is State.HELD
    assert [one.holder for one in info.waiters] in ([], [None], [Holder()])


SAID = {
    "empty": b"",
    "no name": b"T 0 {}",
    "a huge length": b"T 99999999999 N {}",
    "an endless one": b"T " + b"9" * 5000 + b" N {}",
    "not UTF-8": b"T 2 \xff\xfe {}",
    "braces": b"T 2 {} {}",
    "a companion": b"T 16 {lock:a}:waiting {}",
    "nobody queues there": b"x 6 lock:b {}",
    "a name that no lock can have": b"T 1 \xff {}",
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_nothing_said_of_a_wait_is_believed_that_cannot_be_so(wire: Wire, said: bytes) -> None:
    held = holder(wire.client)
    wire.client.hset(b"{\xff}:waiting", "T", f"{10**15} 1 1 1 b {{}}")
    wire.client.zadd(b"{\xff}:waiters", {"T": 1})
    wire.client.set(f"{{lock:a}}:waits:{held.token}", said)

    assert wire.info().waits_for is None


# What stands beside a lock


@pytest.mark.parametrize("end", ["meta", "waiters", "waiting"])
def test_data_of_another_type_beside_it_does_not_hide_a_lock(wire: Wire, end: str) -> None:
    holder(wire.client)
    wire.client.delete("{lock:a}:" + end)
    wire.client.sadd("{lock:a}:" + end, "no hash, no sorted set, no string")

    info = wire.info()

    assert (info.remaining is not None, info.waiting) == (True, 0)


@pytest.mark.parametrize("fence", ["9" * 20, "9" * 400, "9" * 5000], ids=len)
def test_a_number_that_no_fence_can_be_is_no_fence_of_a_share(wire: Wire, fence: str) -> None:
    held = holder(wire.client, shared=True)
    wire.client.hset("{lock:a}:holders", held.token, f'{fence} {{"host":"web1"}}')

    (share,) = wire.info().shares

    assert (share.fence, share.holder) == (None, Holder(host="web1"))


@pytest.mark.parametrize("number", ["", "x", "-3", "9" * 5000, "\xb2", "\u0663"], ids=ascii)
def test_what_is_no_number_of_permits_is_not_told(wire: Wire, number: str) -> None:
    held = holder(wire.client, limit=2)
    wire.client.hset("{lock:a}:holders", f"permit:{number}:x", f"{held.fence} ")
    wire.client.zadd("{lock:a}:shares", {f"permit:{number}:x": time.time() * 1000 + 60_000})

    info = wire.info()

    assert (len(info.shares), info.limit) == (2, 2)


@pytest.mark.parametrize(
    "record",
    ["", "[]", '{"stop":1}', '{"stop":{"by":1,"reason":[],"at":"x"}}', '{"stop":' + "[" * 99_999],
    ids=lambda record: record[:40],
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


def test_a_strange_lock_among_others_is_told_as_alone(wire: Wire) -> None:
    for key, record in STRANGE.items():
        token = listed(wire.client, key).take(0).token.encode()
        wire.client.set(f"{{lock:{key}}}:meta", b"17 %s %s" % (token, record))
    wire.client.set("lock:number", "9" * 400, px=20_000)
    names = [f"lock:{key}" for key in [*STRANGE, "number"]]

    look = Inspector(wire.client, PREFIX)
    together = [without_times(one) for one in look.get_each(names)]

    assert together == [without_times(look.get(name)) for name in names]
    hosts = {one.key: one.holder and one.holder.host for one in together}
    assert hosts == {"tricks": r'"\/\x1b[2J', "Latin-1": None, "no JSON": None, "number": None}


# What it costs


def calls(client: redis.Redis, ask: Callable[[], object]) -> dict[str, int]:
    """Return how often the server runs each command for what is asked, also in scripts."""
    ask()
    client.config_resetstat()
    ask()
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


def test_one_call_looks_at_many_locks_and_writes_nothing(real_server: RealServer) -> None:
    client = real_server.client()
    names = [f"lock:{number}" for number in range(120)]
    holder(client)
    with_index, without = (
        calls(client, partial(Inspector(client, PREFIX, use_index=which).get_each, names))
        for which in (True, False)
    )

    # Without an index the keys of two locks may be in different slots.
    assert (with_index["evalsha"], without["evalsha"]) == (3, 120)
    assert not {"set", "del", "zadd", "zrem", "hset", "hdel", "pexpire"} & {*with_index, *without}


@pytest.mark.parametrize(("waiting", "locks"), [(0, 50), (300, 10)])
def test_a_call_looks_at_fewer_locks_where_many_wait(
    real_server: RealServer, waiting: int, locks: int
) -> None:
    client = real_server.client()
    names = [f"lock:{number}" for number in range(50)]
    look = Inspector(client, PREFIX)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, "somebody", px=600_000)
            for number in range(waiting):
                pipe.zadd(f"{{{name}}}:waiters", {f"w{number}": number})
                pipe.hset(f"{{{name}}}:waiting", f"w{number}", f"{10**15} {10**15} 1 1 b {{}}")
        pipe.execute()

    stats = calls(client, lambda: look.get_each(names))

    assert stats["type"] == 50
    assert stats["type"] / stats["evalsha"] <= locks
    assert (stats["evalsha"] > 1) is (locks < 50)
    assert [one.waiting for one in look.get_each(names)] == [waiting] * 50
