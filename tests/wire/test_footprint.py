"""What a lock has in Redis: which keys, of what types, what is in them, for how long."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.locks import server_ms, text
from tests.wire.running import LEASE, RECORD, SLICE, Wire, box

# For how long meta outlives a lease, and copies of requests may be under way, in ms.
MEMORY = 60_000
OWN = {"lock:a": "string", "{lock:a}:meta": "string"}
QUEUE = {"{lock:a}:waiters": "zset", "{lock:a}:waiting": "hash"}
SHARED = {"{lock:a}:shares": "zset", "{lock:a}:holders": "hash"}
INDEXED = {"lock:index": "zset"}


def types(client: redis.Redis) -> dict[str, str]:
    return {text(key) or "": text(client.type(key)) or "" for key in client.keys("*")}


def life(client: redis.Redis, end: str) -> int:
    return int(client.pttl(f"{{lock:a}}:{end}"))


def meta(client: redis.Redis) -> str:
    return text(client.get("{lock:a}:meta")) or ""


def test_a_lock_that_is_held_is_its_name_and_one_key_beside_it(wire: Wire) -> None:
    fence = wire.take()

    assert types(wire.client) == OWN
    assert wire.client.get("lock:a") == b"holder"
    assert meta(wire.client) == f"{fence} holder {RECORD}"
    assert LEASE - 5_000 < wire.client.pttl("lock:a") <= LEASE
    before, lease, after = (
        wire.client.pttl(key) for key in ("{lock:a}:meta", "lock:a", "{lock:a}:meta")
    )
    assert after - 1 <= lease + MEMORY <= before + 1


def test_fence_and_record_outlast_the_lease_however_long_that_becomes(wire: Wire) -> None:
    for token in ("holder", "read:1", "permit:2:1"):
        wire.client.flushall()
        wire.take(token, lease=1_000)

        wire.run("renew", token, "600000")

        assert life(wire.client, "meta") > wire.client.pttl("lock:a") > 590_000
        assert wire.client.zscore("lock:index", "lock:a")
        if token != "holder":
            assert life(wire.client, "shares") > 590_000
            assert life(wire.client, "holders") > 590_000


def test_a_waiter_is_in_the_queue_with_its_record_and_its_mailbox(wire: Wire) -> None:
    wire.take()
    before = server_ms(wire.client)

    wire.queue("w1", is_asleep=False)

    awake = {f"{box('w1')}:awake": "string"}
    assert types(wire.client) == OWN | QUEUE | INDEXED | awake
    row = text(wire.client.hget("{lock:a}:waiting", "w1")) or ""
    alive, again, rank, length, rest = row.split(" ", 4)
    assert rest == f"{box('w1')} {RECORD}"
    assert int(length) == len(box("w1"))
    assert int(alive) > int(again) > before
    assert int(again) - before <= SLICE + 1_000
    assert int(rank) == wire.client.zscore("{lock:a}:waiters", "w1")
    assert 0 < wire.client.pttl(f"{box('w1')}:awake") <= 500
    wire.run("listen", at=(box("w1"), f"{box('w1')}:awake"))
    assert types(wire.client) == OWN | QUEUE | INDEXED


def test_who_gives_up_leaves_no_place_and_no_mail_that_has_no_end(wire: Wire) -> None:
    wire.take()
    wire.queue("w1")
    assert wire.ask("w1")[0] == b"BUSY"
    assert types(wire.client) == OWN | INDEXED

    wire.queue("w1")
    wire.let_go("w1", "cancel")
    assert types(wire.client) == OWN | INDEXED


@pytest.mark.parametrize("kind", ["readers", "permits"])
def test_those_who_hold_it_together_are_two_keys_more(wire: Wire, kind: str) -> None:
    first, second = (f"{'read' if kind == 'readers' else 'permit:2'}:{end}" for end in "12")
    fences = [wire.take(first), wire.take(second)]

    assert types(wire.client) == OWN | SHARED | INDEXED
    assert wire.client.get("lock:a") == f"{kind}:{fences[0]}".encode()
    assert meta(wire.client) == f"{fences[1]} {kind}:{fences[0]} {RECORD}"
    holders = {
        text(token): text(about) for token, about in wire.client.hgetall("{lock:a}:holders").items()
    }
    assert holders == {first: f"{fences[0]} {RECORD}", second: f"{fences[1]} {RECORD}"}
    ends = wire.client.zscore("{lock:a}:shares", first) or 0
    assert 0 < ends - server_ms(wire.client) <= LEASE


@pytest.mark.real
def test_that_key_takes_less_than_400_bytes(wire: Wire) -> None:
    wire.take()
    wire.let_go()

    assert 0 < (wire.client.memory_usage("{lock:a}:meta") or 0) < 400


def test_a_token_that_is_done_with_is_kept_for_a_minute_only_where_a_copy_may_come(
    wire: Wire,
) -> None:
    wire.take("w1")
    wire.let_go("w1")
    assert not wire.client.exists("{lock:a}:gone")

    for how in ("repeat", "doubt"):
        wire.take(how)
        wire.let_go(how, how)

    rows: Any = wire.client.zrange("{lock:a}:gone", 0, -1, withscores=True)
    until = {text(token): ends for token, ends in rows}
    assert until.keys() == {"repeat", "doubt"}
    assert max(until.values()) - server_ms(wire.client) <= MEMORY
    assert 0 < life(wire.client, "gone") <= MEMORY


def test_who_was_forced_out_and_why_is_kept_for_a_minute(wire: Wire) -> None:
    wire.take()
    wire.let_go(how="force")

    assert wire.client.hgetall("{lock:a}:forced") == {b"holder": b'{"by":"ann"}'}
    assert 0 < life(wire.client, "forced") <= MEMORY
    assert wire.client.zrange("{lock:a}:gone", 0, -1) == [b"holder"]


def test_a_lock_that_is_kept_for_its_min_hold_is_nobodys(wire: Wire) -> None:
    fence = wire.take()
    wire.run("release", "holder", "", "5000")

    assert wire.client.get("lock:a") == f"kept:{fence}".encode()
    assert meta(wire.client) == f"{fence} kept:{fence} {RECORD}"
    assert 0 < wire.client.pttl("lock:a") <= 5_000
    # It is listed, for operators.
    assert wire.client.zscore("lock:index", "lock:a")


def test_the_keys_of_several_locks_are_those_of_each(wire: Wire) -> None:
    at = ("{s}a", "{s}:{s}a:meta", "{s}b", "{s}:{s}b:meta")
    wire.run("several", "w1", str(LEASE), RECORD, "0", "", at=at)

    assert types(wire.client) == dict.fromkeys(at, "string")
