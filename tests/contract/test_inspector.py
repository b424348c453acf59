"""What the inspector tells of locks: the same by each of its ways, and nothing that is not so."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, LockInfo, RedisLock, State
from tests.processes import eventually
from tests.support.locks import INDEX, PREFIX, listed, meet, server_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import redis

    from tests.servers import RealServer, Server

pytestmark = pytest.mark.usefixtures("listed_at_once")
HELD_FOR = 30
CALLED: dict[str, Any] = {"label": "view pay", "timeout": HELD_FOR}


@pytest.fixture
def look(redis_client: redis.Redis) -> Inspector:
    return Inspector(redis_client, PREFIX)


def keys_of(locks: Iterable[LockInfo]) -> list[str]:
    return [one.key for one in locks]


# What stands at a name


class Told(NamedTuple):
    """What is told of a lock: ``remaining`` to a second or two, and how many hold it."""

    state: State
    label: str | None = None
    remaining: float | None = None
    has_fence: bool = False
    shares: int = 0
    limit: int | None = None
    unit: str = ""
    kind: str = "string"


Situation = tuple["Callable[[Any, str], object]", Told]
OURS = Told(State.HELD, "view pay", HELD_FOR, has_fence=True)


def taken(*each: dict[str, Any]) -> Callable[[Any, str], object]:
    """Return what takes a lock, once with each of these options."""

    def take(client: Any, key: str) -> None:
        for options in each:
            listed(client, key, **{**CALLED, **options}).take(0)

    return take


def released(**options: Any) -> Callable[[Any, str], object]:
    return lambda client, key: listed(client, key, **CALLED, **options).take(0).release()


def written(value: str, ms: int | None = None) -> Callable[[Any, str], object]:
    return lambda client, key: client.set(PREFIX + key, value, px=ms)


def timed(ms: int) -> Callable[[Any, str], object]:
    """Return what another program writes that has the lock for so long."""
    return lambda client, key: client.set(PREFIX + key, server_ms(client) + ms)


def made_endless(client: Any, key: str) -> None:
    taken({})(client, key)
    client.persist(PREFIX + key)


SITUATIONS: dict[str, Situation] = {
    "exclusive": (taken({}), OURS),
    "hosted": (taken({"protocol": "hosted"}), OURS),
    "timestamp in ms": (taken({"protocol": "timestamp-ms"}), OURS._replace(unit="ms")),
    "timestamp in s": (taken({"protocol": "timestamp-s"}), OURS._replace(unit="s")),
    "readers": (
        taken({"shared": True, "timeout": 10}, {"shared": True}),
        OURS._replace(state=State.READ, shares=2),
    ),
    "permits": (
        taken({"limit": 2}, {"limit": 7, "timeout": 10}),
        OURS._replace(state=State.PERMITS, shares=2, limit=7),
    ),
    "kept": (released(min_hold=HELD_FOR), OURS._replace(state=State.KEPT)),
    "made endless": (made_endless, OURS._replace(state=State.NEVER_EXPIRES, remaining=None)),
    "released": (released(), Told(State.FREE, kind="none")),
    "another program's": (written("somebody", 20_000), Told(State.FOREIGN, remaining=20)),
    "bytes": (written("\udcff\0", 20_000), Told(State.FOREIGN, remaining=20)),
    "another's time": (timed(20_000), Told(State.FOREIGN, remaining=20, unit="ms")),
    "another's time that is over": (timed(-5_000), Told(State.FREE, unit="ms", kind="none")),
    "endless": (written("somebody"), Told(State.NEVER_EXPIRES)),
    "empty": (written(""), Told(State.NEVER_EXPIRES)),
    "a list": (
        lambda client, key: client.rpush(PREFIX + key, "data"),
        Told(State.NO_LOCK, kind="list"),
    ),
}


@pytest.fixture
def client(server: Server) -> redis.Redis:
    return server.client(encoding_errors="surrogateescape")


@pytest.mark.parametrize("what", SITUATIONS)
def test_each_state_is_told_with_what_is_known(client: redis.Redis, what: str) -> None:
    stand, told = SITUATIONS[what]
    stand(client, "a")

    info = Inspector(client, PREFIX, protocol="timestamp-ms").get("lock:a")

    assert (info.key, info.name, info.waiting) == ("a", "lock:a", 0)
    assert told == Told(
        info.state,
        info.holder.label if info.holder else None,
        info.remaining and told.remaining,
        info.fence is not None,
        len(info.shares),
        info.limit,
        info.unit,
        info.kind,
    )
    assert info.remaining == (told.remaining and pytest.approx(told.remaining, abs=10))
    assert (info.held_for is not None) is told.has_fence
    assert info.is_held is (told.state not in (State.FREE, State.NO_LOCK))


def without_times(lock: LockInfo) -> LockInfo:
    return replace(
        lock,
        as_of=0,
        remaining=lock.remaining and 0,
        held_for=lock.held_for and 0,
        shares=tuple(map(without_times, lock.shares)),
    )


WAYS: dict[str, Callable[[Inspector, list[str]], Iterable[LockInfo]]] = {
    "together": lambda look, names: look.get_each(names),
    "a page": lambda look, _: look.find(everything=True).locks,
    "all": lambda look, _: look.all(everything=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_index", [True, False])
def test_a_lock_among_others_is_told_as_alone(
    client: redis.Redis, way: str, has_index: bool
) -> None:
    for key, (stand, _) in SITUATIONS.items():
        stand(client, key)
    look = Inspector(client, PREFIX, protocol="timestamp-ms", use_index=has_index)
    names = [PREFIX + key for key in SITUATIONS]

    alone = {name: without_times(look.get(name)) for name in names}
    found = {one.name: without_times(one) for one in WAYS[way](look, names)}

    if way != "together":
        alone = {name: one for name, one in alone.items() if one.state is not State.FREE}
    assert found == alone


def test_without_a_unit_no_number_is_a_time(redis_client: redis.Redis, look: Inspector) -> None:
    timed(-5_000)(redis_client, "a")

    assert (look.get("lock:a").state, look.get("lock:a").unit) == (State.NEVER_EXPIRES, "")


def test_a_holder_is_told_in_one_line(redis_client: redis.Redis, look: Inspector) -> None:
    listed(redis_client, "a", label="view pay", user="joe", note="by hand").take()

    host = f"{socket.gethostname()}:{os.getpid()}"
    assert str(look.get("lock:a").holder) == f"joe@{host} (view pay; by hand)"


def test_of_several_holders_each_is_told(redis_client: redis.Redis, look: Inspector) -> None:
    first = listed(redis_client, "a", timeout=60, label="one", shared=True).take(0)
    second = listed(redis_client, "a", timeout=600, label="two", shared=True).take(0)

    info = look.get("lock:a")

    # The first to end first.
    assert [one.holder and one.holder.label for one in info.shares] == ["one", "two"]
    assert [one.fence for one in info.shares] == [first.fence, second.fence]
    assert (info.shares[0].remaining or 61) <= 60 < (info.remaining or 0) <= 600
    assert len({info.fingerprint, *(one.fingerprint for one in info.shares)}) == 3
    listed(redis_client, "a", timeout=60, shared=True).take(0)
    assert look.get("lock:a").fingerprint != info.fingerprint


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"protocol": "timestamp-ms"}], ids=str)
def test_a_fingerprint_stands_for_one_hold_whoever_looks(
    server: Server, options: dict[str, Any]
) -> None:
    seen: list[str] = []
    for _ in range(2):
        with listed(server.client(), "a", **options) as held:
            for _ in range(2):
                for decode in (True, False):
                    look = Inspector(server.client(decode_responses=decode), PREFIX)
                    seen.append(look.get("lock:a").fingerprint)
                held.extend(5)

    assert len(set(seen[:4])) == len(set(seen[4:])) == 1
    assert len(set(seen)) == 2


# Lists


def test_held_locks_are_found_those_that_end_first_before_others(
    redis_client: redis.Redis, look: Inspector
) -> None:
    held = {
        key: listed(redis_client, key, timeout=timeout).take(0)
        for key, timeout in (("a", 600), ("b", 200), ("c", 400))
    }
    listed(redis_client, "released").take(0).release()

    found, some = look.find(), look.find(2)

    assert (keys_of(found.locks), found.total, found.is_cut) == (["b", "c", "a"], 3, False)
    assert (keys_of(some.locks), some.total, some.is_cut) == (["b", "c"], 3, True)
    held["b"].extend(1000)
    assert keys_of(look.find().locks) == ["c", "a", "b"]


@pytest.mark.parametrize("everything", [False, True])
def test_a_search_keeps_the_keys_it_is_part_of(
    redis_client: redis.Redis, look: Inspector, everything: bool
) -> None:
    for key in ("order:1", "order:12", "cart:1", "lock", "odd*[1]"):
        listed(redis_client, key).take()

    def found(search: str, limit: int = 9) -> tuple[list[str], bool]:
        page = look.find(limit, search=search, everything=everything)
        return sorted(keys_of(page.locks)), page.is_cut

    assert found("order:1") == (["order:1", "order:12"], False)
    assert found("lock") == (["lock"], False)
    assert found("*[") == (["odd*[1]"], False)
    assert found("\udc80") == ([], False)
    assert found("ORDER:12") == (["order:12"], False)
    assert len(look.find(1, everything=everything).locks) == 1
    assert look.find(1, everything=everything).is_cut
    assert not look.find(5, everything=everything).is_cut


def test_what_is_over_is_neither_listed_nor_counted(
    redis_client: redis.Redis, look: Inspector
) -> None:
    listed(redis_client, "dead", timeout=0.1).take()
    listed(redis_client, "kept", min_hold=0.1).take().release()
    listed(redis_client, "held").take()

    eventually(lambda: look.find().total == 1)

    assert keys_of(look.find().locks) == ["held"]


@pytest.mark.parametrize("ms", [None, 600_000], ids=["endless", "ten minutes"])
def test_a_lock_of_another_program_is_listed_from_when_it_was_met_until_it_is_gone(
    redis_client: redis.Redis, look: Inspector, ms: int | None
) -> None:
    redis_client.set("lock:a", "somebody", px=ms)
    before = keys_of(look.find().locks)
    meet(redis_client, "a")
    met = keys_of(look.find().locks)
    redis_client.delete("lock:a")
    after = look.find()

    assert (before, met) == ([], ["a"])
    assert (after.locks, after.total) == ([], 0)


@pytest.mark.parametrize("prefix", ["l*ck:", "l[o]ck:", "l?ck:", "l\\ck:", "{shop}:", ""])
def test_a_prefix_is_looked_for_as_it_is_written(redis_client: redis.Redis, prefix: str) -> None:
    """And of what stands beside locks nothing is listed, though it begins with the prefix too."""
    listed(redis_client, "released", prefix=prefix).take().release()
    listed(redis_client, "a", prefix=prefix).take()
    if prefix:
        RedisLock(redis_client, "lock:b").take()

    for has_index in (True, False):
        look = Inspector(redis_client, prefix, use_index=has_index)
        assert keys_of(look.find(everything=True).locks) == ["a"]


def test_names_that_no_lock_can_have_are_passed_over(
    redis_client: redis.Redis, look: Inspector
) -> None:
    redis_client.set(b"lock:\xff", "x")
    redis_client.set("lock:a}b", "x")
    listed(redis_client, "a").take()

    assert keys_of(look.find(everything=True).locks) == ["a"]


def test_an_index_of_another_type_is_a_clear_error(
    redis_client: redis.Redis, look: Inspector
) -> None:
    redis_client.set(INDEX, "x")

    with pytest.raises(LockUnavailable) as caught:
        look.find()

    assert caught.value.cause == "wrongtype"


def test_several_locks_are_told_in_the_order_asked(
    redis_client: redis.Redis, look: Inspector
) -> None:
    listed(redis_client, "a").take()

    found = look.get_each(["lock:b", "lock:a"])

    assert [(one.key, one.state) for one in found] == [("b", State.FREE), ("a", State.HELD)]
    assert look.get_each([]) == []


# Of many


def hold(client: redis.Redis, count: int) -> list[str]:
    """Have so many locks held and listed; return the keys."""
    until = server_ms(client) + 600_000
    keys = [f"k{number:05}" for number in range(count)]
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.set(f"lock:{key}", "somebody", px=600_000)
            pipe.zadd(INDEX, {f"lock:{key}": until})
        pipe.execute()
    return keys


def test_a_page_costs_no_more_where_there_are_many(real_server: RealServer) -> None:
    client = real_server.client()
    look = Inspector(client, PREFIX)

    def cost() -> tuple[int, int]:
        """Return how many commands the server runs for a page, and how many bytes it says."""
        look.find(200)
        client.config_resetstat()
        look.find(200)
        said = client.info("stats")["total_net_output_bytes"]
        return sum(one["calls"] for one in client.info("commandstats").values()), said

    hold(client, 300)
    few = cost()
    hold(client, 20_000)
    many = cost()

    assert many[0] <= few[0]
    assert many[1] < few[1] * 1.2


def test_all_are_found_however_many_they_are(real_server: RealServer) -> None:
    client = real_server.client()
    look = Inspector(client, PREFIX)
    keys = hold(client, 3_000)
    client.set("lock:unlisted", "somebody")

    assert keys_of(look.all()) == keys
    assert keys_of(look.all(search="k0299")) == keys[2990:]
    assert keys_of(look.all(everything=True)) == [*keys, "unlisted"]
    assert keys_of(Inspector(client, PREFIX, use_index=False).all()) == [*keys, "unlisted"]
    assert look.find(search="no such", everything=True, within=0).is_cut
    assert look.find(first=10).looked_at == 10
    assert keys_of(look.find(search="k0011", first=10).locks) == keys[110:120]
    assert look.find(search="no such").looked_at == 2000
