"""The cases of redis-py's own tests of its locks, by their names: each runs on both libraries.

A case is a coroutine that runs on locks of both kinds. Those of ``redis.Redis`` suspend nowhere,
and so need no event loop, in which ours would refuse to block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio.lock
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

from django_setnx_lock.core import RedisLock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import RealServer

CASES: dict[str, Case] = {}
# No cases here, as ours does otherwise on purpose; test_redis_py_differences shows it:
#   there is always a lease
#     test_lock, test_lock_token: that the name never expires
#     test_extending_lock_with_no_timeout_raises_error
#     test_reacquiring_lock_with_no_timeout_raises_error
#     test_context_manager_reacquiring_lock_with_no_timeout_raises_error
#   nobody asks again and again, so its pauses (those of a faked clock) are none of ours, and who
#   waits does for as long as he was told
#     test_blocking_timeout, test_context_manager_blocking_timeout: the pauses
#     test_high_sleep_small_blocking_timeout
#   a block may release before its end
#     test_context_manager_not_raise_on_release_lock_error: that it raises otherwise
#   in asyncio the loss of the lock cancels the block
#     test_context_manager_not_raise_on_release_lock_not_owned_error: that the block runs on


class Awaited(RedisLock):
    """Ours by the names of redis-py's lock, which are awaited there."""

    acquire: Any = RedisLock.aacquire
    extend: Any = RedisLock.aextend
    locked: Any = RedisLock.alocked
    owned: Any = RedisLock.aowned
    reacquire: Any = RedisLock.areacquire
    release: Any = RedisLock.arelease


class Locks:
    """Makes locks as a test of redis-py does: ``client.lock(..., lock_class=...)``."""

    def __init__(self, client: Any, library: type, server: RealServer) -> None:
        self.r = server.client()
        self.client = client
        self.library = library
        self.server = server

    def __call__(self, name: str = "foo", **options: Any) -> Any:
        return self.client.lock(name, lock_class=self.library, **options)

    @property
    def logs_a_failed_release(self) -> bool:
        # redis-py before 5.3 always raises.
        return "raise_on_release_error" in inspect.signature(redis.lock.Lock).parameters


Case = Callable[[Locks], Awaitable[None]]


def case(body: Case) -> Case:
    CASES[body.__name__] = body
    return body


async def done(answer: Any) -> Any:
    """Await ``answer`` if that is how this lock answers."""
    return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def block(lock: Any) -> AsyncIterator[Any]:
    """Enter ``lock`` with what its kind of client asks for."""
    if lock_is_awaited(lock):
        async with lock as given:
            yield given
    else:
        with lock as given:
            yield given


def lock_is_awaited(lock: Any) -> bool:
    client = getattr(lock, "client", None) or lock.redis
    return type(client).__module__.startswith("redis.asyncio")


def drive(body: Any) -> None:
    """Run the coroutine ``body``, which suspends nowhere."""
    try:
        with pytest.raises(StopIteration):
            body.send(None)
    finally:
        body.close()


@case
async def lock(get_lock: Locks) -> None:
    mine = get_lock()
    assert await done(mine.acquire(blocking=False))
    assert get_lock.r.get("foo") == mine.local.token
    await done(mine.release())
    assert get_lock.r.get("foo") is None


@case
async def lock_token(get_lock: Locks) -> None:
    for thread_local in (True, False):
        mine = get_lock(thread_local=thread_local)
        assert mine.local.token is None
        assert await done(mine.acquire(blocking=False, token="test"))
        assert [get_lock.r.get("foo"), mine.local.token] == [b"test"] * 2
        await done(mine.release())
        assert [get_lock.r.get("foo"), mine.local.token] == [None] * 2


@case
async def locked(get_lock: Locks) -> None:
    mine = get_lock()
    assert await done(mine.locked()) is False
    await done(mine.acquire(blocking=False))
    assert await done(mine.locked()) is True
    await done(mine.release())
    assert await done(mine.locked()) is False


