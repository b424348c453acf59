"""The public names as a typed project uses them: mypy checks the types, pytest the values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from django_setnx_lock import LockBusy, LockLost, lock, locked
from django_setnx_lock.core import LockHandle, MultiLock, MultiLockHandle, RedisLock
from tests.servers import FakeServer

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: Any, kind: Any) -> Any:
        return value


def test_what_the_methods_return() -> None:
    mine = lock("order:42", timeout=30, blocking_timeout=None)

    assert_type(mine, RedisLock)
    assert assert_type(mine.acquire(blocking=False, token="worker-7"), bool)
    assert assert_type(mine.extend(additional_time=5, replace_ttl=True), Literal[True])
    assert assert_type(mine.reacquire(), Literal[True])
    assert assert_type(mine.owned(), bool)
    assert assert_type(mine.locked(), bool)
    assert assert_type(mine.token, "str | None") == "worker-7"
    assert isinstance(assert_type(mine.fence, "int | None"), int)
    mine.release()


def test_what_a_block_gives() -> None:
    with lock("order:42") as held:
        assert_type(held, LockHandle)
        assert_type(held.fence, int)
        assert_type(held.token, str)
        assert assert_type(held.remaining(), float) > 0
        assert assert_type(held.lost, bool) is False


def test_what_several_keys_give() -> None:
    told: list[dict[str, int]] = []

    def note(held: MultiLockHandle) -> None:
        told.append(held.fences)

    assert_type(lock("order:42", "order:43"), MultiLock)
    with lock("order:42", "order:43", timeout=5, on_lost=note) as held:
        assert_type(held, MultiLockHandle)
        assert_type(held["order:42"], LockHandle)
        assert_type(held.fences, dict[str, int])
        assert assert_type(held.remaining(), float) > 0
        assert assert_type(held.lost, bool) is False
    mine = lock("order:42", "order:43", blocking_timeout=0)
    assert assert_type(mine.acquire(), bool)
    assert assert_type(mine.extend(additional_time=5), Literal[True])
    mine.release()


@pytest.mark.usefixtures("fake_connections")
def test_what_is_awaited() -> None:
    async def work() -> str:
        mine = lock("order:42")
        assert assert_type(await mine.aacquire(blocking=False, token="worker-7"), bool)
        assert assert_type(await mine.aextend(5, replace_ttl=True), Literal[True])
        assert assert_type(await mine.areacquire(), Literal[True])
        assert assert_type(await mine.aowned(), bool)
        assert assert_type(await mine.alocked(), bool)
        await mine.arelease()
        async with mine as held:
            assert_type(held, LockHandle)
            return held.token

    assert assert_type(asyncio.run(work()), str)


@locked("order:<pk>")
async def pay(pk: int) -> str:
    return "paid"


@pytest.mark.usefixtures("fake_connections")
def test_a_coroutine_function_stays_one() -> None:
    assert assert_type(asyncio.run(pay(42)), str) == "paid"


def test_any_client_of_redis_py_will_do() -> None:
    plain: redis.Redis = FakeServer().client()
    positional = RedisLock(plain, "lock:a", 30, 0.1, False, None, True, True)
    named = RedisLock(client=plain, name="lock:a", timeout=30.5, raise_on_release_error=False)

    assert assert_type(positional.timeout, float) == 30
    assert assert_type(named.blocking_timeout, "float | None") is None


def test_what_is_caught() -> None:
    mine, other = lock("order:42"), lock("order:42", blocking_timeout=0)

    def enter() -> str:
        try:
            with other:
                return "entered"
        except LockBusy as error:
            assert_type(error.remaining, "float | None")
            return "busy"

    def leave() -> str:
        try:
            mine.release()
        except LockLost as error:
            return assert_type(error.forced_by, str) or "lost"
        return "released"

    with mine:
        assert enter() == "busy"
    mine.acquire()
    mine.client.delete(mine.name)
    assert leave() == "lost"


def test_what_redis_pys_classes_catch() -> None:
    mine = lock("order:42")
    caught: list[type[LockError]] = []
    try:
        mine.release()
    except LockNotOwnedError:
        raise
    except LockError as error:
        caught.append(type(error))

    assert issubclass(caught[0], LockError)
