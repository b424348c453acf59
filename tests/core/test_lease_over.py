"""A lease that ran out: for how long its holder is known, and how an operator dismisses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import Inspector, Outcome, RedisLock, State
from django_setnx_lock.core.protocol.commands import SETNX
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import (
    INDEX,
    PREFIX,
    keys_of,
    listed,
    meta_of,
    send,
    server_ms,
    value_of,
    write_meta,
)
from tests.faults.controls import take_out
from tests.processes import eventually

if TYPE_CHECKING:
    import redis

    from tests.servers import RealServer

HOUR, MINUTE = 3_600_000, 60_000
META = lock_keys("lock:a").meta
KINDS: list[dict[str, Any]] = [
    {},
    {"shared": True},
    {"limit": 2},
    {"polling": True},
    {"protocol": "timestamp"},
]


def kept(client: redis.Redis, key: str = "a", **options: Any) -> Any:
    return listed(client, key, **{"lease_over_kept": 3600, "label": "view pay", **options})


def abandon(client: redis.Redis, inspector: Inspector, **options: Any) -> None:
    """Have the lease of a lock run out."""
    kept(client, timeout=0.3, **options).take()
    eventually(lambda: inspector.get("lock:a").state is State.OVER)


def margin(client: redis.Redis) -> int:
    """Return by how many ms what stands beside the lock outlives it."""
    return int(client.pttl(META)) - int(client.pttl("lock:a"))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_last_holder_is_known_for_the_time_that_was_asked_for(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    abandon(redis_client, inspector, **options)

    info = inspector.get("lock:a")
    assert info.holder is not None
    assert (info.holder.label, info.is_held, info.remaining) == ("view pay", False, None)
    assert HOUR < redis_client.pttl(META) <= HOUR + MINUTE + 300
    assert info.over_for == pytest.approx(0, abs=5)


def test_without_such_a_time_it_is_known_for_a_minute(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    abandon(redis_client, inspector, lease_over_kept=0)

    assert 0 < redis_client.pttl(META) <= MINUTE


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_what_is_released_is_known_for_a_minute(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    with kept(redis_client, **options) as held:
        held.reacquire()

    assert 0 < redis_client.pttl(META) <= MINUTE
    assert inspector.get("lock:a").state is State.FREE
    assert redis_client.zcard(INDEX) == 0


@pytest.mark.parametrize("options", KINDS[:4], ids=str)
def test_more_time_keeps_the_holder_known_as_long_after_it(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    held = kept(redis_client, timeout=20, **options).take()
    found = []
    for change in (
        held.reacquire,
        lambda: held.extend(1000),
        lambda: held.extend(2000, replace_ttl=True),
        held.reacquire,
    ):
        change()
        found.append(margin(redis_client))

    assert found == [pytest.approx(HOUR + MINUTE, abs=50)] * len(found)


def test_one_renewed_by_a_process_that_keeps_it_shorter_is_not_cut(
    redis_client: redis.Redis,
) -> None:
    held = kept(redis_client).take()
    # As of a process of before.
    redis_client.pexpire(META, 90_000)

    held.reacquire()

    assert margin(redis_client) == pytest.approx(MINUTE, abs=50)


def test_a_lock_kept_for_its_least_time_is_not_over(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with kept(redis_client, min_hold=0.2):
        pass

    assert redis_client.pttl(META) <= MINUTE + 200
    eventually(lambda: not redis_client.exists("lock:a"))
    assert inspector.get("lock:a").state is State.FREE


def test_the_next_holder_has_a_larger_fence(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    abandon(redis_client, inspector)
    before = inspector.get("lock:a").fence
    assert before is not None
    # As if the clock was stepped back by an hour since.
    meta = meta_of(redis_client)
    write_meta(redis_client, meta._replace(fence=before + HOUR * 1000))

    with kept(redis_client) as held:
        assert held.fence > before + HOUR * 1000


def test_a_lock_that_is_in_no_index_is_over_by_what_stands_beside_it(
    redis_client: redis.Redis,
) -> None:
    inspector = Inspector(redis_client, PREFIX, use_index=False)
    RedisLock(redis_client, "lock:a", timeout=0.1, lease_over_kept=3600).take()

    eventually(lambda: inspector.get("lock:a").state is State.OVER)


def test_the_index_has_it_for_as_long(redis_client: redis.Redis, inspector: Inspector) -> None:
    now = server_ms(redis_client)
    redis_client.zadd(
        INDEX, {"lock:old": now - HOUR - 2 * MINUTE, "lock:recent": now - HOUR + MINUTE}
    )

    def is_cleaned() -> bool:
        with kept(redis_client, "b"):
            return redis_client.zscore(INDEX, "lock:old") is None

    eventually(is_cleaned)
    assert redis_client.zscore(INDEX, "lock:recent") is not None


def test_a_cycle_costs_no_command_more(real_server: RealServer) -> None:
    redis_client = real_server.client()

    def calls(seconds: int) -> dict[str, int]:
        redis_client.config_resetstat()
        for _ in range(20):
            with listed(redis_client, "a", lease_over_kept=seconds):
                pass
        found: Any = redis_client.info("commandstats")
        return {
            name: one["calls"]
            for name, one in found.items()
            if name.removeprefix("cmdstat_")
            not in ("zremrangebyscore", "info", "config|resetstat", "config", "eval", "script|load")
        }

    calls(0)

    assert calls(3600) == calls(0)


def test_what_was_dismissed_is_shown_no_longer(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    abandon(redis_client, inspector)
    info = inspector.get("lock:a")

    outcome = inspector.dismiss("lock:a", info.fingerprint, by="joe")

    assert outcome is Outcome.DISMISSED
    assert inspector.get("lock:a").state is State.FREE
    assert keys_of(inspector.all()) == []
    assert 0 < redis_client.pttl(META) <= MINUTE


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_each_kind_can_be_dismissed(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    abandon(redis_client, inspector, **options)

    outcome = inspector.dismiss("lock:a", inspector.get("lock:a").fingerprint)

    assert outcome is Outcome.DISMISSED
    with kept(redis_client, **options):
        pass


def test_a_lock_that_is_held_again_is_not_dismissed(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    abandon(redis_client, inspector)
    seen = inspector.get("lock:a")

    with kept(redis_client) as held:
        outcome = inspector.dismiss("lock:a", seen.fingerprint)
        reply = send(redis_client, SETNX.dismiss(lock_keys("lock:a"), INDEX, seen.token))
        assert value_of(redis_client) == held.token

    assert outcome is Outcome.CHANGED_HANDS
    assert reply == [b"CHANGED"]


def test_a_holder_cannot_be_dismissed(redis_client: redis.Redis, inspector: Inspector) -> None:
    with kept(redis_client):
        seen = inspector.get("lock:a")
        assert inspector.dismiss("lock:a", seen.fingerprint) is Outcome.CHANGED_HANDS
        reply = send(redis_client, SETNX.dismiss(lock_keys("lock:a"), INDEX, seen.token))
        assert reply == [b"CHANGED"]
        assert redis_client.zscore(INDEX, "lock:a") is not None


def test_without_the_look_at_the_name_a_holder_would_be_dismissed(
    redis_client: redis.Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "DISMISS", "if value then", "if false then")
    with kept(redis_client):
        seen = inspector.get("lock:a")
        reply = send(redis_client, SETNX.dismiss(lock_keys("lock:a"), INDEX, seen.token))

    assert reply == [b"OK"]


def test_what_was_dismissed_once_is_dismissed_again(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    abandon(redis_client, inspector)
    request = SETNX.dismiss(lock_keys("lock:a"), INDEX, inspector.get("lock:a").token)

    # The first answer may be lost.
    assert [send(redis_client, request) for _ in range(2)] == [[b"OK"]] * 2


def test_nothing_is_dismissed_where_nobody_was(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    assert inspector.dismiss("lock:a", "0" * 32) is Outcome.FREE
    assert not redis_client.exists(META)