@case
async def owned(get_lock: Locks) -> None:
    mine, other = get_lock(), get_lock()
    assert await done(mine.owned()) is False
    await done(mine.acquire(blocking=False))
    assert [await done(one.owned()) for one in (mine, other)] == [True, False]
    await done(mine.release())
    await done(other.acquire(blocking=False))
    assert [await done(one.owned()) for one in (mine, other)] == [False, True]
    await done(other.release())
    assert [await done(one.owned()) for one in (mine, other)] == [False, False]


@case
async def competing_locks(get_lock: Locks) -> None:
    mine, other = get_lock(), get_lock()
    assert await done(mine.acquire(blocking=False))
    assert not await done(other.acquire(blocking=False))
    await done(mine.release())
    assert await done(other.acquire(blocking=False))
    assert not await done(mine.acquire(blocking=False))


@case
async def timeout(get_lock: Locks) -> None:
    for seconds in (10, 9.5):
        mine = get_lock(timeout=seconds)
        assert await done(mine.acquire(blocking=False))
        assert 8_000 < get_lock.r.pttl("foo") <= seconds * 1000
        await done(mine.release())


@case
async def blocking(get_lock: Locks) -> None:
    assert get_lock().blocking
    assert not get_lock(blocking=False).blocking


@case
async def blocking_timeout(get_lock: Locks) -> None:
    async with block(get_lock(blocking=False)):
        assert not await done(get_lock(sleep=0.01, blocking_timeout=0.05).acquire())


@case
async def context_manager(get_lock: Locks) -> None:
    async with block(get_lock(blocking_timeout=0.2)) as held:
        assert get_lock.r.get("foo") == held.local.token
    assert get_lock.r.get("foo") is None


@case
async def context_manager_raises_when_locked_not_acquired(get_lock: Locks) -> None:
    get_lock.r.set("foo", "bar")
    with pytest.raises(LockError):
        async with block(get_lock(blocking_timeout=0.05)):
            pytest.fail("it was entered")


@case
async def context_manager_not_raise_on_release_lock_not_owned_error(get_lock: Locks) -> None:
    with pytest.raises(LockNotOwnedError):
        async with block(get_lock(timeout=10)):
            get_lock.r.delete("foo")
    if get_lock.logs_a_failed_release:
        async with block(get_lock(timeout=10, raise_on_release_error=False)):
            get_lock.r.delete("foo")


@case
async def context_manager_not_raise_on_release_lock_error(get_lock: Locks) -> None:
    if get_lock.logs_a_failed_release:
        async with block(get_lock(timeout=10, raise_on_release_error=False)) as held:
            # Ours gives a handle, whose awaited names have an a.
            in_asyncio = get_lock.library is Awaited
            await done(held.arelease() if in_asyncio else held.release())
        assert not get_lock.r.exists("foo")


@case
async def releasing_unlocked_lock_raises_error(get_lock: Locks) -> None:
    with pytest.raises(LockError):
        await done(get_lock().release())


@case
async def releasing_lock_no_longer_owned_raises_error(get_lock: Locks) -> None:
    mine = get_lock()
    await done(mine.acquire(blocking=False))
    get_lock.r.set("foo", "a")
    with pytest.raises(LockNotOwnedError):
        await done(mine.release())
    assert mine.local.token is None


@case
async def extend_lock(get_lock: Locks) -> None:
    for seconds in (10, 10.5):
        mine = get_lock(timeout=seconds)
        assert await done(mine.acquire(blocking=False))
        before = get_lock.r.pttl("foo")
        assert await done(mine.extend(seconds)) is True
        assert before + 8_000 < get_lock.r.pttl("foo") <= before + seconds * 1000
        await done(mine.release())


@case
async def extend_lock_replace_ttl(get_lock: Locks) -> None:
    mine = get_lock(timeout=10)
    assert await done(mine.acquire(blocking=False))
    assert await done(mine.extend(10, replace_ttl=True)) is True
    assert 8_000 < get_lock.r.pttl("foo") <= 10_000


