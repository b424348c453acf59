"""While somebody holds a lock, nobody else does."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import redis.exceptions

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock
from tests.support.drivers import Face
from tests.support.kinds import (
    ALL,
    EXCLUSIVE,
    HOSTED,
    ONE_SERVER,
    PERMITS,
    READERS,
    REDLOCK,
    SEVERAL,
    SINGLE,
    TIMESTAMP,
)
from tests.support.rows import on
from tests.support.world import World

THREADS_OR_TASKS = 8


@on()
async def test_nobody_else_has_it_while_it_is_held(a: World) -> None:
    async with a.lock().block():
        assert await a.rival().acquire(blocking=False) is False
        with pytest.raises(LockBusy):
            await a.rival().take(0)

    assert await a.rival().acquire(blocking=False) is True


@on()
async def test_it_is_not_had_while_a_rival_holds_it(a: World) -> None:
    async with a.rival().block():
        with pytest.raises(LockBusy) as busy:
            await a.lock().take(0)

    assert busy.value.key == a.kind.contested
    assert isinstance(busy.value, redis.exceptions.LockError)
    held = await a.lock().take(0)
    await held.release()


@on([EXCLUSIVE])
async def test_the_name_of_an_enum_member_is_its_value(a: World) -> None:
    class Name(str, enum.Enum):
        A = "lock:a"

    async with a.lock(Name.A).block():
        assert a.direct.exists("lock:a")


@on([EXCLUSIVE, READERS, PERMITS, HOSTED, SEVERAL])
async def test_an_empty_text_is_another_programs_lock(a: World) -> None:
    a.direct.set(a.kind.contested, "")

    assert await a.lock().acquire(blocking=False) is False
    assert a.direct.get(a.kind.contested) == ""
    a.direct.delete(a.kind.contested)


@on()
async def test_a_block_that_raises_lets_the_lock_go(a: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with a.lock().block():
            raise ZeroDivisionError

    assert a.is_free()


@on()
async def test_a_block_does_not_begin_without_the_lock(a: World) -> None:
    async with a.rival().block():
        with pytest.raises(LockBusy):
            async with a.lock(blocking=False).block():
                pytest.fail("it was entered")


@on()
async def test_of_many_who_ask_at_once_one_has_it(a: World) -> None:
    async def ask() -> bool:
        return bool(await a.rival().acquire(blocking=False))

    jobs = [a.spawn(ask()) for _ in range(THREADS_OR_TASKS)]
    won = [await job.result() for job in jobs]

    # On several masters it may be that none gets a majority.
    assert won.count(True) == 1 or (a.kind is REDLOCK and not any(won))


@on()
async def test_those_who_wait_are_inside_one_at_a_time(a: World) -> None:
    inside, worst, turns = 0, 0, 0

    async def work(lock: Face) -> None:
        nonlocal inside, worst, turns
        async with lock.block():
            inside += 1
            worst = max(worst, inside)
            await a.sleep(0.001)
            turns += 1
            inside -= 1

    jobs = [a.spawn(work(a.rival())) for _ in range(THREADS_OR_TASKS)]
    for job in jobs:
        await job.result()

    assert (worst, turns) == (1, THREADS_OR_TASKS)


@on()
async def test_anybody_is_told_whether_it_is_held(a: World) -> None:
    lock, other = a.lock(a.kind.contested), a.rival()
    if a.kind is SEVERAL:
        lock = a.rival()
    assert await lock.locked() is False
    async with lock.block():
        assert await lock.locked() is True
        assert await other.locked() is True
    assert await other.locked() is False


@on()
async def test_it_is_ours_while_we_hold_it(a: World) -> None:
    lock, other = a.lock(), a.lock()
    assert await lock.owned() is False
    held = await lock.take(0)
    assert await held.owned() is True
    await held.check()
    assert await other.owned() is False
    await held.release()
    assert await held.owned() is False


@on()
async def test_another_name_is_another_lock(a: World) -> None:
    async with a.lock().block(), a.lock("lock:z").block():
        pass


@on()
async def test_a_lease_that_is_not_renewed_ends_by_itself(a: World) -> None:
    held = await a.lock(timeout=a.kind.brief).take(20)

    other = await a.rival().take(20)

    assert held.lost
    assert held.remaining() == 0
    await other.check()


@on()
async def test_the_holder_is_named_to_who_finds_it_busy(a: World) -> None:
    async with a.lock(label="view pay", user="ann", note="invoice 7").block():
        with pytest.raises(LockBusy) as busy:
            await a.rival().take(0)

    holder = busy.value.holder
    assert holder is not None
    assert (holder.label, holder.user, holder.note) == ("view pay", "ann", "invoice 7")
    assert busy.value.remaining is not None
    # A time is rounded up.
    assert 0 < busy.value.remaining <= 10.01


@on(ONE_SERVER)
async def test_what_another_program_holds_without_end_is_busy(a: World) -> None:
    a.direct.set(a.kind.contested, a.kind.thief)

    assert await a.lock().acquire(blocking_timeout=0.02) is False

    a.direct.delete(a.kind.contested)
    assert await a.lock().acquire(blocking_timeout=5) is True


@on([EXCLUSIVE, READERS, PERMITS, SEVERAL])
async def test_what_another_program_holds_is_its_own_whatever_it_wrote_there(a: World) -> None:
    values = ("web:4242", "worker:7", "5000000000000", "readers:5", "permits:7")
    # At first there is no record of an earlier holder.
    for value in (*values, *values):
        a.direct.set(a.kind.contested, value, px=30_000)
        assert await a.lock().acquire(blocking_timeout=0.02) is False
        assert a.direct.get(a.kind.contested) == value
        if value is values[-1]:
            a.direct.delete(a.kind.contested)
            held = await a.lock().take(0)
            await held.release()


@on(ONE_SERVER)
async def test_it_excludes_the_lock_of_redis_py(a: World) -> None:
    theirs = a.client.lock(a.kind.contested, timeout=10)
    async with a.lock().block():
        assert theirs.acquire(blocking=False) is False
    assert theirs.acquire(blocking=False) is True
    # A token is no time, which the timestamp protocol says.
    with pytest.raises(LockError):
        await a.lock().take(0)
    theirs.release()


@on([EXCLUSIVE, READERS, PERMITS, SEVERAL])
async def test_it_waits_for_the_lock_of_redis_py_and_is_waited_for(a: World) -> None:
    theirs = a.client.lock(a.kind.contested, timeout=10, sleep=0.01)
    assert theirs.acquire(blocking=False)
    job = a.spawn(a.lock().acquire(blocking_timeout=10))
    await a.waiting(1)
    theirs.release()
    assert await job.result() is True


@on([READERS])
async def test_readers_are_in_together_and_a_writer_is_alone(a: World) -> None:
    async with a.lock().block(), a.lock().block():
        assert await a.rival().acquire(blocking=False) is False
    async with a.rival().block():
        assert await a.lock().acquire(blocking=False) is False
        assert await a.rival().acquire(blocking=False) is False


@on([READERS, PERMITS])
async def test_of_those_who_hold_it_one_who_has_not_left_is_named(a: World) -> None:
    options: dict[str, Any] = {} if a.kind is READERS else {"limit": 2}
    async with a.lock(label="first", **options).block():
        async with a.lock(label="second", **options).block():
            pass
        with pytest.raises(LockBusy) as busy:
            await a.rival().take(0)
    assert busy.value.holder is not None
    assert busy.value.holder.label == "first"


@on([PERMITS])
async def test_so_many_are_in_together_as_there_are_permits(a: World) -> None:
    async with a.lock(limit=2).block() as first, a.lock(limit=2).block() as second:
        assert await a.lock(limit=2).acquire(blocking=False) is False
        await first.check()
        await second.release()
        assert await a.lock(limit=2).acquire(blocking=False) is True


@on([EXCLUSIVE])
async def test_all_kinds_at_one_name_exclude_each_other(a: World) -> None:
    kinds = [READERS, PERMITS, HOSTED]
    for kind in kinds:
        async with Face(kind.make(a.clients), a.driver).block():
            for other in (one for one in [EXCLUSIVE, *kinds] if one is not kind):
                rival = Face(other.make(a.clients), a.driver)
                assert await rival.acquire(blocking=False) is False, (kind.name, other.name)


@on([SEVERAL])
async def test_of_several_keys_all_are_had_or_none(a: World) -> None:
    async with a.rival().block():
        with pytest.raises(LockBusy) as busy:
            await a.lock().take(0)
        assert busy.value.key == "lock:b"
        assert not a.direct.exists("lock:a", "lock:c")
    async with a.lock().block() as held:
        assert sorted(held.raw) == ["lock:a", "lock:b", "lock:c"]
        assert a.direct.exists(*a.kind.names) == 3


@on([SEVERAL])
async def test_who_take_some_of_the_same_keys_in_any_order_all_come_through(a: World) -> None:
    turns: list[int] = []

    async def work(number: int, keys: str) -> None:
        locks = type(a.lock().raw)(a.client, [f"lock:{key}" for key in keys], timeout=10)
        for _ in range(3):
            async with Face(locks, a.driver).block():
                turns.append(number)

    jobs = [a.spawn(work(*one)) for one in enumerate(["abc", "cb", "ba", "ca"])]
    for job in jobs:
        await job.result()

    assert sorted(turns) == sorted(3 * [0, 1, 2, 3])


@on(SINGLE)
async def test_what_stands_at_the_name_ends_with_the_lease(a: World) -> None:
    async with a.lock(timeout=7).block():
        # A time of the timestamp protocol is removed a second after it is over.
        assert 6_000 < a.direct.pttl("lock:a") <= (8_500 if a.kind is TIMESTAMP else 7_000)


@on([EXCLUSIVE, HOSTED])
async def test_the_token_stands_at_the_name(a: World) -> None:
    async with a.lock().block() as held:
        assert a.direct.get("lock:a") == held.token


@on([EXCLUSIVE])
async def test_a_token_can_be_chosen(a: World) -> None:
    lock = a.lock()
    assert await lock.acquire(token="worker-7")
    assert a.direct.get("lock:a") == "worker-7"
    assert lock.raw.local.token == b"worker-7"
    await lock.release()
    assert a.is_free()


@on([kind for kind in ALL if kind is not SEVERAL], drivers=["blocking"])
async def test_a_lock_says_which_it_is(a: World) -> None:
    lock = a.lock(key="order:42").raw
    assert (lock.key, lock.name) == ("order:42", "lock:a")
    with lock as held:
        assert (held.key, held.name) == ("order:42", "lock:a")
    assert isinstance(lock, RedisLock)
