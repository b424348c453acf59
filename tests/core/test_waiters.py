"""Who waits for a lock, by name, and what its holder waits for itself."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from django_setnx_lock.core import Inspector
from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.locks.multi_lock import MultiAttempt
from django_setnx_lock.core.protocol import replies
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import PREFIX, ask, cancel, let_lapse, listed
from tests.core.nesting import told, waiting
from tests.core.queueing import caller, claim, holder
from tests.hostile import RECORDS, unsound
from tests.processes import eventually
from tests.support.seams import mutate

if TYPE_CHECKING:
    from django_setnx_lock.core import LockInfo
    from tests.servers import RealServer

ALIVE = lock_keys("lock:a").alive


def queue(client: Any, *labels: str, **options: Any) -> list[Any]:
    """Have one caller of each label wait, in this order."""
    turns = [caller(client, label=label, **options) for label in labels]
    for turn in turns:
        ask(turn, waits=True)
    return turns


def labels(info: LockInfo) -> list[str | None]:
    return [None if one.holder is None else one.holder.label for one in info.waiters]


def named(inspector: Inspector, most: int = 50) -> list[str | None]:
    return labels(inspector.get("lock:a", waiters=most))


def test_a_waiter_is_told_by_name(redis_client: redis.Redis, inspector: Inspector) -> None:
    holder(redis_client)
    queue(redis_client, "view pay", user="ann", note="by hand")

    (waiter,) = inspector.get("lock:a", waiters=50).waiters

    assert str(waiter.holder) == f"ann@{socket.gethostname()}:{os.getpid()} (view pay; by hand)"
    assert waiter.position == 1
    assert waiter.waited == pytest.approx(0, abs=5)
    assert len(waiter.fingerprint) == 32


def test_waiters_come_in_the_order_of_the_queue(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    turns = queue(redis_client, "one", "two", "three")
    ask(turns[0], waits=True)

    info = inspector.get("lock:a", waiters=50)

    assert labels(info) == ["one", "two", "three"]
    assert [one.position for one in info.waiters] == [1, 2, 3]
    assert info.longest_wait == info.waiters[0].waited
    waited = [one.waited or 0 for one in info.waiters]
    assert waited == sorted(waited, reverse=True)


def test_no_more_are_named_than_were_asked_for(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    queue(redis_client, *map(str, range(130)))

    assert named(inspector, 2) == ["0", "1"]
    assert named(inspector, 120) == list(map(str, range(120)))
    assert inspector.get("lock:a").waiting == 130
    assert labels(inspector.get("lock:a")) == ["0"]


def test_of_a_long_queue_those_behind_the_first_500_count_without_a_look(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    turns = queue(redis_client, *map(str, range(503)))
    # Nothing is known of these two, as of those that are dead.
    redis_client.hdel("{lock:a}:alive", turns[0].token, turns[-1].token)

    assert inspector.get("lock:a").waiting == 502


@pytest.mark.parametrize("options", [{"shared": True}, {"limit": 1}], ids=str)
def test_who_would_share_a_lock_is_named_too(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    holder(redis_client)
    queue(redis_client, "reader", **options)
    queue(redis_client, "writer")

    assert named(inspector) == ["reader", "writer"]


def test_who_waits_for_several_keys_is_named_at_the_one_that_is_busy(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    locks = [listed(redis_client, key, label="transfer") for key in "ab"]
    run(MultiAttempt([lock.attempt() for lock in locks]).ask(BLOCKING, waits=True, within=None))

    assert named(inspector) == ["transfer"]


def test_waiting_tasks_are_named(real_server: RealServer) -> None:
    client = real_server.client()
    holder(client)

    async def wait() -> list[str | None]:
        own = redis.asyncio.Redis.from_url(real_server.url)
        tasks = [asyncio.create_task(caller_task(own, f"task {number}")) for number in range(3)]
        while client.zcard("{lock:a}:waiters") < 3:  # noqa: ASYNC110 - only Redis tells
            await asyncio.sleep(0.001)
        found = await asyncio.to_thread(named, Inspector(client, PREFIX))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await own.aclose()
        return found

    async def caller_task(own: Any, label: str) -> None:
        await listed(own, "a", label=label).atake(20)

    assert sorted(map(str, asyncio.run(wait()))) == ["task 0", "task 1", "task 2"]
    assert not client.exists(ALIVE)


def test_who_gives_up_is_named_no_longer(redis_client: redis.Redis, inspector: Inspector) -> None:
    holder(redis_client)
    first, second = queue(redis_client, "one", "two")

    cancel(first)

    assert named(inspector) == ["two"]
    assert {replies.text(name) for name in redis_client.hkeys(ALIVE)} == fields_of(second.token)


def fields_of(token: str) -> set[str]:
    return {token, f"who:{token}"}


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"limit": 1}], ids=str)
def test_who_gets_the_lock_leaves_no_record_in_the_queue(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    held = holder(redis_client)
    first, second = queue(redis_client, "one", "two", **options)
    held.release()
    claim(first)

    left = {replies.text(name) for name in redis_client.hkeys(ALIVE)}

    assert first.token not in str(left)
    assert not left or left == fields_of(second.token)


def test_control_a_record_that_stays_behind_is_found(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, "ACQUIRE", "'HDEL', ALIVE, token, WHO .. token", "'HDEL', ALIVE, token")
    held = holder(redis_client)
    first, _ = queue(redis_client, "one", "two")
    held.release()
    claim(first)

    assert redis_client.hexists(ALIVE, f"who:{first.token}")


@pytest.mark.usefixtures("nobody_looks", "patient")
def test_the_one_it_was_left_to_is_the_first_of_those_who_wait(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = holder(redis_client)
    queue(redis_client, "one", "two")
    held.release()

    assert named(inspector) == ["one", "two"]


def test_who_asks_no_more_is_not_named(redis_client: redis.Redis, inspector: Inspector) -> None:
    holder(redis_client)
    killed, _ = queue(redis_client, "killed", "two")
    let_lapse(redis_client, killed.token)

    assert named(inspector) == ["two"]


KILLED = """
import sys, redis
from tests.core.helpers import listed
client = redis.Redis.from_url(sys.argv[1])
listed(client, "a", label="killed").take(30)
"""


def test_a_killed_waiter_is_not_named_after_its_time(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = real_server.client()
    # It asks again when the lease ends, and so is known to live for two seconds more than that.
    held = holder(client, lease=3)
    with subprocess.Popen([sys.executable, "-c", KILLED, real_server.url]) as process:
        inspector = Inspector(client, PREFIX)
        eventually(lambda: named(inspector) == ["killed"])
        process.kill()
    held.extend(30)

    eventually(lambda: named(inspector) == [], 10)
    assert inspector.get("lock:a").waiting == 0


def test_who_queued_without_a_record_waits_without_a_name(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    """As those of earlier versions do."""
    held = holder(redis_client)
    (turn,) = queue(redis_client, "one")
    redis_client.hdel(ALIVE, f"who:{turn.token}")

    (waiter,) = inspector.get("lock:a", waiters=50).waiters

    assert waiter.holder is None
    held.release()
    claim(turn)


def test_records_are_not_counted_as_waiters(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    queue(redis_client, "one", "2", "")

    assert inspector.get("lock:a").waiting == 3


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_record_of_a_waiter_breaks_what_is_shown(
    redis_client: redis.Redis, inspector: Inspector, record: bytes
) -> None:
    holder(redis_client)
    (turn,) = queue(redis_client, "one")
    redis_client.hset(ALIVE, f"who:{turn.token}", record)

    (waiter,) = inspector.get("lock:a", waiters=50).waiters

    assert not unsound(str(waiter.holder), longest=3000, is_line=True)


@pytest.mark.parametrize("known", [b"", b"x", b"1", b"9" * 5000, b"9" * 13 + b" " + b"9" * 5000])
def test_times_that_no_clock_tells_are_not_known(
    redis_client: redis.Redis, inspector: Inspector, known: bytes
) -> None:
    holder(redis_client)
    (turn,) = queue(redis_client, "one")
    redis_client.hset(ALIVE, turn.token, known)

    assert [one.waited for one in inspector.get("lock:a", waiters=5).waiters] in ([], [None])


def test_a_token_is_nowhere_in_what_is_told(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = holder(redis_client)
    turns = queue(redis_client, "one", "two")

    told_of = repr(inspector.get("lock:a", waiters=50))

    assert not [one for one in (held, *turns) if one.token in told_of]


def test_what_a_holder_waits_for_is_told(redis_client: redis.Redis, inspector: Inspector) -> None:
    with waiting(redis_client, ("b",), ("a", "b")):
        awaited = inspector.get("lock:a").waits_for
        (waiter,) = inspector.get("lock:b").waiters

    assert awaited is not None
    assert (awaited.key, awaited.name) == ("b", "lock:b")
    assert awaited.waited == pytest.approx(0, abs=10)
    assert awaited.fingerprint == waiter.fingerprint


def test_what_each_of_several_holders_waits_for_is_told(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with waiting(redis_client, ("b", "c"), ("a", "b"), ("a", "c"), ("", "b"), shared=True):
        info = inspector.get("lock:a")

    assert {one.waits_for and one.waits_for.key for one in info.shares} == {"b", "c"}
    assert {info.of_one(one).waits_for for one in info.shares} == {
        one.waits_for for one in info.shares
    }


def test_who_waits_for_nothing_is_told_to_wait_for_nothing(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with waiting(redis_client, ("b",), ("a", "b")):
        assert inspector.get("lock:b").waits_for is None
    assert inspector.get("lock:a").waits_for is None


def test_a_wait_that_ended_is_not_told(redis_client: redis.Redis, inspector: Inspector) -> None:
    """What stands there of it for a while is not believed."""
    with told(redis_client, "a"):
        with waiting(redis_client, ("b",), ("", "b")):
            pass
        said = "1 6 x lock:b {}"
        redis_client.set(f"{{lock:a}}:waits:{redis_client.get('lock:a').decode()}", said)  # type: ignore[union-attr]

        assert inspector.get("lock:a").waits_for is None


SAID = {
    "empty": b"",
    "no name": b"1 0 T  {}",
    "huge lengths": b"99999999999 99999999999 T N {}",
    "endless": b"9" * 5000 + b" 1 T N {}",
    "not UTF-8": b"1 2 T \xff\xfe {}",
    "braces": b"1 2 T {} {}",
    "a companion": b"1 14 T {lock:a}:alive {}",
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_nothing_said_of_a_wait_breaks_what_is_shown(
    redis_client: redis.Redis, inspector: Inspector, said: bytes
) -> None:
    held = holder(redis_client)
    redis_client.set(f"{{lock:a}}:waits:{held.token}", said)

    assert inspector.get("lock:a").waits_for is None


def test_a_lock_that_nobody_can_have_is_not_what_is_waited_for(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    """Though somebody seems to queue there."""
    held = holder(redis_client)
    name = b"\xff"
    redis_client.hset(b"{\xff}:alive", "T", "9999999999999 1 1")
    redis_client.zadd(b"{\xff}:waiters", {"T": 1})
    redis_client.set(f"{{lock:a}}:waits:{held.token}", b"1 1 T " + name + b" {}")

    assert inspector.get("lock:a").waits_for is None
