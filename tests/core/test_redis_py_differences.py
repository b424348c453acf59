"""Where our lock does otherwise than redis-py's, on purpose: each test is a row of the docs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.lock
from redis.exceptions import LockError

from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.protocol import replies
from tests.core.redis_py import NAME, OURS, THEIRS, differs

if TYPE_CHECKING:
    from collections.abc import Callable


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
@pytest.mark.parametrize("token", ["", b"\xff", "baton:x", 7], ids=repr)
def test_what_is_no_good_token_is_refused(redis_client: redis.Redis, token: Any) -> None:
    assert THEIRS(redis_client, "lock:theirs").acquire(token=token) is True

    with pytest.raises((ValueError, TypeError), match="a token") as caught:
        OURS(redis_client, "lock:ours").acquire(token=token)

    assert not isinstance(caught.value, LockError)


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


@differs("keys in Redis")
def test_there_are_short_lived_keys_beside_the_lock(redis_client: redis.Redis) -> None:
    with THEIRS(redis_client, NAME, timeout=20):
        theirs = {replies.text(key) for key in redis_client.keys("*")}
    with OURS(redis_client, NAME, timeout=20):
        ours = {replies.text(key) for key in redis_client.keys("*")}
        lives = [redis_client.pttl(key) for key in redis_client.keys("*")]

    assert theirs == {NAME}
    assert "{lock:a}:meta" in ours
    assert all(key == NAME or str(key).startswith("{lock:a}:") for key in ours)
    assert min(lives) > 0
