"""Lists of more locks than are read, and sorted, at once."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, LockInfo, LockPage, State, clock
from django_setnx_lock.core.inspection import ALL_SORTED
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import INDEX, PREFIX, ask, keys_of, listed, server_ms
from tests.core.queueing import left_to_the_first
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers import RealServer

MANY = ALL_SORTED + 100


@pytest.fixture
def client(real_server: RealServer) -> redis.Redis:
    return real_server.client()


@pytest.fixture
def look(client: redis.Redis) -> Inspector:
    return Inspector(client, PREFIX)


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no time pass while names are looked through."""
    monkeypatch.setattr(clock, "now", lambda: 0.0)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a minute pass whenever somebody looks at the clock."""
    minutes = itertools.count()
    monkeypatch.setattr(clock, "now", lambda: next(minutes) * 60.0)


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


def let_pass(client: redis.Redis, ends: dict[str, int]) -> None:
    """Have locks be listed whose leases ended some seconds ago, in the order of these times."""
    seconds, _ = client.time()
    client.zadd(INDEX, {f"lock:{key}": (seconds - 10) * 1000 + end for key, end in ends.items()})


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


@pytest.mark.parametrize(
    "asked",
    [{}, {"by_lease": True}, {"by_lease": True, "descending": True}, {"search": "k00007"}],
    ids=["key", "lease", "last lease", "search for a key"],
)
def test_what_a_page_costs_does_not_grow_with_the_locks(
    client: redis.Redis, look: Inspector, asked: dict[str, object]
) -> None:
    hold(client, MANY)
    few = calls(client, lambda: look.page(**asked))  # type: ignore[arg-type]  # of these types
    said = said_by_server(client, lambda: look.page(**asked))  # type: ignore[arg-type]
    hold(client, 20_000)

    many = calls(client, lambda: look.page(**asked))  # type: ignore[arg-type]
    said_now = said_by_server(client, lambda: look.page(**asked))  # type: ignore[arg-type]

    # The first that runs is found by halves: five more for twenty times as many.
    assert sum(many.values()) <= sum(few.values()) + 5
    assert said_now < said * 1.2
    assert "zscan" not in many


def test_the_whole_list_does_grow_with_the_locks(client: redis.Redis, look: Inspector) -> None:
    hold(client, MANY)
    few, said = calls(client, look.all), said_by_server(client, look.all)
    hold(client, 5_000)

    assert sum(calls(client, look.all).values()) > 3 * sum(few.values())
    assert said_by_server(client, look.all) > 3 * said


@pytest.mark.parametrize("limit", [50, 333])
def test_pages_have_each_lock_once_in_the_order_of_the_leases(
    client: redis.Redis, look: Inspector, limit: int
) -> None:
    keys = hold(client, MANY)

    up, down = (
        [
            key
            for offset in range(0, MANY + limit, limit)
            for key in keys_of(
                look.page(by_lease=True, descending=descending, offset=offset, limit=limit).locks
            )
        ]
        for descending in (False, True)
    )

    assert up == keys[::-1]
    assert down == keys


@pytest.mark.parametrize("count", [100, MANY])
def test_leases_that_are_over_come_last(client: redis.Redis, look: Inspector, count: int) -> None:
    keys = hold(client, count)
    let_pass(client, {"over1": 1, "over2": 2, "over3": 3})

    first = look.page(by_lease=True, limit=2)
    end = look.page(by_lease=True, offset=count - 1, limit=3)
    last = look.page(by_lease=True, offset=count + 2, limit=3)
    latest = look.page(by_lease=True, descending=True, offset=count - 1)

    assert keys_of(first.locks) == [keys[-1], keys[-2]]
    assert keys_of(end.locks) == [keys[0], "over3", "over2"]
    assert keys_of(last.locks) == ["over1"]
    assert last.locks[0].state is State.OVER
    assert keys_of(latest.locks) == [keys[-1], "over3", "over2", "over1"]
    assert {(one.total, one.over) for one in (first, end, last, latest)} == {(count + 3, 3)}


def test_so_many_are_sorted_by_lease_and_the_page_says_so(
    client: redis.Redis, look: Inspector
) -> None:
    keys = hold(client, ALL_SORTED)
    sorted_page = look.page(limit=2)
    client.zadd(INDEX, {"lock:one more": 1})

    page = look.page(limit=2)

    assert (keys_of(sorted_page.locks), sorted_page.by_lease) == (keys[:2], False)
    assert (keys_of(page.locks), page.by_lease) == (keys[:-3:-1], True)
    assert page.total == ALL_SORTED + 1


@pytest.mark.usefixtures("no_hurry")
def test_a_search_looks_through_all_of_them(client: redis.Redis, look: Inspector) -> None:
    hold(client, MANY)
    hold(client, 3, "other*{}".format)

    by_key = look.page(search="er*")
    by_lease = look.page(search="er*", by_lease=True)
    nothing = look.page(search="e*0")

    assert keys_of(by_key.locks) == ["other*0", "other*1", "other*2"]
    assert keys_of(by_lease.locks) == ["other*2", "other*1", "other*0"]
    assert [(one.total, one.onward) for one in (by_key, by_lease, nothing)] == [
        (3, ""), (3, ""), (0, ""),
    ]  # fmt: skip


def walk(ask: Callable[[str], LockPage]) -> tuple[list[str], int]:
    """Return the keys that are found from page to page as a search goes on, and in how many."""
    found: list[str] = []
    onward = ""
    for number in range(1, 100):
        page = ask(onward)
        found += keys_of(page.locks)
        if not page.onward:
            return found, number
        onward = page.onward
    raise AssertionError("the search does not end")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("everything", [False, True])
def test_a_search_that_takes_too_long_goes_on_from_where_it_was(
    client: redis.Redis, look: Inspector, *, everything: bool
) -> None:
    hold(client, 3_000)
    hold(client, 3, "other{}".format)

    found, pages = walk(lambda start: look.page(search="other", start=start, everything=everything))

    assert sorted(set(found)) == ["other0", "other1", "other2"]
    assert 2 < pages < 20


@pytest.mark.usefixtures("no_hurry")
def test_a_search_rests_when_it_has_found_many(client: redis.Redis, look: Inspector) -> None:
    keys = hold(client, 3_000)

    found, pages = walk(lambda start: look.page(search="k", start=start, limit=3_000))

    assert sorted(set(found)) == keys
    assert 2 < pages < 10


def test_a_whole_key_is_found_without_looking_through_the_others(
    client: redis.Redis, look: Inspector
) -> None:
    hold(client, MANY)
    hold(client, 1, "k00007/part".format)

    page = look.page(search="k00007")
    more, _ = walk(lambda start: look.page(search="k00007", start=start or page.onward))

    assert keys_of(page.locks) == ["k00007"]
    assert more == ["k00007", "k00007/part"]


@pytest.mark.parametrize("search", ["\udc80", "}b", "\0", "x" * 9000])
def test_a_search_that_no_name_can_have_finds_nothing(
    client: redis.Redis, look: Inspector, search: str
) -> None:
    hold(client, MANY)

    assert walk(lambda start: look.page(search=search, start=start))[0] == []


@pytest.mark.usefixtures("slow")
def test_all_are_all_however_long_that_takes(client: redis.Redis, look: Inspector) -> None:
    keys = hold(client, 3_000)
    client.set("lock:unlisted", "somebody")

    assert keys_of(look.all()) == keys
    assert keys_of(look.all(search="k0299")) == keys[2990:]
    assert keys_of(look.all(everything=True)) == [*keys, "unlisted"]
    assert keys_of(Inspector(client, PREFIX, use_index=False).all()) == [*keys, "unlisted"]


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
    listed(client, "over").take(0)
    client.delete("lock:over")
    client.zadd(INDEX, {"lock:over": server_ms(client) - 5000})
    client.set("lock:bytes", b'\xff\xfe\0"\\/', px=20_000)
    client.set("lock:number", "9" * 400, px=20_000)
    client.set("lock:never", "")
    client.hset("lock:hash", "a", "b")
    for key, record in RECORDS.items():
        token = listed(client, key).take(0).token.encode()
        client.set(f"{{lock:{key}}}:meta", b"17 %d %s %s" % (len(token), token, record))
    client.zadd("{lock:by limit}:shares", {"permit:3:endless": "+inf"})
    client.hset("{lock:by limit}:holders", "permit:3:endless", b"17 \xff")
    keys = "held,waited for,by shared,by limit,kept,time,a,over,bytes,number,never,hash,free"
    return [f"lock:{key}" for key in [*keys.split(","), *RECORDS]]


def without_times(lock: LockInfo) -> LockInfo:
    shares = tuple(replace(one, remaining=0, held_for=0) for one in lock.shares)
    waiters = tuple(replace(one, waited=0) for one in lock.waiters)
    return replace(
        lock,
        as_of=0,
        remaining=lock.remaining and 0,
        held_for=lock.held_for and 0,
        over_for=lock.over_for and 0,
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


@pytest.fixture
def looked_at(client: redis.Redis) -> Callable[[], int]:
    """Return at how many locks the server has looked since."""
    client.config_resetstat()
    return lambda: int(client.info("commandstats").get("cmdstat_type", {}).get("calls", 0))


def readers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "setnx-lock-list"]


def test_the_next_lists_are_read_while_one_is_used(
    client: redis.Redis, look: Inspector, looked_at: Callable[[], int]
) -> None:
    hold(client, 4_000)

    lists = look.batches()
    first = next(lists)
    eventually(lambda: looked_at() == 2_000)
    lists.close()
    eventually(lambda: not readers())

    assert len(first) == 500
    assert looked_at() == 2_000


def test_nobody_who_leaves_a_list_waits_for_a_server_that_hangs(
    client: redis.Redis, look: Inspector, looked_at: Callable[[], int]
) -> None:
    hold(client, 4_000)
    lists = look.batches()
    next(lists)
    eventually(lambda: looked_at() == 2_000)
    # Scripts wait, too, as they might write.
    client.client_pause(60_000, all=False)

    next(lists)
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    lists.close()
    is_reading = bool(readers())
    client.client_unpause()

    assert is_reading
    eventually(lambda: not readers())
