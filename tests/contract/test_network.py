"""Answers that are cut off, and copies of requests that come late, change nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from tests.faults.proxy import Proxy
from tests.servers import ONCE
from tests.support.kinds import EXCLUSIVE, ONE_SERVER, PERMITS, QUEUED, READERS, SEVERAL, SINGLE
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World

# Each request about a lock has its name in it.
NAMED = b"lock:a"
STEPS = ["take", "check", "extend", "reacquire", "release"]


@contextmanager
def network(a: World, **options: object) -> Iterator[Proxy]:
    """Have the locks ask over a proxy, which makes the faults of a network."""
    with Proxy(a.server.port) as proxy:
        client = proxy.client(**{"retry": ONCE, **options})
        # What a connection begins with is not what is cut.
        client.ping()
        a.asks_at(client)
        yield proxy


async def begun(a: World) -> None:
    """Have the connections made and the scripts known, so that one request is one."""
    async with a.lock(timeout=10).block() as held:
        await held.check()
        await held.extend(5)


@on(ONE_SERVER, real=True)
async def test_an_answer_that_is_cut_off_is_asked_for_again(a: World) -> None:
    with network(a) as proxy:
        await begun(a)
        for step in STEPS:
            held = None if step == "take" else await a.lock().take(0)
            dropped = proxy.drop_next_reply(NAMED)

            if held is None:
                held = await a.lock().take(0)
            else:
                await getattr(held, step)(*([5] if step == "extend" else []))

            assert dropped.is_set(), step
            if step == "release":
                assert a.is_free()
                continue
            assert not held.lost, step
            await held.check()
            assert await a.rival().acquire(blocking=False) is False
            await held.release()
            assert a.is_free(), step


@on(ONE_SERVER, real=True)
async def test_a_lock_whose_every_answer_is_cut_off_is_not_had_and_leaves_nothing(
    a: World,
) -> None:
    with network(a) as proxy:
        await begun(a)
        # Who asks is in each copy of the request, and not in what undoes it.
        proxy.drop_replies(b"view pay")

        with pytest.raises(LockUnavailable) as unavailable:
            await a.lock(label="view pay").take(0)

    assert unavailable.value.cause == "unreachable"
    await a.eventually(a.is_free)


@on(ONE_SERVER, real=True)
async def test_after_an_answer_that_is_none_of_redis_another_connection_is_asked(a: World) -> None:
    with network(a) as proxy:
        await begun(a)
        for step in STEPS:
            held = None if step == "take" else await a.lock().take(0)
            proxy.garble_next_reply(NAMED)

            if held is None:
                held = await a.lock().take(0)
            else:
                await getattr(held, step)(*([5] if step == "extend" else []))

            if step != "release":
                await held.release()
            assert a.is_free(), step


@on(ONE_SERVER, real=True)
async def test_who_asks_about_a_lock_that_is_being_released_does_not_find_it_lost(a: World) -> None:
    told: list[object] = []
    with network(a) as proxy:
        await begun(a)
        for ask in ("check", "owned", "reacquire"):
            held = await a.lock(on_lost=told.append).take(0)
            # Redis has let it go, and the answer is on its way.
            proxy.halve_replies(NAMED, once=True)
            released = a.spawn(held.release())
            await a.eventually(proxy.holds.is_set)

            asked = a.spawn(getattr(held, ask)())
            if not a.driver.is_asyncio:
                # The tasks of a loop have their answers in the order in which they asked.
                await a.eventually(asked.done)
            proxy.let_go()

            await released.result()
            if ask == "owned":
                assert await asked.result() is False
            else:
                with pytest.raises(LockError) as error:
                    await asked.result()
                assert not isinstance(error.value, LockLost)
            assert (held.released, held.lost, told) == (True, False, [])


@on(ONE_SERVER, real=True)
async def test_a_request_that_is_kept_back_and_comes_late_takes_no_lock(a: World) -> None:
    with network(a, socket_timeout=0.6) as proxy:
        await begun(a)
        proxy.hold(NAMED)
        with pytest.raises(LockUnavailable) as unavailable:
            await a.lock().take(0)
        assert unavailable.value.cause == "timeout"

        proxy.let_go()

        await a.eventually(a.is_free)
        assert await a.rival().acquire(blocking=False) is True


@on(ONE_SERVER, real=True)
async def test_a_server_that_stands_still_and_goes_on_holds_no_lock_of_who_gave_up(
    a: World,
) -> None:
    with network(a, socket_timeout=0.6) as proxy:
        await begun(a)
        # New connections too.
        proxy.hold()
        with pytest.raises(LockUnavailable) as unavailable:
            await a.lock(timeout=60).take(0)
        assert unavailable.value.cause == "timeout"

        proxy.let_go()

        await a.eventually(a.is_free)
        assert await a.rival().acquire(blocking=False) is True


@on(SINGLE, real=True)
async def test_a_grant_that_comes_when_its_lease_is_over_is_given_back(a: World) -> None:
    with network(a) as proxy:
        await begun(a)
        proxy.hold(NAMED, once=True)
        job = a.spawn(a.lock(timeout=0.5).take(0))
        await a.eventually(proxy.holds.is_set)
        await a.sleep(0.55)

        proxy.let_go()

        with pytest.raises(LockBusy):
            await job.result()
        # By itself it would end half a second later.
        assert a.is_free()


@on(ONE_SERVER, real=True)
async def test_copies_that_come_late_change_nothing_for_the_next_holder(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        for step in STEPS:
            held = None if step == "take" else await a.lock().take(0)
            # The first copy is kept back, and the second one answered.
            proxy.hold(NAMED, once=True)
            if held is None:
                held = await a.lock().take(0)
            else:
                await getattr(held, step)(*([5] if step == "extend" else []))
            assert proxy.holds.is_set(), step
            if step != "release":
                await held.check()
                await held.release()
            other = await a.rival().take(0)

            proxy.let_go()

            await other.check()
            assert await a.rival().acquire(blocking=False) is False, step
            await other.release()
            assert a.is_free(), step


@on(ONE_SERVER, real=True)
async def test_a_copy_that_comes_after_the_answer_busy_takes_no_lock(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        other = await a.rival().take(0)
        proxy.hold(NAMED, once=True)
        with pytest.raises(LockBusy):
            await a.lock().take(0)
        assert proxy.holds.is_set()
        await other.release()

        proxy.let_go()

        assert a.is_free()


@on(ONE_SERVER, real=True)
async def test_a_copy_that_comes_after_the_release_takes_no_lock(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        proxy.hold(NAMED, once=True)
        held = await a.lock().take(0)
        assert proxy.holds.is_set()
        await held.release()

        proxy.let_go()

        assert a.is_free()


@on(ONE_SERVER, real=True)
async def test_a_copy_of_what_took_the_lock_that_comes_late_cuts_nothing(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        proxy.hold(NAMED, once=True)
        held = await a.lock(timeout=10).take(0)
        assert proxy.holds.is_set()
        await held.extend(50)

        proxy.let_go()

        left = held.remaining()
        assert left > 50
        assert a.direct.pttl(a.kind.contested) / 1000 > left - 1
        await held.release()


@on(ONE_SERVER, real=True)
async def test_an_extension_that_comes_late_cuts_nothing(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        held = await a.lock(timeout=10).take(0)
        proxy.hold(NAMED, once=True)
        await held.extend(5)
        await held.extend(50)

        proxy.let_go()

        left = held.remaining()
        assert left > 60
        assert a.direct.pttl(a.kind.contested) / 1000 > left - 1
        await held.release()


@on(ONE_SERVER, real=True)
async def test_a_release_whose_copy_finds_the_next_holder_was_one(a: World) -> None:
    with network(a, socket_timeout=0.6) as proxy:
        await begun(a)
        held = await a.lock().take(0)
        proxy.drop_replies(NAMED)
        with pytest.raises(LockUnavailable):
            await held.release()
        proxy.drop_replies(b"nothing has this in it")
        other = await a.rival().take(0)

        await held.release()

        await other.check()
        await other.release()


@on(ONE_SERVER, real=True)
async def test_a_release_after_the_loss_says_so_though_an_earlier_copy_is_under_way(
    a: World,
) -> None:
    with network(a, socket_timeout=0.6) as proxy:
        await begun(a)
        held = await a.lock().take(0)
        proxy.hold(NAMED)
        with pytest.raises(LockUnavailable):
            await held.release()
        a.force()

        proxy.let_go()

        with pytest.raises(LockLost):
            await held.release()


@on(ONE_SERVER, real=True)
async def test_a_release_that_is_called_again_when_the_lease_is_over_says_so(a: World) -> None:
    with network(a, socket_timeout=0.4) as proxy:
        await begun(a)
        held = await a.lock(timeout=1.5).take(0)
        proxy.hold(NAMED)
        with pytest.raises(LockUnavailable):
            await held.release()
        proxy.hold(b"nothing has this in it")
        other = await a.rival().take(20)

        with pytest.raises(LockLost):
            await held.release()

        await other.check()


@on(SINGLE, real=True)
async def test_a_copy_that_comes_after_the_loss_takes_no_lock(a: World) -> None:
    with network(a, socket_timeout=0.6, retry=Retry(NoBackoff(), 1)) as proxy:
        await begun(a)
        proxy.hold(NAMED, once=True)
        held = await a.lock().take(0)
        assert proxy.holds.is_set()
        a.direct.delete(a.kind.contested)
        with pytest.raises(LockLost):
            await held.release()

        proxy.let_go()

        assert a.is_free()


@on([EXCLUSIVE, READERS, PERMITS], real=True)
async def test_what_an_operator_asks_for_may_be_asked_twice(a: World) -> None:
    held = await a.lock(renew=True).take(0)
    info = a.info()
    seen = (info.shares[0] if info.shares else info).fingerprint
    with Proxy(a.server.port) as proxy:
        client = proxy.client(retry=ONCE)
        client.ping()

        def ask(question: str) -> Outcome:
            # The reason is in this request alone.
            dropped = proxy.drop_next_reply(b"by hand")
            inspector = Inspector(client, "lock:", use_index=False)
            outcome: Outcome = getattr(inspector, question)(
                "lock:a", seen, by="joe", reason="by hand"
            )
            assert dropped.is_set()
            return outcome

        assert a.ask(lambda _: ask("ask_to_stop")) is Outcome.ASKED
        assert a.ask(lambda _: ask("force_release")) is Outcome.RELEASED
    with pytest.raises(LockLost, match="by joe: by hand"):
        await held.check()


@on(ONE_SERVER, real=True)
async def test_scripts_that_the_server_forgot_are_sent_again(a: World) -> None:
    for step in STEPS:
        a.direct.script_flush()
        held = await a.lock().take(0)
        if step != "take":
            a.direct.script_flush()
            await getattr(held, step)(*([5] if step == "extend" else []))
        if step != "release":
            await held.release()
        assert a.is_free()


@on(ONE_SERVER, real=True)
async def test_every_connection_may_break_between_two_requests(a: World) -> None:
    with network(a) as proxy:
        held = await a.lock().take(0)
        for step in STEPS[1:]:
            proxy.cut_all()
            await getattr(held, step)(*([5] if step == "extend" else []))
    assert a.is_free()


@on(QUEUED, real=True)
async def test_a_waiter_whose_answer_is_cut_off_keeps_its_place(a: World) -> None:
    order: list[str] = []

    async def work(name: str) -> None:
        async with a.rival().block():
            order.append(name)

    with network(a) as proxy:
        await begun(a)
        async with a.rival().block():
            # The queue has it, though it does not know yet.
            dropped = proxy.drop_next_reply(a.kind.contested.encode())
            jobs = [a.spawn(work("first"))]
            await a.eventually(dropped.is_set)
            # It has asked again: who is not there just now is passed over.
            await a.eventually(lambda: a.kind.polls or a.sleepers())
            await a.waiting(1)
            jobs.append(a.spawn(work("second")))
            await a.waiting(2)
        for job in jobs:
            await job.result()
    assert order == ["first", "second"]


@on([EXCLUSIVE, SEVERAL], real=True)
async def test_a_server_that_is_not_there_is_unavailable_and_no_bare_error(a: World) -> None:
    with network(a) as proxy:
        held = await a.lock().take(0)
        proxy.refuse()
        for ask in (
            lambda: a.lock().take(0),
            lambda: a.lock().acquire(blocking_timeout=0.05),
            held.check,
            lambda: held.extend(5),
            held.reacquire,
        ):
            with pytest.raises(LockUnavailable) as unavailable:
                await ask()
            assert isinstance(unavailable.value, LockError)
            assert unavailable.value.cause == "unreachable"
        assert not held.lost
        proxy.accept()
        await held.check()
        await held.release()


@on([EXCLUSIVE, SEVERAL], real=True)
async def test_a_pool_that_is_used_up_keeps_no_lock_from_its_release(a: World) -> None:
    client = a.server.client(max_connections=1)
    a.asks_at(client)
    held = await a.lock().take(0)
    # The only connection of the pool.
    with client.client():
        await held.release()
    assert a.is_free()


@on([EXCLUSIVE], real=True)
async def test_what_the_server_refuses_is_told_by_a_word(a: World) -> None:
    a.direct.config_set("maxmemory", "1mb")
    a.direct.config_set("maxmemory-policy", "noeviction")
    try:
        with pytest.raises(LockUnavailable) as unavailable:
            await a.lock().take(0)
        assert unavailable.value.cause == "memory"
    finally:
        a.direct.config_set("maxmemory", "0")


@on(ONE_SERVER, real=True)
async def test_a_held_lock_is_renewed_and_released_when_memory_is_used_up(a: World) -> None:
    held = await a.lock(timeout=10).take(0)
    a.direct.config_set("maxmemory", "1mb")
    try:
        await held.extend(20)
        await held.reacquire()
        await held.check()
        assert held.remaining() > 25
        await held.release()
    finally:
        a.direct.config_set("maxmemory", "0")
    assert a.is_free()
