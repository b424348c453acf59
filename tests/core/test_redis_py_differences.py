"""Where our lock does otherwise than redis-py's, on purpose: each test is a row of the docs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.lock
from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError
from redis.retry import Retry

from django_setnx_lock.core import protocol
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lock import RedisLock
from tests.core.redis_py import NAME, OURS, THEIRS, differs, first_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

# A client that sends a command again when its connection broke; before redis-py 6 if told so.
RETRYING: dict[str, Any] = {
    "retry": Retry(NoBackoff(), 3),
    "retry_on_error": [redis.exceptions.ConnectionError],
}


@differs("`timeout=None`")
def test_there_is_always_a_lease(redis_client: redis.Redis) -> None:
    THEIRS(redis_client, "lock:theirs", timeout=None).acquire()
    OURS(redis_client, "lock:ours", timeout=None).acquire()

    assert redis_client.pttl("lock:theirs") == -1
    assert 29_000 < redis_client.pttl("lock:ours") <= 30_000


@differs("`extend()` and `reacquire()` of a lock made without `timeout`")
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


@differs("`reacquire()` after `extend()`")
def test_reacquire_never_cuts(redis_client: redis.Redis) -> None:
    for library in (THEIRS, OURS):
        lock = library(redis_client, f"lock:{library is OURS}", timeout=10)
        lock.acquire()
        lock.extend(50)
        lock.reacquire()

    assert redis_client.pttl("lock:False") <= 10_000
    assert 59_000 < redis_client.pttl("lock:True") <= 60_000


@differs("a time that is none: `timeout=0`, a negative one, NaN, a bool")
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


# What is handed on waits for a second only, on a machine that may be doing something else.
@pytest.mark.flaky(reruns=2)
@differs("which waiting caller is next")
def test_our_waiting_callers_are_served_in_order(redis_client: redis.Redis) -> None:
    holder = RedisLock(redis_client, NAME)
    holder.acquire()
    first, second = (RedisLock(redis_client, NAME).turn() for _ in range(2))
    first.ask(waits=True)
    second.ask(waits=True)
    holder.release()

    assert OURS(redis_client, NAME).acquire(blocking=False) is False
    assert not isinstance(second.ask(waits=True), Held)
    assert isinstance(first.ask(waits=True), Held)


@pytest.fixture
def cutting(proxy: Proxy, real_server: RealServer) -> Proxy:
    """Give a proxy before a server that knows the scripts of both."""
    for library in (THEIRS, OURS):
        with library(real_server.client(), "lock:warm", timeout=20):
            pass
    return proxy


@differs("a reply that is lost on the way")
def test_a_lost_grant_is_made_good(cutting: Proxy) -> None:
    taken = {}
    for library in (THEIRS, OURS):
        name = f"lock:{library is OURS}"
        lock = library(cutting.client(**RETRYING), name, timeout=20)
        cutting.drop_next_reply(name.encode())
        taken[library] = (lock.acquire(blocking=False), lock.owned(), lock.locked())

    assert taken == {THEIRS: (False, False, True), OURS: (True, True, True)}


@differs("a reply that is lost on the way")
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
    execute: Any = redis_client.execute_command

    def slow(*words: Any, **options: Any) -> Any:
        reply = execute(*words, **options)
        time.sleep(0.1)
        return reply

    monkeypatch.setattr(redis_client, "execute_command", slow)

    assert THEIRS(redis_client, NAME, timeout=0.05).acquire(blocking=False) is True
    assert redis_client.exists(NAME) == 0
    assert OURS(redis_client, NAME, timeout=0.05).acquire(blocking=False) is False


@differs("`token=`")
@pytest.mark.parametrize("token", ["", b"\xff", "baton:x", 7], ids=repr)
def test_what_is_no_good_token_is_refused(redis_client: redis.Redis, token: Any) -> None:
    assert THEIRS(redis_client, "lock:theirs").acquire(token=token) is True

    with pytest.raises((ValueError, TypeError), match="a token") as caught:
        OURS(redis_client, "lock:ours").acquire(token=token)

    assert not isinstance(caught.value, LockError)


@differs("`lock.local.token`")
def test_the_token_is_text_and_read_only(redis_client: redis.Redis) -> None:
    theirs: Any = THEIRS(redis_client, "lock:theirs")
    ours: Any = OURS(redis_client, "lock:ours")
    theirs.acquire(token="x")
    ours.acquire(token="x")

    assert (theirs.local.token, ours.token) == (b"x", "x")
    assert not hasattr(ours, "local")
    with pytest.raises(AttributeError):
        ours.token = "y"


@differs("the class")
def test_it_is_no_subclass_of_redis_pys() -> None:
    assert not issubclass(RedisLock, redis.lock.Lock)


@differs("other attributes")
def test_what_else_redis_pys_lock_has(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, NAME), OURS(redis_client, NAME)

    missing = {
        name
        for name in set(dir(theirs)) - set(dir(ours))
        if not name.lower().startswith(("_", "do_", "lua_"))
    }

    assert missing == {"redis", "register_scripts", "local"}
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


@differs("keys in Redis")
def test_there_are_short_lived_keys_beside_the_lock(redis_client: redis.Redis) -> None:
    with THEIRS(redis_client, NAME, timeout=20):
        theirs = {protocol.text(key) for key in redis_client.keys("*")}
    with OURS(redis_client, NAME, timeout=20):
        ours = {protocol.text(key) for key in redis_client.keys("*")}
        lives = [redis_client.pttl(key) for key in redis_client.keys("*")]

    assert theirs == {NAME}
    assert "{lock:a}:meta" in ours
    assert all(key == NAME or str(key).startswith("{lock:a}:") for key in ours)
    assert min(lives) > 0
