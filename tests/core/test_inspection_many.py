"""Lists of more locks than are read, and sorted, at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, LockInfo, State
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import INDEX, PREFIX, ask, keys_of, listed
from tests.core.queueing import left_to_the_first

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers import RealServer


@pytest.fixture
def client(real_server: RealServer) -> redis.Redis:
    return real_server.client()


@pytest.fixture
def look(client: redis.Redis) -> Inspector:
    return Inspector(client, PREFIX)


def hold(client: redis.Redis, count: int, key: Callable[[int], str] = "k{:05}".format) -> list[str]:
    """Have so many locks held and listed, the last by key to end first; return the keys."""
    now_ms = client.time()[0] * 1000
    keys = [key(number) for number in range(count)]
    with client.pipeline(transaction=False) as pipe:
        for number, one in enumerate(keys):
            left = 600_000 + (count - number) * 10
            pipe.set(f"lock:{one}", "somebody", px=left)
            pipe.zadd(INDEX, {f"lock:{one}": now_ms + left})
        pipe.execute()
    return keys


def said_by_server(client: redis.Redis, ask: Callable[[], object]) -> int:
    """Return how many bytes the server says to what is asked."""
    ask()
    before = client.info("stats")["total_net_output_bytes"]
    ask()
    middle = client.info("stats")["total_net_output_bytes"]
    return int(middle - before)


def calls(client: redis.Redis, ask: Callable[[], object]) -> dict[str, int]:
    """Return how often the server runs each command for what is asked, also in scripts."""
    ask()
    client.config_resetstat()
    ask()
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


def test_what_is_found_costs_no_more_of_many_locks(client: redis.Redis, look: Inspector) -> None:
    hold(client, 300)
    few, said = (
        calls(client, lambda: look.find(200)),
        said_by_server(client, lambda: look.find(200)),
    )
    hold(client, 20_000)

    many = calls(client, lambda: look.find(200))

    assert sum(many.values()) <= sum(few.values())
    assert said_by_server(client, lambda: look.find(200)) < said * 1.2


def test_all_are_found_however_many_they_are(client: redis.Redis, look: Inspector) -> None:
    keys = hold(client, 3_000)
    client.set("lock:unlisted", "somebody")
    without_index = Inspector(client, PREFIX, use_index=False)

    assert keys_of(look.all()) == keys
    assert keys_of(look.all(search="k0299")) == keys[2990:]
    assert keys_of(look.all(everything=True)) == [*keys, "unlisted"]
    assert keys_of(without_index.all()) == [*keys, "unlisted"]
    assert [len(some) for some in look.batches()] == [500] * 6


def test_a_search_ends_in_time_and_says_so(client: redis.Redis, look: Inspector) -> None:
    hold(client, 3_000)
    hold(client, 3, "other*{}".format)

    cut, whole = look.find(search="er*", within=0), look.find(search="er*", within=60)

    assert cut.is_cut
    assert (sorted(keys_of(whole.locks)), whole.is_cut) == (
        ["other*0", "other*1", "other*2"],
        False,
    )


def test_one_call_looks_at_many_locks(client: redis.Redis, look: Inspector) -> None:
    names = [f"lock:{key}" for key in hold(client, 120)]
    without_index = Inspector(client, PREFIX, use_index=False)

    together, alone = (
        calls(client, partial(by.get_each, names))["evalsha"] for by in (look, without_index)
    )

    # Without an index the keys of two locks may be in different slots.
    assert (together, alone) == (3, 120)


def queue_up(client: redis.Redis, names: list[str], count: int) -> None:
    """Have so many wait for each lock, who are alive."""
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            keys = lock_keys(name)
            pipe.zadd(keys.waiters, {f"w{number}": number for number in range(count)})
            for number in range(count):
                pipe.hset(keys.alive, f"w{number}", f"{10**15} {10**15} {10**15}")
        pipe.execute()


@pytest.mark.parametrize(("waiting", "locks"), [(2, 50), (300, 10)])
def test_a_call_looks_at_fewer_locks_where_many_wait(
    client: redis.Redis, look: Inspector, waiting: int, locks: int
) -> None:
    names = [f"lock:{key}" for key in hold(client, 50)]
    queue_up(client, names, waiting)

    stats = calls(client, lambda: look.get_each(names))
    found = look.get_each(names)

    assert stats["type"] == 50
    assert stats["type"] / stats["evalsha"] <= locks
    assert (stats["evalsha"] > 1) is (locks < 50)
    assert [(one.name, one.waiting) for one in found] == [(name, waiting) for name in names]


RECORDS = {
    "tricks": rb'{"host":"\"\\/\u001b[2J","stop":{"by":"joe"}}',
    "Latin-1": b'{"host":"caf\xe9"}',
    "no JSON": b"\xff\0",
}


def stand_in_every_state(client: redis.Redis) -> list[str]:
    """Have locks be in all the states that there are; return their names."""
    listed(client, "held", label="view pay").take(0)
    listed(client, "waited for").take(0)
    for _ in range(2):
        ask(listed(client, "waited for").attempt(), waits=True)
    for options in ({"shared": True}, {"limit": 3}):
        for _ in range(2):
            listed(client, f"by {min(options)}", **options).take(0)
    listed(client, "kept", min_hold=60).take(0).release()
    listed(client, "time", protocol="timestamp").take(0)
    left_to_the_first(client, 2)
    client.set("lock:bytes", b'\xff\xfe\0"\\/', px=20_000)
    client.set("lock:number", "9" * 400, px=20_000)
    client.set("lock:never", "")
    client.hset("lock:hash", "a", "b")
    for key, record in RECORDS.items():
        token = listed(client, key).take(0).token.encode()
        client.set(f"{{lock:{key}}}:meta", b"17 %d %s %s" % (len(token), token, record))
    client.zadd("{lock:by limit}:shares", {"permit:3:endless": "+inf"})
    client.hset("{lock:by limit}:holders", "permit:3:endless", b"17 \xff")
    keys = "held,waited for,by shared,by limit,kept,time,a,bytes,number,never,hash,free"
    return [f"lock:{key}" for key in [*keys.split(","), *RECORDS]]


def without_times(lock: LockInfo) -> LockInfo:
    shares = tuple(replace(one, remaining=0, held_for=0) for one in lock.shares)
    waiters = tuple(replace(one, waited=0) for one in lock.waiters)
    return replace(
        lock,
        as_of=0,
        remaining=lock.remaining and 0,
        held_for=lock.held_for and 0,
        longest_wait=lock.longest_wait and 0,
        shares=shares,
        waiters=waiters,
    )


@pytest.mark.usefixtures("nobody_looks", "patient")
@pytest.mark.parametrize("polling", [False, True])
def test_a_lock_among_others_is_told_as_alone(client: redis.Redis, polling: bool) -> None:
    names = stand_in_every_state(client)
    # Nobody looks at them, and what they wait for stays as it is.
    look = Inspector(client, PREFIX, unit="ms", polling=polling)

    together = [without_times(one) for one in look.get_each(names, waiters=5)]
    alone = [without_times(look.get(name, waiters=5)) for name in names]

    assert together == alone
    if not polling:
        told = {one.key: one.state for one in together}
        assert set(told.values()) == set(State) - {State.GONE, State.NOT_RENEWED}
        assert told["bytes"] is State.FOREIGN
    hosts = {one.key: one.holder and one.holder.host for one in together if one.key in RECORDS}
    assert hosts == {"tricks": r'"\/\x1b[2J', "Latin-1": None, "no JSON": None}
