"""Who holds a lock, and whether that one lives: what the record says, and what is made of it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import Inspector, RedisLock, State
from django_setnx_lock.core.holder import process_id
from django_setnx_lock.core.liveness import HEARTBEAT_AFTER, HEARTBEAT_EVERY
from django_setnx_lock.core.protocol.keys import heartbeat_prefix_for, lock_keys, process_keys
from tests.processes import eventually
from tests.support import seams
from tests.support.drivers import growth
from tests.support.locks import PREFIX, command, listed
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

PROCESSES = heartbeat_prefix_for(PREFIX)
RENEWED: dict[str, Any] = {"timeout": 30, "renew": True}


def taken(client: redis.Redis, key: str = "a", **options: Any) -> LockHandle:
    return listed(client, key, heartbeat_prefix=PROCESSES, **options).take(0)


def aged(client: redis.Redis, key: str, *, held_for: float) -> None:
    """Make it look as if the lock had been held for so long."""
    meta = lock_keys(f"{PREFIX}{key}").meta
    fence, rest = bytes(client.get(meta) or b"").split(b" ", 1)  # type: ignore[arg-type]  # bytes
    client.set(meta, b"%d %s" % (int(fence) - int(held_for * 1e6), rest), keepttl=True)


def record_of(client: redis.Redis, key: str = "a") -> dict[str, Any]:
    raw = bytes(client.get(lock_keys(f"{PREFIX}{key}").meta) or b"")  # type: ignore[arg-type]  # bytes
    found: dict[str, Any] = json.loads(raw[raw.index(b"{") :])
    return found


def test_the_record_says_how_the_lease_is_kept_and_by_which_process(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    taken(redis_client, **RENEWED, max_hold=600)

    holder = inspector.get("lock:a").holder

    assert holder is not None
    assert (holder.lease, holder.renewed, holder.max_hold) == (30, True, 600)
    assert holder.process == process_id()


def test_a_process_that_says_nothing_is_not_named(redis_client: redis.Redis) -> None:
    listed(redis_client, "a").take(0)

    assert "process" not in record_of(redis_client)


def test_all_processes_of_a_page_are_asked_about_at_once(real_server: RealServer) -> None:
    client = real_server.client()
    inspector = Inspector(client, PREFIX)
    _handles = [taken(client, f"{number}", timeout=300) for number in range(20)]
    for number in range(20):
        aged(client, f"{number}", held_for=60)
    inspector.find()
    client.config_resetstat()

    locks = inspector.find().locks

    assert {lock.state for lock in locks} == {State.GONE}
    stats: Any = client.info("commandstats")
    # One for the list, one for all locks, and one for all processes.
    assert stats["cmdstat_evalsha"]["calls"] == 3
    assert stats["cmdstat_exists"]["calls"] == 1


@contextmanager
def narrowed(server: RealServer) -> Iterator[redis.Redis]:
    """Give a client that has no right to the keys of processes."""
    rule = ("on", "nopass", "+@all", "~lock:*", "~{lock:a}:*", "~{lock:}:index")
    command(server.client(), "ACL", "SETUSER", "narrow", *rule)
    try:
        with redis.Redis(port=server.port, username="narrow", password="any") as client:
            yield client
    finally:
        command(server.client(), "ACL", "DELUSER", "narrow")


def test_who_may_not_ask_about_processes_sees_no_holder_as_gone(real_server: RealServer) -> None:
    client = real_server.client()
    _held = taken(client, timeout=300)
    aged(client, "a", held_for=60)
    with narrowed(real_server) as narrow:
        assert Inspector(narrow, PREFIX).get("lock:a").state is State.HELD


# What is sent


def calls_of_cycles(client: redis.Redis, heartbeat_prefix: str | None) -> dict[str, int]:
    for renew in (True, False):
        with listed(client, "a", heartbeat_prefix=heartbeat_prefix, renew=renew):
            pass
    client.config_resetstat()
    for renew in (True, False):
        for _ in range(100):
            with listed(client, "a", heartbeat_prefix=heartbeat_prefix, renew=renew):
                pass
    stats: Any = client.info("commandstats")
    return {name: found["calls"] for name, found in stats.items() if "config" not in name}


def test_short_holds_send_nothing_more(real_server: RealServer) -> None:
    client = real_server.client()

    without = calls_of_cycles(client, None)

    # One in a hundred grants tidies the index.
    without.pop("cmdstat_zremrangebyscore", None)
    now = calls_of_cycles(client, PROCESSES)
    now.pop("cmdstat_zremrangebyscore", None)
    assert now == without
    assert now["cmdstat_evalsha"] == 400
    assert not client.keys(f"{PROCESSES}*")


@pytest.mark.parametrize("renew", [True, False])
def test_a_process_says_that_it_lives_while_it_holds_a_lock_for_long_and_no_longer(
    real_server: RealServer, renew: bool
) -> None:
    client = real_server.client()
    name = process_keys(PROCESSES, process_id()).name
    # Any number of locks share one sign of life.
    handles = [taken(client, f"{number}", timeout=300, renew=renew) for number in range(3)]
    assert not client.exists(name)

    seams.pass_time(HEARTBEAT_AFTER)
    eventually(lambda: client.exists(name))
    assert client.keys(f"{PROCESSES}*") == [name.encode()]
    assert 0 < client.pttl(name) <= 15_000
    client.delete(name)
    seams.pass_time(HEARTBEAT_EVERY)
    eventually(lambda: client.exists(name))

    for held in handles:
        held.release()
    client.delete(name)
    with listed(client, "other", timeout=30, renew=True) as held:
        has_grown = growth(held, after=DUE)
        seams.pass_time(DUE)
        eventually(has_grown)
    assert not client.exists(name)


def test_a_server_that_refuses_the_key_is_told_of_once_and_keeps_no_other_from_it(
    real_server: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = real_server.client()
    name = process_keys(PROCESSES, process_id()).name

    def refusals() -> list[str]:
        return [text for text in caplog.messages if "says that it lives" in text]

    with narrowed(real_server) as narrow, redis.Redis(port=real_server.port, db=1) as other:
        handles = [taken(narrow, timeout=300), taken(other, timeout=300)]
        seams.pass_time(HEARTBEAT_AFTER)
        eventually(lambda: other.exists(name) and refusals())
        other.delete(name)
        seams.pass_time(HEARTBEAT_EVERY)
        eventually(lambda: other.exists(name))
        for held in handles:
            held.release()
        other.flushdb()

    assert not client.exists(name)
    assert len(refusals()) == 1


def test_no_lock_can_be_called_like_the_key_of_a_process(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="key beside another lock"):
        RedisLock(redis_client, process_keys(PROCESSES, process_id()).name)
