from __future__ import annotations

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, RedisLock, State
from tests.core.helpers import INDEX, PREFIX, keys_of, listed, meet
from tests.processes import eventually


def test_held_locks_are_found_those_that_end_first_before_others(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for key, timeout in (("a", 60), ("b", 20), ("c", 40)):
        listed(redis_client, key, timeout=timeout).take()
    with listed(redis_client, "released"):
        pass

    found = inspector.find()
    some = inspector.find(2)

    assert (keys_of(found.locks), found.total, found.is_cut) == (["b", "c", "a"], 3, False)
    assert (keys_of(some.locks), some.total, some.is_cut) == (["b", "c"], 3, True)


def test_an_extended_lock_moves_in_the_order_of_leases(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", timeout=20).take()
    listed(redis_client, "b", timeout=40).take()

    held.extend(60)

    assert keys_of(inspector.find().locks) == ["b", "a"]


@pytest.mark.parametrize("everything", [False, True])
def test_a_search_keeps_the_keys_it_is_part_of(
    redis_client: redis.Redis, inspector: Inspector, everything: bool
) -> None:
    for key in ("order:1", "order:12", "cart:1", "lock"):
        listed(redis_client, key).take()

    def found(search: str) -> list[str]:
        return sorted(keys_of(inspector.find(search=search, everything=everything).locks))

    assert found("order:1") == ["order:1", "order:12"]
    assert found("lock") == ["lock"]
    assert found("*") == found("\udc80") == []


def test_a_search_says_that_there_are_more(redis_client: redis.Redis, inspector: Inspector) -> None:
    for number in range(3):
        listed(redis_client, f"order:{number}").take()

    cut, whole = inspector.find(2, search="order"), inspector.find(3, search="order")

    assert (len(cut.locks), cut.is_cut) == (2, True)
    assert (len(whole.locks), whole.is_cut) == (3, False)


def test_a_lock_whose_lease_has_ended_is_not_counted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "dead", timeout=0.1).take()
    with listed(redis_client, "kept", min_hold=0.1):
        pass

    eventually(lambda: not redis_client.exists("lock:dead", "lock:kept"))
    eventually(lambda: inspector.find().total == 0)

    assert inspector.get("lock:dead").state is State.FREE
    assert inspector.find().locks == []


def test_a_foreign_lock_is_listed_once_it_was_met(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "somebody", px=20_000)
    assert keys_of(inspector.find().locks) == []

    meet(redis_client, "a")

    assert [(one.key, one.state) for one in inspector.find().locks] == [("a", State.FOREIGN)]


@pytest.mark.parametrize("ms", [None, 600_000], ids=["endless", "ten minutes"])
def test_a_foreign_lock_that_was_released_is_not_listed_any_more(
    redis_client: redis.Redis, inspector: Inspector, ms: int | None
) -> None:
    with listed(redis_client, "a", label="long gone"):
        pass
    redis_client.set("lock:a", "somebody", px=ms)
    meet(redis_client, "a")

    redis_client.delete("lock:a")

    assert [(one.key, one.state, str(one.holder)) for one in inspector.find().locks] == []


def test_what_is_found_is_counted(redis_client: redis.Redis, inspector: Inspector) -> None:
    listed(redis_client, "a").take()
    redis_client.set("lock:b", "somebody", px=600_000)
    meet(redis_client, "b")
    redis_client.delete("lock:b")

    found = inspector.find()

    assert found.total == len(found.locks) == 1


def test_everything_finds_foreign_locks_that_nobody_met(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "somebody", px=20_000)
    redis_client.set("other:a", "x")
    redis_client.lpush("lock:list", "x")
    listed(redis_client, "b").take()

    found = inspector.all(everything=True)
    assert keys_of(found) == ["a", "b", "list"]
    assert found[-1].state is State.NO_LOCK


def test_without_an_index_every_lock_is_looked_for(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").take()
    redis_client.set("lock:b", "somebody")

    found = Inspector(redis_client, PREFIX, use_index=False).all()

    assert [(one.key, one.state) for one in found] == [
        ("a", State.HELD),
        ("b", State.NEVER_EXPIRES),
    ]


@pytest.mark.parametrize("prefix", ["l*ck:", "l[o]ck:", "l?ck:", "l\\ck:", "l^ck:"])
def test_a_prefix_is_looked_for_as_it_is_written(redis_client: redis.Redis, prefix: str) -> None:
    RedisLock(redis_client, prefix + "a").take()
    RedisLock(redis_client, "lock:b").take()

    found = Inspector(redis_client, prefix, use_index=False).find()

    assert keys_of(found.locks) == ["a"]


@pytest.mark.parametrize("prefix", ["{shop}:", "{shop}", ""])
def test_only_locks_are_listed_where_companions_begin_with_the_prefix_too(
    redis_client: redis.Redis, prefix: str
) -> None:
    with listed(redis_client, "a", prefix=prefix):
        pass
    listed(redis_client, "b", prefix=prefix).take()

    found = Inspector(redis_client, prefix).find(everything=True)

    assert keys_of(found.locks) == ["b"]


def test_names_that_are_no_text_are_passed_over(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set(b"lock:\xff", "x")
    redis_client.set("lock:a}b", "x")
    listed(redis_client, "a").take()

    assert keys_of(inspector.find(everything=True).locks) == ["a"]


def test_an_index_forgets_leases_that_ended_long_ago(redis_client: redis.Redis) -> None:
    redis_client.zadd(INDEX, {"lock:crashed": 1})
    lock = listed(redis_client, "a")

    # One in a hundred sweeps; that none of so many does is as good as impossible.
    tries = 0
    while redis_client.zscore(INDEX, "lock:crashed") and tries < 3000:
        with lock:
            tries += 1

    assert redis_client.zscore(INDEX, "lock:crashed") is None


def test_a_release_takes_the_lock_off_the_index(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a"):
        assert redis_client.zrange(INDEX, 0, -1) == [b"lock:a"]

    assert not redis_client.exists(INDEX)


def test_an_index_of_another_type_is_a_clear_error(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set(INDEX, "x")

    with pytest.raises(LockUnavailable) as caught:
        inspector.find()

    assert caught.value.cause == "wrongtype"


def test_several_locks_are_looked_at_in_the_order_asked(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a").take()

    found = inspector.get_each(["lock:b", "lock:a"])

    assert [(one.key, one.state) for one in found] == [("b", State.FREE), ("a", State.HELD)]
    assert inspector.get_each([]) == []
