"""A release takes the lock from nobody else, is done once, and hides nothing."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from redis.exceptions import LockError as LockErrorOfRedis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from tests.faults.proxy import Proxy
from tests.servers import ONCE
from tests.support.kinds import (
    ALL,
    BY_VALUE,
    EXCLUSIVE,
    HOSTED,
    ONE_SERVER,
    PERMITS,
    QUEUED,
    READERS,
    REDLOCK,
    SEVERAL,
    TIMESTAMP,
)
from tests.support.rows import on
from tests.support.world import World


@on(BY_VALUE)
async def test_a_release_leaves_what_somebody_else_has_taken(a: World) -> None:
    held = await a.lock().take(0)
    a.steal()

    with pytest.raises(LockLost) as lost:
        await held.release()

    assert lost.value.key == a.kind.contested
    assert a.direct.get(a.kind.contested) == a.kind.thief


@on(ONE_SERVER)
async def test_a_release_leaves_the_next_holder_of_ours(a: World) -> None:
    held = await a.lock(timeout=a.kind.brief).take(20)
    other = await a.rival().take(20)

    with pytest.raises(LockLost):
        await held.release()

    await other.check()


@on()
async def test_a_lease_that_ended_here_is_a_loss_even_if_nobody_took_it(a: World) -> None:
    held = await a.lock(timeout=a.kind.brief).take(20)
    await a.eventually(lambda: held.lost)
    await a.eventually(a.is_free)

    with pytest.raises(LockLost):
        await held.release()


@on()
async def test_a_block_that_outlasts_its_lease_lets_go_of_what_redis_still_has(a: World) -> None:
    async with a.lock(timeout=10).block() as held:
        a.pass_time(10)
        assert held.lost
        assert not a.is_free()
    assert a.is_free()


@on(QUEUED)
async def test_who_finds_its_lock_lost_and_free_leaves_it_to_who_waits(a: World) -> None:
    held = await a.rival(timeout=60).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    # The first sleep may be a short one.
    await a.sleep(0.5)
    a.direct.delete(a.kind.contested)

    with pytest.raises(LockLost):
        await held.release()

    # A waiter that nobody wakes sleeps for longer.
    await a.eventually(job.done, seconds=4.5)
    await (await job.result()).release()


@on()
async def test_a_second_release_says_that_it_is_one(a: World) -> None:
    held = await a.lock().take(0)
    await held.release()

    for operation in (held.release, held.check, lambda: held.extend(5)):
        with pytest.raises(LockError, match="released") as error:
            await operation()
        assert not isinstance(error.value, LockLost)


@on()
async def test_what_was_not_taken_is_not_released(a: World) -> None:
    lock = a.lock()
    for operation in (lock.release, lambda: lock.extend(5), lock.reacquire, lock.check):
        with pytest.raises(LockErrorOfRedis):
            await operation()


@on()
async def test_a_block_may_release_before_its_end(a: World) -> None:
    async with a.lock().block() as held:
        await held.release()
        assert a.is_free()
        assert await a.rival().acquire(blocking=False) is True


@on()
async def test_the_end_of_a_block_says_that_the_lock_was_lost(a: World) -> None:
    with pytest.raises(LockLost):
        async with a.lock().block():
            a.lose()


@on()
async def test_the_end_of_a_block_hides_no_error_of_its_body(a: World) -> None:
    async def work() -> None:
        async with a.lock().block():
            a.lose()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        await work()

    # Before Python 3.11 an error has no notes.
    notes = getattr(error.value, "__notes__", [a.kind.contested])
    assert a.kind.contested in "".join(notes)


@on(drivers=["blocking"])
async def test_a_failed_release_can_be_logged_in_the_place_of_an_error(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "django_setnx_lock"):
        async with a.lock(raise_on_release_error=False).block():
            a.lose()
    assert any(a.kind.contested in record.message for record in caplog.records)


@on(ONE_SERVER, real=True)
async def test_a_release_that_could_not_be_sent_can_be_called_again(a: World) -> None:
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        held = await a.lock().take(0)
        proxy.refuse()
        with pytest.raises(LockUnavailable) as unavailable:
            await held.release()
        assert unavailable.value.cause == "unreachable"
        assert not a.is_free()
        proxy.accept()

        await held.release()

        assert a.is_free()
        with pytest.raises(LockError, match="released"):
            await held.release()


@on()
async def test_a_handle_can_be_released_by_another_thread(a: World) -> None:
    held = await a.lock().take(0)
    if a.driver.is_asyncio:
        await a.spawn(held.release()).result()
    else:
        thread = threading.Thread(target=held.raw.release)
        thread.start()
        thread.join(20)

    assert a.is_free()


@on()
async def test_another_thread_or_task_does_not_release_it_by_the_object(a: World) -> None:
    lock = a.lock()
    assert await lock.acquire()

    async def release() -> None:
        with pytest.raises(LockError, match="not held here"):
            await lock.release()

    await a.spawn(release()).result()
    assert await lock.owned() is True
    await lock.release()


@on([kind for kind in ALL if kind is not REDLOCK])
async def test_an_object_can_be_used_again_and_again(a: World) -> None:
    lock = a.lock()
    for _ in range(3):
        async with lock.block() as held:
            await held.check()
        assert await lock.acquire()
        await lock.release()
    assert a.is_free()


# Held for a time, however soon it is let go


@on([EXCLUSIVE, SEVERAL])
async def test_with_min_hold_nobody_has_it_before_its_time(a: World) -> None:
    async with a.lock(min_hold=5).block() as held:
        pass
    with pytest.raises(LockError, match="released"):
        await held.release()

    assert await a.rival().acquire(blocking=False) is False
    assert 0 < a.direct.pttl(a.kind.contested) <= 5_000


@on([EXCLUSIVE])
async def test_after_min_hold_it_is_free_at_once(a: World) -> None:
    held = await a.lock(min_hold=0.03).take(0)
    await a.sleep(0.05)
    await held.release()
    assert a.is_free()


@on([EXCLUSIVE])
async def test_a_waiter_has_it_when_min_hold_is_over(a: World) -> None:
    held = await a.lock(timeout=60, min_hold=1).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    # By then it sleeps until the end of the lease, as far as it knows.
    await a.sleep(0.5)
    await held.release()
    assert not a.is_free()
    await a.eventually(job.done, seconds=10)
    await (await job.result()).release()


@on([EXCLUSIVE])
async def test_with_min_hold_an_attempt_in_vain_keeps_nobody_out(a: World) -> None:
    async with a.rival().block():
        with pytest.raises(LockBusy):
            await a.lock(min_hold=5).take(0.01)
    assert a.is_free()


@on([READERS, PERMITS, TIMESTAMP, HOSTED, REDLOCK])
async def test_what_has_no_min_hold_says_so(a: World) -> None:
    with pytest.raises(LockUnsupported):
        a.lock(min_hold=1)


@on([READERS, PERMITS, TIMESTAMP, HOSTED, REDLOCK])
async def test_what_takes_no_chosen_token_says_so(a: World) -> None:
    with pytest.raises(LockUnsupported):
        await a.lock().acquire(token="mine")


# Handed to another process


@on([EXCLUSIVE])
async def test_a_lock_is_given_away_with_its_fence(a: World) -> None:
    held = await a.lock(renew=True).take(0)
    ticket = await held.give_away()
    with pytest.raises(LockError):
        await held.release()
    assert await a.rival().acquire(blocking=False) is False

    taken: list[Any] = []
    other = a.lock().raw
    a.ask(lambda _: taken.append(other.adopt(ticket)))

    assert taken[0].fence == held.fence
    with pytest.raises(LockLost):
        a.ask(lambda _: other.adopt(ticket))
    a.ask(lambda _: taken[0].release())
    assert a.is_free()


@on([READERS, PERMITS, REDLOCK])
async def test_what_cannot_be_given_away_says_so(a: World) -> None:
    held = await a.lock().take(0)
    with pytest.raises(LockUnsupported):
        await held.give_away()
    await held.release()
