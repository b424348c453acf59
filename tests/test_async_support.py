"""What is called over sync_to_async and async_to_sync belongs to who called it."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from asgiref.sync import AsyncToSync, SyncToAsync, async_to_sync, iscoroutinefunction, sync_to_async

from django_setnx_lock import LockBusy, lock
from django_setnx_lock.async_support import install
from django_setnx_lock.core.locks import owner
from django_setnx_lock.core.locks.owner import Owner


@pytest.fixture
def without_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have asgiref as it is."""
    bridge: Any
    for bridge in (SyncToAsync, AsyncToSync):
        monkeypatch.setattr(bridge, "__call__", bridge.__call__.__wrapped__)


async def here() -> Owner:
    return owner.current()


def take() -> str:
    with lock("a", reentrant=True, blocking=False) as held:
        return held.token


@pytest.mark.parametrize("thread_sensitive", [True, False])
def test_a_thread_that_a_task_calls_belongs_to_the_task(thread_sensitive: bool) -> None:
    async def main() -> tuple[Owner, Owner]:
        called = sync_to_async(owner.current, thread_sensitive=thread_sensitive)
        return owner.current(), await called()

    mine, inside = asyncio.run(main())

    assert inside is mine


def test_a_task_that_a_thread_calls_belongs_to_the_thread() -> None:
    assert async_to_sync(here)() is owner.current()


def test_so_it_does_over_many_bridges() -> None:
    async def down(steps: int) -> list[Owner]:
        if not steps:
            return [owner.current()]
        deeper = await sync_to_async(lambda: async_to_sync(down)(steps - 1))()
        return [owner.current(), *deeper]

    seen = async_to_sync(down)(3)

    assert set(seen) == {owner.current()}
    assert len(seen) == 4


def test_a_child_task_over_a_bridge_is_apart() -> None:
    async def main() -> list[Owner]:
        calls = [sync_to_async(owner.current, thread_sensitive=False)() for _ in range(2)]
        return [owner.current(), *await asyncio.gather(*calls)]

    assert len(set(asyncio.run(main()))) == 3


def test_a_child_of_the_called_task_is_apart() -> None:
    async def main() -> Owner:
        return await asyncio.create_task(here())

    assert async_to_sync(main)() is not owner.current()


def test_a_thread_started_with_the_context_is_apart() -> None:
    def start() -> Owner:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, owner.current).result(10)

    async def main() -> tuple[Owner, Owner]:
        return owner.current(), await sync_to_async(start)()

    mine, inside = asyncio.run(main())

    assert inside is not mine


def test_a_thread_is_its_own_again_afterwards() -> None:
    with ThreadPoolExecutor(1) as pool:

        async def main() -> Owner:
            return await sync_to_async(owner.current, thread_sensitive=False, executor=pool)()

        carried = asyncio.run(main())

        assert pool.submit(owner.current).result(10) is not carried


def test_a_lock_held_by_a_task_is_had_again_in_its_threads_and_by_nobody_else() -> None:
    async def main() -> tuple[set[str], list[str | BaseException]]:
        one = lock("a", reentrant=True, thread_local=False)
        held = await sync_to_async(one.take)()
        again = {held.token, await sync_to_async(take)()}
        others = [sync_to_async(take, thread_sensitive=False)() for _ in range(2)]
        apart = await asyncio.gather(*others, return_exceptions=True)
        await sync_to_async(held.release)()
        return again, apart

    again, apart = asyncio.run(main())

    assert len(again) == 1
    assert [type(one) for one in apart] == [LockBusy, LockBusy]


def test_without_the_bridges_a_task_waits_for_itself(without_bridges: None) -> None:
    async def main() -> None:
        held = await sync_to_async(lock("a", reentrant=True).take)()
        with pytest.raises(LockBusy):
            await sync_to_async(take, thread_sensitive=False)()
        await sync_to_async(held.release)()

    asyncio.run(main())


def test_a_method_and_a_context_cross_too() -> None:
    class Shop:
        @sync_to_async
        def flow(self, value: int) -> tuple[Owner, int]:
            return owner.current(), value

        @async_to_sync
        async def twice(self, value: int) -> tuple[Owner, int]:
            return owner.current(), value

    async def main() -> tuple[Owner, tuple[Owner, int]]:
        return owner.current(), await Shop().flow(7)

    mine, inside = asyncio.run(main())

    assert inside == (mine, 7)
    assert Shop().twice(8) == (owner.current(), 8)


def test_what_is_raised_comes_back() -> None:
    def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        await sync_to_async(fail)()

    with pytest.raises(KeyError, match="x"):
        async_to_sync(main)()


def test_installing_twice_is_installing_once() -> None:
    before = SyncToAsync.__call__, AsyncToSync.__call__

    install()

    assert (SyncToAsync.__call__, AsyncToSync.__call__) == before
    assert iscoroutinefunction(sync_to_async(take))


def test_asgiref_is_as_the_bridges_need_it(without_bridges: None) -> None:
    """Where this fails, asgiref has changed: see that async_support.py still does its work."""
    to_async, to_sync = sync_to_async(take), async_to_sync(here)

    assert inspect.iscoroutinefunction(SyncToAsync.__call__)
    assert not inspect.iscoroutinefunction(AsyncToSync.__call__)
    assert to_async.func is take  # type: ignore[attr-defined]
    assert to_sync.awaitable is here  # type: ignore[attr-defined]
    assert "self.func" in inspect.getsource(SyncToAsync.__call__)
    assert "self.awaitable(" in inspect.getsource(AsyncToSync)
    assert "self.__call__" in inspect.getsource(SyncToAsync.__get__)
    assert "self.__call__" in inspect.getsource(AsyncToSync.__get__)