@case
async def extending_unlocked_lock_raises_error(get_lock: Locks) -> None:
    with pytest.raises(LockError):
        await done(get_lock(timeout=10).extend(10))


@case
async def extending_lock_no_longer_owned_raises_error(get_lock: Locks) -> None:
    mine = get_lock(timeout=10)
    assert await done(mine.acquire(blocking=False))
    get_lock.r.set("foo", "a")
    with pytest.raises(LockNotOwnedError):
        await done(mine.extend(10))


@case
async def reacquire_lock(get_lock: Locks) -> None:
    mine = get_lock(timeout=10)
    assert await done(mine.acquire(blocking=False))
    assert get_lock.r.pexpire("foo", 5_000)
    assert await done(mine.reacquire()) is True
    assert 8_000 < get_lock.r.pttl("foo") <= 10_000


@case
async def reacquiring_unlocked_lock_raises_error(get_lock: Locks) -> None:
    with pytest.raises(LockError):
        await done(get_lock(timeout=10).reacquire())


@case
async def reacquiring_lock_no_longer_owned_raises_error(get_lock: Locks) -> None:
    mine = get_lock(timeout=10)
    assert await done(mine.acquire(blocking=False))
    get_lock.r.set("foo", "a")
    with pytest.raises(LockNotOwnedError):
        await done(mine.reacquire())


@case
async def context_manager_reacquiring_lock_no_longer_owned_raises_error(get_lock: Locks) -> None:
    with pytest.raises(LockNotOwnedError):
        async with block(get_lock(timeout=10, blocking=False)):
            get_lock.r.set("foo", "a")


@case
async def lock_error_gives_correct_lock_name(get_lock: Locks) -> None:
    get_lock.r.set("foo", "bar")
    with pytest.raises(LockError) as caught:
        async with block(get_lock(blocking_timeout=0.05)):
            pytest.fail("it was entered")
    # redis-py's asyncio lock gives none.
    assert caught.value.lock_name == "foo" or get_lock.library is redis.asyncio.lock.Lock


@case
async def lock_class_argument(get_lock: Locks) -> None:
    assert isinstance(get_lock(), get_lock.library)


def libraries(theirs: type) -> pytest.MarkDecorator:
    """Give both libraries: redis-py's own, which says that a case is one, where all is tried."""
    of_redis_py = pytest.param(theirs, marks=pytest.mark.storm, id="redis-py")
    return pytest.mark.parametrize("library", [of_redis_py, pytest.param(RedisLock, id="ours")])


@pytest.mark.parametrize("name", CASES)
@libraries(redis.lock.Lock)
def test_case_of_redis_py(name: str, library: type, real_server: RealServer) -> None:
    drive(CASES[name](Locks(real_server.client(), library, real_server)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("library", [redis.asyncio.lock.Lock, Awaited], ids=["redis-py", "ours"])
def test_case_of_redis_py_in_asyncio(name: str, library: type, real_server: RealServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=real_server.port) as client:
            await CASES[name](Locks(client, library, real_server))

    asyncio.run(work())


def test_release_cancellation_preserves_lock_state(real_server: RealServer) -> None:
    # redis-py before 8 did not.
    async def work() -> None:
        async with redis.asyncio.Redis(port=real_server.port) as client:
            mine: Any = Awaited(client, "foo")
            await mine.acquire(blocking=False)
            token = mine.local.token
            releasing = asyncio.create_task(mine.release())
            releasing.cancel()
            await asyncio.wait([releasing], timeout=10)
            if mine.local.token is not None:
                assert mine.local.token == token
                await mine.release()
            assert await mine.locked() is False

    asyncio.run(work())


@pytest.mark.parametrize("name", ["owned", "lock_token"])
@libraries(redis.lock.Lock)
def test_case_of_redis_py_with_decoded_responses(
    name: str, library: type, real_server: RealServer
) -> None:
    client = real_server.client(decode_responses=True)

    drive(CASES[name](Locks(client, library, real_server)))
