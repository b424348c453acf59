"""A lock that is lost is known to be, once, before somebody else works under it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis.exceptions

from django_setnx_lock import LockError, LockLost, LockUnavailable, signals
from tests.servers import ONCE
from tests.support.kinds import BY_VALUE, EXCLUSIVE, HOSTED, ONE_SERVER, PERMITS, READERS, REDLOCK
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World


@pytest.fixture
def losses() -> Iterator[list[dict[str, Any]]]:
    """Give what listeners are told of losses."""
    told: list[dict[str, Any]] = []

    def listen(**about: Any) -> None:
        told.append(about)

    signals.lock_lost.connect(listen)
    yield told
    signals.lock_lost.disconnect(listen)


@on()
@pytest.mark.parametrize("question", ["check", "release", "extend", "reacquire"])
async def test_whatever_the_holder_asks_says_that_the_lock_was_lost(
    a: World, question: str
) -> None:
    held = await a.lock().take(0)
    a.lose()

    with pytest.raises(LockLost) as lost:
        await getattr(held, question)(*([5] if question == "extend" else []))

    assert isinstance(lost.value, redis.exceptions.LockNotOwnedError)
    assert lost.value.key == a.kind.contested
    assert held.lost
    assert held.loss.key == a.kind.contested
    assert await held.owned() is False
    assert held.remaining() == 0
    # Of several keys the others are released by then.
    with pytest.raises(LockError if question == "release" else LockLost):
        await held.check()


@on()
async def test_a_loss_is_told_once(a: World, losses: list[dict[str, Any]]) -> None:
    told: list[Any] = []
    held = await a.lock(on_lost=told.append).take(0)
    fences = () if a.kind is REDLOCK else a.fences(held)
    a.lose()

    for _ in range(2):
        with pytest.raises(LockLost):
            await held.check()

    assert told == [held.raw]
    (loss,) = losses
    assert loss["key"] == a.kind.contested
    assert isinstance(loss["error"], LockLost)
    assert loss["fence"] in fences or a.kind is REDLOCK


@on()
async def test_a_loss_is_found_by_the_renewal(a: World) -> None:
    told = threading.Event()
    lock = a.lock(timeout=30, renew=True, on_lost=lambda _: told.set())
    held = await lock.take(0)
    a.lose()
    a.pass_time(DUE)

    await a.eventually(told.is_set)

    assert held.lost
    with pytest.raises(LockLost):
        await held.release()


@on()
async def test_a_lease_that_ran_out_is_a_loss_that_is_told(a: World) -> None:
    told: list[Any] = []
    held = await a.lock(timeout=10, on_lost=told.append).take(0)
    a.pass_time(10)
    assert held.lost

    with pytest.raises(LockLost):
        await held.check()

    assert told == [held.raw]


@on()
async def test_a_listener_that_fails_keeps_nobody_from_the_loss(a: World) -> None:
    told: list[Any] = []

    def exits(**_: Any) -> None:
        raise SystemExit

    def fails(held: Any) -> None:
        told.append(held)
        raise SystemExit

    signals.lock_lost.connect(exits)
    try:
        async with a.lock("lock:z", timeout=30, renew=True).block() as other:
            held = await a.lock(timeout=30, renew=True, on_lost=fails).take(0)
            a.lose()
            a.pass_time(DUE)
            await a.eventually(lambda: told)
            assert held.lost
            # The others are renewed as before.
            await a.renewed(other, after=DUE)
            await other.check()
    finally:
        signals.lock_lost.disconnect(exits)


@on(ONE_SERVER, real=True)
async def test_a_lock_that_cannot_be_renewed_is_lost_before_anybody_else_has_it(
    a: World,
) -> None:
    told = threading.Event()
    lock = a.lock(timeout=0.4, renew=True, on_lost=lambda _: told.set())
    held = await lock.take(20)
    a.server.pause()
    try:
        await a.eventually(told.is_set)
        assert held.lost
        assert held.remaining() == 0
    finally:
        a.server.resume()
    other = await a.rival().take(20)
    with pytest.raises(LockLost):
        await held.check()
    await other.check()


@on(ONE_SERVER, real=True)
async def test_a_server_that_hangs_for_less_than_a_lease_costs_no_lock(a: World) -> None:
    a.asks_at(a.server.client(socket_timeout=0.4, retry=ONCE))
    held = await a.lock(timeout=30, renew=True).take(0)
    a.server.pause()
    try:
        with pytest.raises(LockUnavailable):
            await held.check()
    finally:
        a.server.resume()
    await held.check()
    assert not held.lost
    await held.release()


@on(drivers=["asyncio"])
async def test_the_block_of_a_task_ends_when_its_lock_is_lost(a: World) -> None:
    steps: list[str] = []

    async def work() -> None:
        async with a.lock(timeout=30, renew=True).block():
            try:
                a.lose()
                a.pass_time(DUE)
                await a.sleep(60)
                steps.append("went on")
            finally:
                # The clean-up runs to its end.
                await a.sleep(0.01)
                steps.append("cleaned up")

    with pytest.raises(LockLost):
        await work()

    assert steps == ["cleaned up"]
    # The block was cancelled, and not the task.
    await a.sleep(0)


@on(drivers=["blocking"])
async def test_the_body_of_a_thread_goes_on_and_can_see_that_the_lock_was_lost(a: World) -> None:
    steps: list[Any] = []

    async def work() -> None:
        async with a.lock(timeout=30, renew=True).block() as held:
            a.lose()
            a.pass_time(DUE)
            await a.eventually(lambda: held.lost)
            steps.append(held.loss)

    with pytest.raises(LockLost):
        await work()

    assert isinstance(steps[0], LockLost)


@on(BY_VALUE)
async def test_a_loss_is_final_though_the_value_is_back(a: World) -> None:
    held = await a.lock().take(0)
    clients = [server.client() for server in a.servers]
    before = [client.get(a.kind.contested) for client in clients]
    a.steal()
    with pytest.raises(LockLost):
        await held.check()

    for client, value in zip(clients, before, strict=True):
        assert value
        client.set(a.kind.contested, value, px=30_000)

    assert held.lost
    with pytest.raises(LockLost):
        await held.check()


@on()
async def test_whoever_asks_at_once_is_told_of_one_loss_by_errors_of_their_own(a: World) -> None:
    told: list[Any] = []
    held = await a.lock(on_lost=told.append).take(0)
    a.lose()

    async def check() -> LockLost:
        with pytest.raises(LockLost) as lost:
            await held.check()
        return lost.value

    errors = [await job.result() for job in [a.spawn(check()) for _ in range(5)]]

    assert told == [held.raw]
    # One that is raised again and again would keep the frames of all who have raised it.
    assert len({id(error) for error in errors}) == 5
    assert len({(str(error), error.key) for error in errors}) == 1


@on()
async def test_a_lease_that_is_over_here_is_not_extended(a: World) -> None:
    held = await a.lock(timeout=10).take(0)
    a.pass_time(10)

    for extend in (lambda: held.extend(60), held.reacquire):
        with pytest.raises(LockLost):
            await extend()

    assert a.direct.pttl(a.kind.contested) <= 11_000


@on([EXCLUSIVE, READERS, PERMITS, HOSTED])
async def test_what_is_no_lock_any_more_is_lost_and_left_alone(a: World) -> None:
    held = await a.lock().take(0)
    a.direct.delete("lock:a")
    a.direct.rpush("lock:a", "data")

    with pytest.raises(LockLost):
        await held.release()

    assert a.direct.lrange("lock:a", 0, -1) == ["data"]
    a.direct.delete("lock:a")
