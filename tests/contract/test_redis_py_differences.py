"""Where our lock does otherwise than redis-py's, on purpose: each test is a row of the docs.

And, at the end, what the two have in common that no case of redis-py's own tests shows.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio.lock
import redis.lock
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from tests.processes import in_thread
from tests.servers import FakeServer
from tests.support.redis_py import NAME, OURS, THEIRS, both, can_log_a_failed_release, differs
from tests.support.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer
    from tests.support.redis_py import Lock

    Library = Callable[..., Lock]


@differs("`timeout=None`")
def test_there_is_always_a_lease(redis_client: redis.Redis) -> None:
    THEIRS(redis_client, "lock:theirs", timeout=None).acquire()
    OURS(redis_client, "lock:ours", timeout=None).acquire()

    assert redis_client.pttl("lock:theirs") == -1
    assert 29_000 < redis_client.pttl("lock:ours") <= 30_000


@pytest.mark.parametrize(
    "ask", [lambda lock: lock.extend(5), lambda lock: lock.reacquire()], ids=["extend", "reacquire"]
)
def test_a_lock_made_without_a_timeout_can_be_renewed(
    redis_client: redis.Redis, ask: Callable[[Any], bool]
) -> None:
    theirs, ours = THEIRS(redis_client, "lock:theirs"), OURS(redis_client, "lock:ours")
    theirs.acquire()
    ours.acquire()

    with pytest.raises(LockError, match="no timeout"):
        ask(theirs)

    assert ask(ours) is True


@differs("`reacquire()` after `extend()`; `extend(seconds, replace_ttl=True)`")
def test_reacquire_never_cuts(redis_client: redis.Redis) -> None:
    for library in (THEIRS, OURS):
        lock = library(redis_client, f"lock:{library is OURS}", timeout=10)
        lock.acquire()
        lock.extend(50)
        lock.reacquire()

    assert redis_client.pttl("lock:False") <= 10_000
    assert 59_000 < redis_client.pttl("lock:True") <= 60_000


@differs("an invalid time: `timeout=0`, a negative number, NaN, a bool")
def test_a_time_that_is_none_is_refused(redis_client: redis.Redis) -> None:
    theirs = THEIRS(redis_client, "lock:theirs", timeout=0)
    odd = (theirs.acquire(), redis_client.pttl("lock:theirs"))
    for refused in (
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": True},
        {"sleep": -1},
        {"blocking_timeout": -1},
    ):
        THEIRS(redis_client, NAME, **refused)
        with pytest.raises(ValueError, match=next(iter(refused))) as caught:
            OURS(redis_client, NAME, **refused)
        assert not isinstance(caught.value, LockError)

    assert odd == (True, -1)
    with pytest.raises(ValueError, match="sleep, the first argument of acquire"):
        OURS(redis_client, NAME).acquire(False)


@differs("`token=`")
@pytest.mark.parametrize("token", ["", b"\xff", "kept:x", 7], ids=repr)
def test_what_is_no_good_token_is_refused(redis_client: redis.Redis, token: Any) -> None:
    assert THEIRS(redis_client, "lock:theirs").acquire(token=token) is True

    with pytest.raises((ValueError, TypeError), match="a token") as caught:
        OURS(redis_client, "lock:ours").acquire(token=token)

    assert not isinstance(caught.value, LockError)


@differs("the class")
def test_it_is_no_subclass_of_redis_pys() -> None:
    assert not issubclass(RedisLock, redis.lock.Lock)


@differs("the class")
def test_what_else_redis_pys_lock_has(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, NAME), OURS(redis_client, NAME)

    missing = {
        name
        for name in set(dir(theirs)) - set(dir(ours))
        if not name.lower().startswith(("_", "do_", "lua_"))
    }

    assert missing == {"redis", "register_scripts"}
    assert RedisLock(redis_client, NAME).client is redis_client


@differs("setting `lock.timeout`")
def test_a_timeout_is_for_good(redis_client: redis.Redis) -> None:
    theirs: Any = THEIRS(redis_client, NAME, timeout=10)
    ours: Any = OURS(redis_client, NAME, timeout=10)
    theirs.timeout = 20

    with pytest.raises(AttributeError):
        ours.timeout = 20

    theirs.acquire()
    assert redis_client.pttl(NAME) > 19_000


@differs("a name as bytes, empty, or with braces that form no hash tag")
@pytest.mark.parametrize("name", [b"lock:a", "", "lock:{}a", "lock:a}"], ids=repr)
def test_some_names_are_refused(redis_client: redis.Redis, name: Any) -> None:
    assert THEIRS(redis_client, name).acquire() is True

    with pytest.raises(TypeError if isinstance(name, bytes) else ValueError, match="name"):
        OURS(redis_client, name)


# A client that sends a command again when its connection broke; before redis-py 6 if told so.
RETRYING: dict[str, Any] = {
    "retry": Retry(NoBackoff(), 3),
    "retry_on_error": [redis.exceptions.ConnectionError],
}


@differs("`sleep`")
def test_sleep_is_how_often_redis_pys_callers_ask(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = THEIRS(redis_client, NAME, timeout=60)
    holder.acquire()
    slept: list[float] = []

    def release(seconds: float) -> None:
        slept.append(seconds)
        holder.release()

    monkeypatch.setattr(time, "sleep", release)

    assert THEIRS(redis_client, NAME, sleep=60).acquire() is True
    assert slept == [60]


def test_a_wait_is_not_given_up_early(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    THEIRS(redis_client, NAME, timeout=60).acquire()
    slept: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", slept.append)
        theirs = THEIRS(redis_client, NAME, sleep=60, blocking_timeout=30).acquire()
    started = time.monotonic()
    ours = OURS(redis_client, NAME, sleep=60, blocking_timeout=0.2).acquire()

    assert (theirs, slept) == (False, [])
    assert ours is False
    assert time.monotonic() - started > 0.15


@differs("`blocking=False` while others wait")
def test_redis_pys_waiting_callers_are_overtaken(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, newcomer = (THEIRS(redis_client, NAME, timeout=60) for _ in range(2))
    holder.acquire()
    overtook: list[bool] = []

    def meanwhile(seconds: float) -> None:
        if overtook:
            newcomer.release()
        else:
            holder.release()
            overtook.append(newcomer.acquire(blocking=False))

    monkeypatch.setattr(time, "sleep", meanwhile)
    THEIRS(redis_client, NAME, timeout=60).acquire()

    assert overtook == [True]


@pytest.fixture
def cutting(proxy: Proxy, real_server: RealServer) -> Proxy:
    """Give a proxy before a server that knows the scripts of both."""
    for library in (THEIRS, OURS):
        with library(real_server.client(), "lock:warm", timeout=20):
            pass
    return proxy


@differs("a lost reply")
def test_a_lost_grant_is_made_good(cutting: Proxy) -> None:
    taken = {}
    for library in (THEIRS, OURS):
        name = f"lock:{library is OURS}"
        lock = library(cutting.client(**RETRYING), name, timeout=20)
        cutting.drop_next_reply(name.encode())
        taken[library] = (lock.acquire(blocking=False), lock.owned(), lock.locked())

    assert taken == {THEIRS: (False, False, True), OURS: (True, True, True)}


@differs("a lost reply")
def test_a_lost_release_is_made_good(cutting: Proxy) -> None:
    theirs, ours = (
        library(cutting.client(**RETRYING), NAME, timeout=20) for library in (THEIRS, OURS)
    )
    theirs.acquire()
    cutting.drop_next_reply(NAME.encode())
    with pytest.raises(LockNotOwnedError):
        theirs.release()

    ours.acquire()
    cutting.drop_next_reply(NAME.encode())
    ours.release()

    assert not ours.locked()


@differs("the thread that holds it takes it again")
def test_the_thread_that_holds_it_takes_it_again_if_it_is_reentrant(
    redis_client: redis.Redis,
) -> None:
    for library, options, again in (
        (THEIRS, {}, False),
        (OURS, {}, False),
        (OURS, {"reentrant": True}, True),
    ):
        lock = library(redis_client, NAME, timeout=20, **options)
        lock.acquire(blocking=False)

        assert lock.acquire(blocking=False) is again

        redis_client.flushall()


@differs("Redis cannot be asked")
def test_a_server_that_is_down_is_one_error() -> None:
    down = FakeServer()
    down.connected = False

    with pytest.raises(RedisConnectionError):
        THEIRS(down.client(), NAME).acquire()
    with pytest.raises(LockUnavailable) as caught:
        OURS(down.client(), NAME).acquire()

    assert isinstance(caught.value, LockError)
    assert not isinstance(caught.value, RedisConnectionError | LockBusy)


@differs("`release()` that could not be sent")
def test_a_release_that_failed_can_be_called_again() -> None:
    server = FakeServer()
    theirs, ours = THEIRS(server.client(), "lock:theirs"), OURS(server.client(), "lock:ours")
    theirs.acquire()
    ours.acquire()
    server.connected = False
    for lock, error in ((theirs, RedisConnectionError), (ours, LockUnavailable)):
        with pytest.raises(error):
            lock.release()
    server.connected = True

    with pytest.raises(LockError):
        theirs.release()
    ours.release()

    assert theirs.locked()
    assert not ours.locked()


@differs("what `with … as` gives")
def test_a_block_gives_a_handle(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, "lock:theirs"), OURS(redis_client, "lock:ours")

    with theirs as given:
        assert given is theirs
    with ours as given:
        assert isinstance(given, LockHandle)
        names = set(dir(given))

    assert names >= {"extend", "reacquire", "release", "owned", "locked", "name", "token", "fence"}
    assert "acquire" not in names


@differs("`release()` inside the block")
def test_a_block_may_release_before_its_end(redis_client: redis.Redis) -> None:
    with pytest.raises(LockError), THEIRS(redis_client, NAME) as held:
        held.release()

    with OURS(redis_client, NAME) as held:
        held.release()


@differs("a block of asyncio whose lock is lost")
def test_a_loss_ends_a_block_of_asyncio(real_server: RealServer) -> None:
    ended = []

    async def hold(library: Any, seconds: float) -> None:
        async with (
            redis.asyncio.Redis(port=real_server.port) as client,
            client.lock(NAME, timeout=0.05, lock_class=library),
        ):
            await asyncio.sleep(seconds)
            ended.append(library)

    for library, seconds in ((redis.asyncio.lock.Lock, 0.1), (OURS, 10)):
        with pytest.raises(LockNotOwnedError):
            asyncio.run(hold(library, seconds))

    assert ended == [redis.asyncio.lock.Lock]


@differs("a block that fails although its lock was lost")
def test_the_exception_of_a_block_is_not_replaced(redis_client: redis.Redis) -> None:
    def fail(lock: Any) -> None:
        with lock:
            redis_client.delete(NAME)
            raise ZeroDivisionError

    with pytest.raises(LockNotOwnedError):
        fail(THEIRS(redis_client, NAME))
    with pytest.raises(ZeroDivisionError):
        fail(OURS(redis_client, NAME))


@differs("`raise_on_release_error=False`")
@can_log_a_failed_release
def test_what_is_logged_where(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer()

    def leave(lock: Any, *, unreachable: bool) -> None:
        server.flush()
        with lock:
            server.client().delete(NAME)
            server.connected = not unreachable

    with caplog.at_level(logging.WARNING):
        for library in (THEIRS, OURS):
            leave(library(server.client(), NAME, raise_on_release_error=False), unreachable=False)
        with pytest.raises(RedisConnectionError):
            leave(THEIRS(server.client(), NAME, raise_on_release_error=False), unreachable=True)
        leave(OURS(server.client(), NAME, raise_on_release_error=False), unreachable=True)

    names = [record.name for record in caplog.records]
    assert names == ["redis.lock", "django_setnx_lock.lock", "django_setnx_lock.lock"]


def test_a_thread_that_holds_nothing_is_told_so(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, "lock:theirs"), OURS(redis_client, "lock:ours")
    theirs.acquire()
    ours.acquire()

    for ask in (theirs.release, theirs.owned):
        with pytest.raises(AttributeError):
            in_thread(ask)
    with pytest.raises(LockError):
        in_thread(ours.release)

    assert in_thread(ours.owned) is False
    assert ours.owned()


@differs("a process forked from the holder")
def test_a_forked_process_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeServer().client()
    theirs, ours = THEIRS(client, "lock:theirs"), OURS(client, "lock:ours")
    theirs.acquire()
    ours.acquire()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)

        theirs.release()
        with pytest.raises(LockError):
            ours.release()

    assert not theirs.locked()
    assert ours.owned()


@differs("keys in Redis")
def test_there_are_short_lived_keys_beside_the_lock(redis_client: redis.Redis) -> None:
    with THEIRS(redis_client, NAME, timeout=20):
        assert redis_client.keys("*") == [NAME.encode()]
    with OURS(redis_client, NAME, timeout=20):
        keys: Any = redis_client.keys("*")
        assert min(redis_client.pttl(key) for key in keys) > 0
    assert NAME.encode() in keys
    assert all(key == NAME.encode() or key.startswith(b"{lock:a}:") for key in keys)


@differs("which waiting caller is next")
@differs("`sleep`")
def test_our_waiting_callers_are_served_at_once_and_in_order(redis_client: redis.Redis) -> None:
    holder = RedisLock(redis_client, NAME, timeout=60)
    holder.acquire()
    first, second = (
        Waiter(RedisLock(redis_client, NAME, sleep=60), redis_client) for _ in range(2)
    )

    holder.release()

    with first.held():
        assert OURS(redis_client, NAME).acquire(blocking=False) is False
    second.held().release()


def test_a_grant_that_came_too_late_is_none(proxy: Proxy, real_server: RealServer) -> None:
    taken = {}
    for library in (THEIRS, OURS):
        client = proxy.client()
        client.ping()
        proxy.delay_replies(0.1)
        lock = library(client, f"lock:{library is OURS}", timeout=0.05)
        taken[library] = lock.acquire(blocking=False)
        proxy.delay_replies(0)

    assert taken == {THEIRS: True, OURS: False}
    assert not real_server.client().exists("lock:False", "lock:True")


@both
def test_what_acquire_is_told_goes_before_what_the_lock_was_told(
    library: Library, redis_client: redis.Redis
) -> None:
    library(redis_client, NAME, timeout=20).acquire()
    fails_fast = library(redis_client, NAME, timeout=20, blocking=False, blocking_timeout=99)
    waits = library(redis_client, NAME, timeout=20, blocking_timeout=0.02, sleep=0.01)

    assert fails_fast.acquire(blocking=None, blocking_timeout=None) is False
    assert fails_fast.acquire(blocking=True, blocking_timeout=0.01) is False
    assert waits.acquire(blocking=False) is False


@both
def test_arguments_may_be_given_by_position(library: Library, redis_client: redis.Redis) -> None:
    lock = library(redis_client, NAME, 20, 0.01, False, 5, False)

    assert lock.acquire(0.01, True, 5) is True
    assert library(redis_client, NAME, 20).acquire(0.01, False) is False
    assert lock.extend(5, True) is True
    assert (lock.name, lock.sleep, lock.blocking, lock.thread_local) == (NAME, 0.01, False, False)


@pytest.mark.parametrize(
    "method", ["__init__", "acquire", "release", "extend", "reacquire", "owned", "locked"]
)
def test_parameters_have_redis_pys_names_order_and_defaults(method: str) -> None:
    theirs = list(inspect.signature(getattr(redis.lock.Lock, method)).parameters.values())
    ours = list(inspect.signature(getattr(RedisLock, method)).parameters.values())

    expected = [(one.name.replace("redis", "client"), one.kind, one.default) for one in theirs]
    further = [one for one in ours[len(theirs) :] if one.name != "raise_on_release_error"]

    assert [(one.name, one.kind, one.default) for one in ours[: len(theirs)]] == expected
    # Those of layers above the lock come as they are.
    by_name = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    assert {one.kind for one in further} <= by_name


def test_our_errors_are_redis_pys() -> None:
    assert issubclass(LockLost, LockNotOwnedError)
    for ours in (LockBusy, LockUnavailable):
        assert issubclass(ours, LockError)
        assert not issubclass(ours, LockNotOwnedError)
