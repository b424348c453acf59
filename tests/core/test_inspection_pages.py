from __future__ import annotations

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, RedisLock, State
from tests.core.helpers import INDEX, PREFIX, keys_of, listed, meet


def test_held_locks_are_listed_by_key(redis_client: redis.Redis, inspector: Inspector) -> None:
    for key in ("b", "c", "a"):
        listed(redis_client, key).take()
    with listed(redis_client, "released"):
        pass

    page = inspector.page()

    assert keys_of(page.locks) == ["a", "b", "c"]
    assert page.total == 3
    assert {one.state for one in page.locks} == {State.HELD}


def test_locks_are_listed_by_the_end_of_the_lease(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for key, timeout in (("a", 60), ("b", 20), ("c", 40)):
        listed(redis_client, key, timeout=timeout).take()

    assert keys_of(inspector.page(by_lease=True).locks) == ["b", "c", "a"]
    assert keys_of(inspector.page(by_lease=True, descending=True).locks) == ["a", "c", "b"]
    assert keys_of(inspector.page(descending=True).locks) == ["c", "b", "a"]


def test_an_extended_lock_moves_in_the_order_of_leases(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", timeout=20).take()
    listed(redis_client, "b", timeout=40).take()

    held.extend(60)

    assert keys_of(inspector.page(by_lease=True).locks) == ["b", "a"]


def test_a_search_keeps_the_keys_it_is_part_of(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for key in ("order:1", "order:12", "cart:1", "lock"):
        listed(redis_client, key).take()

    assert keys_of(inspector.page(search="order:1").locks) == ["order:1", "order:12"]
    assert inspector.page(search="order:1").total == 2
    assert keys_of(inspector.page(search="lock").locks) == ["lock"]
    assert keys_of(inspector.page(search="*").locks) == []


def test_locks_come_in_pages(redis_client: redis.Redis, inspector: Inspector) -> None:
    for number in range(7):
        listed(redis_client, f"k{number}").take()

    pages = [inspector.page(offset=offset, limit=3) for offset in (0, 3, 6, 9)]

    assert [keys_of(page.locks) for page in pages] == [
        ["k0", "k1", "k2"], ["k3", "k4", "k5"], ["k6"], [],
    ]  # fmt: skip
    assert {page.total for page in pages} == {7}


def test_a_foreign_lock_is_listed_once_it_was_met(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "somebody", px=20_000)
    assert keys_of(inspector.page().locks) == []

    meet(redis_client, "a")

    assert [(one.key, one.state) for one in inspector.page().locks] == [("a", State.FOREIGN)]


@pytest.mark.parametrize("ms", [None, 600_000], ids=["endless", "ten minutes"])
def test_a_foreign_lock_that_was_released_is_not_listed_any_more(
    redis_client: redis.Redis, inspector: Inspector, ms: int | None
) -> None:
    with listed(redis_client, "a", label="long gone"):
        pass
    redis_client.set("lock:a", "somebody", px=ms)
    meet(redis_client, "a")

    redis_client.delete("lock:a")

    assert [(one.key, one.state, str(one.holder)) for one in inspector.page().locks] == []


def test_a_page_counts_what_it_lists(redis_client: redis.Redis, inspector: Inspector) -> None:
    listed(redis_client, "a").take()
    redis_client.set("lock:b", "somebody", px=600_000)
    meet(redis_client, "b")
    redis_client.delete("lock:b")

    page = inspector.page()

    assert page.total == len(page.locks) == 1


def test_everything_finds_foreign_locks_that_nobody_met(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "somebody", px=20_000)
    redis_client.set("other:a", "x")
    redis_client.lpush("lock:list", "x")
    listed(redis_client, "b").take()

    found = inspector.page(everything=True).locks
    assert keys_of(found) == ["a", "b", "list"]
    assert found[-1].state is State.NO_LOCK


def test_without_an_index_every_lock_is_looked_for(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").take()
    redis_client.set("lock:b", "somebody")

    page = Inspector(redis_client, PREFIX, use_index=False).page()

    assert [(one.key, one.state) for one in page.locks] == [
        ("a", State.HELD),
        ("b", State.NEVER_EXPIRES),
    ]


@pytest.mark.parametrize("prefix", ["l*ck:", "l[o]ck:", "l?ck:", "l\\ck:", "l^ck:"])
def test_a_prefix_is_looked_for_as_it_is_written(redis_client: redis.Redis, prefix: str) -> None:
    RedisLock(redis_client, prefix + "a").take()
    RedisLock(redis_client, "lock:b").take()

    page = Inspector(redis_client, prefix, use_index=False).page()

    assert keys_of(page.locks) == ["a"]


@pytest.mark.parametrize("prefix", ["{shop}:", "{shop}", ""])
def test_only_locks_are_listed_where_companions_begin_with_the_prefix_too(
    redis_client: redis.Redis, prefix: str
) -> None:
    with listed(redis_client, "a", prefix=prefix):
        pass
    listed(redis_client, "b", prefix=prefix).take()

    page = Inspector(redis_client, prefix).page(everything=True)

    assert keys_of(page.locks) == ["b"]


def test_names_that_are_no_text_are_passed_over(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set(b"lock:\xff", "x")
    redis_client.set("lock:a}b", "x")
    listed(redis_client, "a").take()

    assert keys_of(inspector.page(everything=True).locks) == ["a"]


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
        inspector.page()

    assert caught.value.cause == "wrongtype"


def test_several_locks_are_looked_at_in_the_order_asked(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a").take()

    found = inspector.get_each(["lock:b", "lock:a"])

    assert [(one.key, one.state) for one in found] == [("b", State.FREE), ("a", State.HELD)]
    assert inspector.get_each([]) == []
