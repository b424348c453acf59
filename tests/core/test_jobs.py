"""What one call in a thread of asyncio holds is not the next call's, whichever thread that has."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
import redis
from asgiref.sync import sync_to_async

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock
from tests.processes import figure, may_be_late

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

Job: TypeAlias = Callable[[], Any]
# Runs jobs one after the other in one thread, and gives what each returned or raised.
Run: TypeAlias = Callable[..., list[Any]]
CALLERS, HOLD = 50, 0.04


def tried(job: Job) -> Any:
    try:
        return job()
    except LockError as error:
        return error


def in_loop(call: Callable[[Job], Any]) -> Run:
    def run(*jobs: Job) -> list[Any]:
        async def one(job: Job) -> Any:
            return await call(lambda: tried(job))

        async def main() -> list[Any]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            return [await asyncio.create_task(one(job)) for job in jobs]

        return asyncio.run(main())

    return run


RUNS: dict[str, Run] = {
    "to_thread": in_loop(asyncio.to_thread),
    "anyio": in_loop(anyio.to_thread.run_sync),
    "sync_to_async": in_loop(lambda job: sync_to_async(job, thread_sensitive=False)()),
}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


@pytest.fixture
def mine(redis_client: redis.Redis) -> Callable[..., RedisLock]:
    """Give locks of one name that may be had again by who holds them, and do not wait."""

    def mine(**options: Any) -> RedisLock:
        return RedisLock(redis_client, "lock:a", reentrant=True, blocking=False, **options)

    return mine


def test_the_next_job_does_not_have_it_again(run: Run, mine: Callable[..., RedisLock]) -> None:
    threads: list[threading.Thread] = []

    def take() -> LockHandle:
        threads.append(threading.current_thread())
        return mine().take()

    first, *others = run(take, take, take)

    assert [type(one) for one in others] == [LockBusy, LockBusy]
    # The control: by its thread it would be the same owner.
    assert len(set(threads)) == 1
    first.release()


def test_one_job_has_it_again(run: Run, mine: Callable[..., RedisLock]) -> None:
    def job() -> bool:
        with mine() as outer, mine() as inner:
            return inner.fence == outer.fence

    assert run(job, job) == [True, True]


def test_a_lock_object_gives_each_job_its_own(run: Run, mine: Callable[..., RedisLock]) -> None:
    lock = mine()

    taken, held, released = run(lock.acquire, lambda: lock.held, lock.release)

    assert (taken, held, type(released)) == (True, None, LockError)
    assert lock.locked()


def test_any_job_releases_it_by_the_handle(run: Run, mine: Callable[..., RedisLock]) -> None:
    kept: list[LockHandle] = []

    run(lambda: kept.append(mine().take()), lambda: kept[0].release())

    assert kept[0].released
    assert not mine().locked()


def test_a_thread_of_an_executor_is_one_owner_for_all_its_jobs(
    mine: Callable[..., RedisLock],
) -> None:
    def take() -> LockHandle:
        return mine().take()

    with ThreadPoolExecutor(1) as pool:
        first, second = pool.submit(take).result(20), pool.submit(take).result(20)
    first.release()
    second.release()

    assert first.fence == second.fence


def test_a_job_that_calls_in_a_copy_of_its_context_has_it_again(
    mine: Callable[..., RedisLock],
) -> None:
    def job() -> bool:
        with mine() as outer:
            inner = contextvars.copy_context().run(mine().take)
            inner.release()
            return inner.fence == outer.fence

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(job).result(20)


@pytest.fixture
def locks(real_server: RealServer) -> Iterator[Callable[[], RedisLock]]:
    client = real_server.client()
    yield lambda: RedisLock(client, "lock:a", 20, blocking_timeout=30, reentrant=True, renew=True)
    client.close()


@may_be_late(0.2)
@pytest.mark.parametrize("call", [asyncio.to_thread, anyio.to_thread.run_sync])
def test_of_many_jobs_one_is_inside(
    locks: Callable[[], RedisLock], call: Callable[[Job], Any], late: float
) -> None:
    inside: list[object] = []
    most: list[int] = []
    fences: list[int] = []
    began: list[float] = []
    ended: list[float] = []

    async def caller() -> None:
        held = await call(locks().take)
        began.append(time.monotonic())
        inside.append(held)
        fences.append(held.fence)
        await asyncio.sleep(HOLD)
        most.append(len(inside))
        inside.remove(held)
        ended.append(time.monotonic())
        await held.arelease()

    async def main() -> None:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    asyncio.run(main())
    # What a busy machine adds to each is none of the lock's.
    ideal, took = sum(ended) - sum(began), max(ended) - min(began)
    figure(f"{CALLERS} jobs of {ideal:.2f} s took {took:.2f} s")

    assert max(most) == 1
    assert len(set(fences)) == CALLERS
    assert took < (1 + late) * ideal
