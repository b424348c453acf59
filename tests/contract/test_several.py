"""A lock over several keys: all of them or none, waited for in one order, lost one by one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, signals
from django_setnx_lock.core import MultiLock
from tests.faults.proxy import Proxy
from tests.processes import Stopwatch
from tests.support.drivers import Face
from tests.support.kinds import SEVERAL, STEADY
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.drivers import Job
    from tests.support.world import World


def several(a: World, letters: str, **options: Any) -> Face:
    names = [f"lock:{letter}" for letter in letters]
    return Face(MultiLock(a.client, names, **{"timeout": 10, **options}), a.driver)


def one(a: World, letter: str, **options: Any) -> Face:
    return several(a, letter, **options)


def taken(a: World) -> str:
    return "".join(letter for letter in "abcd" if a.direct.exists(f"lock:{letter}"))


async def waits_at(a: World, letter: str, count: int = 1) -> None:
    await a.eventually(lambda: a.info(f"lock:{letter}").waiting == count)


@on([SEVERAL])
async def test_the_handles_are_had_by_key_in_the_order_given(a: World) -> None:
    async with several(a, "caba").block() as held:
        keys = [f"lock:{letter}" for letter in "cab"]
        assert list(held.raw) == keys
        assert [held.raw[key].key for key in keys] == keys
        assert held.fences == {key: held.raw[key].fence for key in keys}
    async with one(a, "a").block() as held:
        assert list(held.raw) == ["lock:a"]


@on([SEVERAL])
@pytest.mark.parametrize("busy", "abc")
async def test_whichever_is_busy_none_is_taken_and_the_holder_is_named(a: World, busy: str) -> None:
    async with one(a, busy, label="view pay").block():
        for seconds in (0, 0.02):
            with pytest.raises(LockBusy) as error:
                await several(a, "abc").take(seconds)
            assert error.value.key == f"lock:{busy}"
            assert error.value.holder is not None
            assert error.value.holder.label == "view pay"
        assert taken(a) == busy
        assert all(a.info(f"lock:{letter}").waiting == 0 for letter in "abc")


@on([SEVERAL])
@pytest.mark.parametrize("name", ["lock:b", "{lock:b}:meta"])
async def test_a_name_that_is_no_lock_is_unavailable_and_none_is_taken(a: World, name: str) -> None:
    a.direct.lpush(name, "x")
    a.direct.expire(name, 60)
    for seconds in (0, 5):
        with pytest.raises(LockUnavailable) as error:
            await several(a, "abc").take(seconds)
        assert (error.value.cause, error.value.key) == ("wrongtype", "lock:b")
        assert taken(a) == ("b" if name == "lock:b" else "")


# Waiting


@on([SEVERAL])
async def test_who_waits_holds_what_comes_before_and_goes_on_to_the_next(a: World) -> None:
    first, second = await one(a, "b").take(0), await one(a, "c").take(0)
    job = a.spawn(several(a, "dcba").take(20))
    await waits_at(a, "b")
    assert taken(a) == "abc"
    await first.release()
    await waits_at(a, "c")
    assert taken(a) == "abc"
    await second.release()
    held = await job.result()
    await held.check()
    assert taken(a) == "abcd"
    await held.release()
    assert taken(a) == ""


@on([SEVERAL])
async def test_callers_in_opposite_order_do_not_wait_for_each_other(a: World) -> None:
    first, second = await one(a, "a").take(0), await one(a, "b").take(0)

    async def work(letters: str) -> None:
        async with several(a, letters, blocking_timeout=20).block():
            pass

    jobs = [a.spawn(work(letters)) for letters in ("ab", "ba")]
    # Taken as given, one would wait at each.
    await waits_at(a, "a", 2)
    await first.release()
    await waits_at(a, "b")
    await second.release()
    for job in jobs:
        await job.result()


@on([SEVERAL])
async def test_callers_for_some_of_the_same_keys_come_in_order(a: World) -> None:
    order: list[str] = []
    held = await one(a, "b").take(0)

    async def work(letters: str) -> None:
        async with several(a, letters, blocking_timeout=20).block():
            order.append(letters)

    jobs: list[Job] = []
    for count, letters in enumerate(("bc", "bd", "ab"), 1):
        jobs.append(a.spawn(work(letters)))
        await waits_at(a, "b", count)
    await held.release()
    for job in jobs:
        await job.result()
    assert order == ["bc", "bd", "ab"]


@on([SEVERAL])
async def test_the_limit_bounds_the_whole_wait(a: World) -> None:
    first = await one(a, "a").take(0)
    async with one(a, "b", timeout=60).block():
        with Stopwatch() as watch:
            job = a.spawn(several(a, "ab").acquire(blocking_timeout=0.6))
            await waits_at(a, "a")
            await first.release()
            assert await job.result() is False
        assert watch.passed >= 0.6
        assert watch.seconds < 0.6 + 3
        assert taken(a) == "b"


@on([SEVERAL], real=True)
async def test_what_is_held_early_outlives_its_lease_and_is_whole_in_the_end(a: World) -> None:
    lease = 4.5
    busy = await one(a, "b", timeout=60).take(0)
    job = a.spawn(several(a, "ab", timeout=lease).take(20))
    await a.eventually(lambda: taken(a) == "ab")
    token = a.direct.get("lock:a")
    await a.eventually(lambda: a.direct.pttl("lock:a") < 800 * lease)
    # It is asked for again before its lease is over, all the time.
    await a.eventually(lambda: a.direct.pttl("lock:a") > 850 * lease)
    assert a.direct.get("lock:a") == token
    await busy.release()
    held = await job.result()
    assert held.remaining() > lease / 2
    assert a.direct.pttl("lock:a") > 500 * lease
    await held.release()


@on([SEVERAL])
async def test_who_loses_an_earlier_one_as_it_waits_has_all_in_the_end(a: World) -> None:
    busy = await one(a, "b", timeout=60).take(0)
    job = a.spawn(several(a, "ab", timeout=STEADY).take(20))
    await a.eventually(lambda: taken(a) == "ab")
    a.direct.set("lock:a", "somebody", px=200)
    await busy.release()
    held = await job.result()
    await held.check()
    await held.release()
    assert taken(a) == ""


@on([SEVERAL])
async def test_who_loses_an_earlier_one_as_it_waits_and_gives_up_leaves_no_place(a: World) -> None:
    busy = await one(a, "b", timeout=60).take(0)
    job = a.spawn(several(a, "ab", timeout=STEADY).acquire(blocking_timeout=2))
    await a.eventually(lambda: taken(a) == "ab")
    a.direct.set("lock:a", "somebody", px=20_000)
    assert await job.result() is False
    assert a.info("lock:b").waiting == 0
    await busy.release()
    assert taken(a) == "a"


@on([SEVERAL])
async def test_an_operator_who_takes_an_earlier_one_away_ends_no_wait(a: World) -> None:
    busy = await one(a, "b", timeout=60).take(0)
    job = a.spawn(several(a, "ab", timeout=STEADY).take(20))
    await a.eventually(lambda: taken(a) == "ab")
    seen = a.info("lock:a").fingerprint
    a.ask(lambda inspector: inspector.force_release("lock:a", seen, by="joe"))
    await busy.release()
    held = await job.result()
    await held.check()
    await held.release()
    assert taken(a) == ""


@on([SEVERAL], drivers=["blocking"], real=True)
async def test_a_copy_that_comes_after_an_interrupt_between_two_of_them_takes_none(
    a: World,
) -> None:
    def interrupt(key: str, **_: Any) -> None:
        if key == "lock:a":
            raise SystemExit

    with Proxy(a.server.port) as proxy:
        client = proxy.client(socket_timeout=0.3, retry=Retry(NoBackoff(), 1))
        lock = MultiLock(client, ["lock:a", "lock:b"], 10)
        lock.take(0).release()
        # The first copy is kept back, and the second one answered.
        proxy.hold(b"lock:a", once=True)
        signals.lock_acquired.connect(interrupt)
        try:
            with pytest.raises(SystemExit):
                lock.take(0)
        finally:
            signals.lock_acquired.disconnect(interrupt)
        assert proxy.holds.is_set()

        proxy.let_go()

        assert taken(a) == ""


@on([SEVERAL])
async def test_times_at_the_names_are_taken_one_after_the_other(a: World) -> None:
    busy = await one(a, "b", protocol="timestamp-ms").take(0)
    job = a.spawn(several(a, "ba", protocol="timestamp-ms").take(20))
    await a.eventually(lambda: a.direct.exists("lock:a"))
    await busy.release()
    held = await job.result()
    await held.check()
    await held.release()


# Holding


@on([SEVERAL])
async def test_every_lease_is_looked_after(a: World) -> None:
    async with several(a, "ab").block() as held:
        await Face(held.raw["lock:a"], a.driver).extend(10)
        # What is left is what is left of the one that ends first.
        assert held.remaining() <= 10
        await held.extend(50, replace_ttl=True)
        assert all(a.direct.pttl(f"lock:{letter}") > 40_000 for letter in "ab")
        a.direct.pexpire("lock:b", 5_000)
        await held.reacquire()
        assert a.direct.pttl("lock:b") > 6_000


@on([SEVERAL])
async def test_those_that_are_ours_are_extended_and_let_go_though_one_is_lost(a: World) -> None:
    lock = several(a, "abc")
    held = await lock.take(0)
    a.direct.delete("lock:a")
    with pytest.raises(LockLost) as lost:
        await held.extend(20)
    assert lost.value.key == "lock:a"
    assert held.raw["lock:b"].remaining() > 15
    assert held.loss is not None
    assert held.remaining() == 0
    with pytest.raises(LockLost):
        await held.release()
    assert taken(a) == ""


@on([SEVERAL])
async def test_of_several_losses_one_is_raised_and_each_is_logged_or_raised(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    held = await several(a, "ab").take(0)
    a.direct.delete("lock:a", "lock:b")
    with caplog.at_level(logging.WARNING), pytest.raises(LockLost) as lost:
        await held.release()
    assert lost.value.key == "lock:a"
    assert "lock:b" in caplog.text


@on([SEVERAL])
async def test_a_listener_is_given_the_handle_of_all_that_was_lost(a: World) -> None:
    told: list[Any] = []
    lock = several(a, "ab", on_lost=told.append)
    await (await lock.take(0)).release()
    held = await lock.take(0)
    a.direct.delete("lock:a", "lock:b")
    for _ in range(2):
        with pytest.raises(LockLost):
            await held.check()
    assert told == [held.raw]


@on([SEVERAL])
async def test_one_can_be_let_go_before_the_others(a: World) -> None:
    async with several(a, "ab", timeout=30, renew=True).block() as held:
        first = Face(held.raw["lock:a"], a.driver)
        await first.release()
        assert taken(a) == "b"
        # Nobody has lost anything, and what is left is looked after.
        await held.check()
        assert await held.owned()
        a.direct.pexpire("lock:b", 5_000)
        await held.reacquire()
        assert a.direct.pttl("lock:b") > 20_000
        assert held.remaining() > 20
    assert taken(a) == ""
    with pytest.raises(LockError, match="released already"):
        await held.release()
    with pytest.raises(LockError, match="released already"):
        await held.check()
