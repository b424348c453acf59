"""Taking where our lock does otherwise than redis-py's: each test is a row of the docs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockNotOwnedError
from redis.retry import Retry

from django_setnx_lock.core import LockHandle, RedisLock
from tests.core.helpers import ask
from tests.core.redis_py import NAME, OURS, THEIRS, around, differs, first_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

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


@differs("`sleep`")
def test_our_callers_do_not_ask_so_seldom(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = OURS(server.client(), NAME, timeout=60)
    holder.acquire()
    client = server.client()
    asked = first_answer(client, monkeypatch)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(OURS(client, NAME, sleep=60).acquire, blocking_timeout=30)
        assert asked.wait(10)
        holder.release()

        assert result.result(20) is True


@differs("`blocking_timeout` that `sleep` does not fit in")
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


@differs("which waiting caller is next")
@pytest.mark.usefixtures("patient")
def test_our_waiting_callers_are_served_in_order(redis_client: redis.Redis) -> None:
    holder = RedisLock(redis_client, NAME)
    holder.acquire()
    first, second = (RedisLock(redis_client, NAME).attempt() for _ in range(2))
    ask(first, waits=True)
    ask(second, waits=True)
    holder.release()

    assert OURS(redis_client, NAME).acquire(blocking=False) is False
    assert not isinstance(ask(second, waits=True), LockHandle)
    assert isinstance(ask(first, waits=True), LockHandle)


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


@differs("a grant that took longer than its lease to arrive")
def test_a_grant_that_came_too_late_is_none(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        reply = send()
        time.sleep(0.1)
        return reply

    around(redis_client, monkeypatch, slow)

    assert THEIRS(redis_client, NAME, timeout=0.05).acquire(blocking=False) is True
    assert redis_client.exists(NAME) == 0
    assert OURS(redis_client, NAME, timeout=0.05).acquire(blocking=False) is False


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
