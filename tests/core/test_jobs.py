"""What one job of a pool's thread holds is not the next job's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

import anyio
import pytest
import redis
from asgiref.sync import sync_to_async

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.locks import owner
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


def in_executor(*jobs: Job) -> list[Any]:
    with ThreadPoolExecutor(1) as pool:
        return [pool.submit(tried, job).result(20) for job in jobs]


def mapped(*jobs: Job) -> list[Any]:
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(tried, jobs, timeout=20))


def in_thread_pool(*jobs: Job) -> list[Any]:
    with ThreadPool(1) as pool:
        return [pool.apply(tried, (job,)) for job in jobs]


def with_initializer(*jobs: Job) -> list[Any]:
    """As where a thread is known before its first job."""
    with ThreadPoolExecutor(1, initializer=owner.current) as pool:
        return [pool.submit(tried, job).result(20) for job in jobs]


RUNS: dict[str, Run] = {
    "to_thread": in_loop(asyncio.to_thread),
    "run_in_executor": in_loop(lambda job: asyncio.get_running_loop().run_in_executor(None, job)),
    "anyio": in_loop(anyio.to_thread.run_sync),
    "sync_to_async": in_loop(lambda job: sync_to_async(job, thread_sensitive=False)()),
    "executor": in_executor,
    "map": mapped,
    "ThreadPool": in_thread_pool,
    "initializer": with_initializer,
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


def test_a_job_that_ended_is_over(run: Run) -> None:
    found: list[owner.Owner] = []

    def note() -> bool:
        found.append(owner.current())
        return found[-1] is owner.current() and not found[-1].has_ended

    assert run(note, note) == [True, True]
    assert found[0] is not found[1]


def test_a_job_is_kept_alive_by_nothing(run: Run) -> None:
    class Argument:
        pass

    kept: list[ref[Argument]] = []

    def job() -> owner.Owner:
        argument = Argument()
        kept.append(ref(argument))
        return (lambda given: owner.current())(argument)

    def next_to_it() -> None:
        gc.collect()

    run(job, next_to_it)

    assert kept[0]() is None


def test_what_a_job_calls_in_a_copy_of_its_context_has_it_again(
    mine: Callable[..., RedisLock],
) -> None:
    def job() -> bool:
        with mine() as outer:
            inner = contextvars.copy_context().run(mine().take)
            inner.release()
            return inner.fence == outer.fence

    assert in_executor(job) == [True]


def test_a_context_of_a_job_that_has_ended_gives_nothing_to_the_next(
    mine: Callable[..., RedisLock],
) -> None:
    contexts: list[contextvars.Context] = []
    kept: list[LockHandle] = []

    def job() -> None:
        kept.append(mine().take())
        contexts.append(contextvars.copy_context())

    _, second = in_loop(anyio.to_thread.run_sync)(job, lambda: contexts[0].run(mine().take))

    assert isinstance(second, LockBusy)


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
