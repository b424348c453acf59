"""What a lock has in Redis: which keys, of what types, what is in them, for how long."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.locks import server_ms, text
from tests.wire.running import LEASE, RECORD, SLICE, ask, box, let_go, queue, run, take

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


def test_a_lock_that_is_held_is_its_name_and_one_key_beside_it(redis_client: redis.Redis) -> None:
    fence = take(redis_client)

    assert types(redis_client) == OWN
    assert redis_client.get("lock:a") == b"holder"
    assert meta(redis_client) == f"{fence} holder {RECORD}"
    assert LEASE - 5_000 < redis_client.pttl("lock:a") <= LEASE
    before, lease, after = (
        redis_client.pttl(key) for key in ("{lock:a}:meta", "lock:a", "{lock:a}:meta")
    )
    assert after - 1 <= lease + MEMORY <= before + 1


def test_fence_and_record_outlast_the_lease_however_long_that_becomes(
    redis_client: redis.Redis,
) -> None:
    for token in ("holder", "read:1", "permit:2:1"):
        redis_client.flushall()
        take(redis_client, token, lease=1_000)

        run(redis_client, "renew", token, "600000")

        assert life(redis_client, "meta") > redis_client.pttl("lock:a") > 590_000
        assert redis_client.zscore("lock:index", "lock:a")
        if token != "holder":
            assert life(redis_client, "shares") > 590_000
            assert life(redis_client, "holders") > 590_000


def test_a_waiter_is_in_the_queue_with_its_record_and_its_mailbox(
    redis_client: redis.Redis,
) -> None:
    take(redis_client)
    before = server_ms(redis_client)

    queue(redis_client, "w1", is_asleep=False)

    awake = {f"{box('w1')}:awake": "string"}
    assert types(redis_client) == OWN | QUEUE | INDEXED | awake
    row = text(redis_client.hget("{lock:a}:waiting", "w1")) or ""
    alive, again, rank, length, rest = row.split(" ", 4)
    assert rest == f"{box('w1')} {RECORD}"
    assert int(length) == len(box("w1"))
    assert int(alive) > int(again) > before
    assert int(again) - before <= SLICE + 1_000
    assert int(rank) == redis_client.zscore("{lock:a}:waiters", "w1")
    assert 0 < redis_client.pttl(f"{box('w1')}:awake") <= 500
    run(redis_client, "listen", at=(box("w1"), f"{box('w1')}:awake"))
    assert types(redis_client) == OWN | QUEUE | INDEXED


def test_who_gives_up_leaves_no_place_and_no_mail_that_has_no_end(
    redis_client: redis.Redis,
) -> None:
    take(redis_client)
    queue(redis_client, "w1")
    assert ask(redis_client, "w1")[0] == b"BUSY"
    assert types(redis_client) == OWN | INDEXED

    queue(redis_client, "w1")
    let_go(redis_client, "w1", "cancel")
    assert types(redis_client) == OWN | INDEXED


@pytest.mark.parametrize("kind", ["readers", "permits"])
def test_those_who_hold_it_together_are_two_keys_more(redis_client: redis.Redis, kind: str) -> None:
    first, second = (f"{'read' if kind == 'readers' else 'permit:2'}:{end}" for end in "12")
    fences = [take(redis_client, first), take(redis_client, second)]

    assert types(redis_client) == OWN | SHARED | INDEXED
    assert redis_client.get("lock:a") == f"{kind}:{fences[0]}".encode()
    assert meta(redis_client) == f"{fences[1]} {kind}:{fences[0]} {RECORD}"
    holders = {
        text(token): text(about)
        for token, about in redis_client.hgetall("{lock:a}:holders").items()
    }
    assert holders == {first: f"{fences[0]} {RECORD}", second: f"{fences[1]} {RECORD}"}
    ends = redis_client.zscore("{lock:a}:shares", first) or 0
    assert 0 < ends - server_ms(redis_client) <= LEASE


@pytest.mark.parametrize("token", ["holder", "read:1", "permit:2:1"])
def test_what_was_let_go_leaves_one_key_for_a_minute(redis_client: redis.Redis, token: str) -> None:
    for number in range(10):
        take(redis_client, f"{token}{number}")
        let_go(redis_client, f"{token}{number}")

    left = types(redis_client)
    assert left.items() <= (OWN | {"{lock:a}:holders": "hash"}).items()
    assert "lock:a" not in left
    assert max(redis_client.pttl(key) for key in left) <= LEASE + MEMORY


@pytest.mark.real
def test_that_key_takes_less_than_400_bytes(redis_client: redis.Redis) -> None:
    take(redis_client)
    let_go(redis_client)

    assert 0 < (redis_client.memory_usage("{lock:a}:meta") or 0) < 400


def test_a_token_that_is_done_with_is_kept_for_a_minute_only_where_a_copy_may_come(
    redis_client: redis.Redis,
) -> None:
    take(redis_client, "w1")
    let_go(redis_client, "w1")
    assert not redis_client.exists("{lock:a}:gone")

    for how in ("repeat", "doubt"):
        take(redis_client, how)
        let_go(redis_client, how, how)

    rows: Any = redis_client.zrange("{lock:a}:gone", 0, -1, withscores=True)
    until = {text(token): ends for token, ends in rows}
    assert until.keys() == {"repeat", "doubt"}
    assert max(until.values()) - server_ms(redis_client) <= MEMORY
    assert 0 < life(redis_client, "gone") <= MEMORY


def test_who_was_forced_out_and_why_is_kept_for_a_minute(redis_client: redis.Redis) -> None:
    take(redis_client)
    let_go(redis_client, how="force")

    assert redis_client.hgetall("{lock:a}:forced") == {b"holder": b'{"by":"ann"}'}
    assert 0 < life(redis_client, "forced") <= MEMORY
    assert redis_client.zrange("{lock:a}:gone", 0, -1) == [b"holder"]


def test_a_lock_that_is_kept_for_its_min_hold_is_nobodys(redis_client: redis.Redis) -> None:
    fence = take(redis_client)
    run(redis_client, "release", "holder", "", "5000")

    assert redis_client.get("lock:a") == f"kept:{fence}".encode()
    assert meta(redis_client) == f"{fence} kept:{fence} {RECORD}"
    assert 0 < redis_client.pttl("lock:a") <= 5_000
    # It is listed, for operators.
    assert redis_client.zscore("lock:index", "lock:a")


def test_the_keys_of_several_locks_are_those_of_each(redis_client: redis.Redis) -> None:
    at = ("{s}a", "{s}:{s}a:meta", "{s}b", "{s}:{s}b:meta")
    run(redis_client, "several", "w1", str(LEASE), RECORD, "0", "", at=at)

    assert types(redis_client) == dict.fromkeys(at, "string")
