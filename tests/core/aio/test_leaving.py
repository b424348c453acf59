"""Which of several blocks of one lock object is left."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock import LockError
from django_setnx_lock.core import RedisLock
from tests.core.aio.helpers import run
from tests.core.helpers import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from django_setnx_lock.core import LockHandle


@pytest.fixture
def permits(redis_client: redis.Redis) -> RedisLock:
    """Give a lock object that several hold at a time."""
    return RedisLock(redis_client, "lock:a", limit=3, blocking=False)


async def rows(permits: RedisLock) -> AsyncGenerator[LockHandle, None]:
    async with permits as held:
        yield held


def test_a_generator_that_another_task_closes_lets_its_own_go(permits: RedisLock) -> None:
    async def work() -> tuple[bool, bool]:
        generator = rows(permits)
        inner = await generator.__anext__()

        async def inside() -> bool:
            async with permits as outer:
                await asyncio.create_task(generator.aclose())
                return outer.released

        outer_released = await asyncio.create_task(inside())
        return inner.released, outer_released

    assert run(work()) == (True, False)


def test_a_task_that_closes_the_generator_of_another_keeps_its_own(permits: RedisLock) -> None:
    async def work() -> tuple[bool, bool]:
        generator = rows(permits)
        inner = await generator.__anext__()

        async def inside() -> tuple[bool, bool]:
            async with permits as outer:
                await generator.aclose()
                return inner.released, outer.released

        return await asyncio.create_task(inside())

    assert run(work()) == (True, False)


def test_a_generator_that_another_thread_closes_lets_its_own_go(permits: RedisLock) -> None:
    def rows() -> Generator[LockHandle, None, None]:
        with permits as held:
            yield held

    generator = rows()
    inner = next(generator)

    def inside() -> tuple[bool, bool]:
        with permits as outer:
            generator.close()
            return inner.released, outer.released

    assert in_thread(inside) == (True, False)


def test_nobodys_block_is_left_where_it_cannot_be_told_whose(permits: RedisLock) -> None:
    async def work() -> tuple[bool, bool]:
        stack = AsyncExitStack()
        inner = await stack.enter_async_context(permits)

        async def inside() -> bool:
            async with permits as outer:
                with pytest.raises(LockError, match="a lock object of its own for each block"):
                    await asyncio.create_task(stack.aclose())
                return outer.released

        return inner.released, await asyncio.create_task(inside())

    assert run(work()) == (False, False)


def test_the_block_of_a_task_that_has_ended_is_left_by_another(permits: RedisLock) -> None:
    async def work() -> tuple[bool, bool]:
        stack = AsyncExitStack()

        async def enter() -> LockHandle:
            return await stack.enter_async_context(permits)

        inner = await asyncio.create_task(enter())
        outer = await AsyncExitStack().enter_async_context(permits)
        await asyncio.create_task(stack.aclose())
        return inner.released, outer.released

    assert run(work()) == (True, False)


def test_a_helper_leaves_what_its_own_thread_entered_last(permits: RedisLock) -> None:
    with ExitStack() as stack:
        first, second = stack.enter_context(permits), stack.enter_context(permits)
        other = in_thread(lambda: ExitStack().enter_context(permits))
        stack.close()

        assert (first.released, second.released, other.released) == (True, True, False)


def test_a_block_that_nobody_entered_is_not_left(permits: RedisLock) -> None:
    with pytest.raises(LockError, match="was entered by another thread"):
        permits.__exit__(None, None, None)
