"""What redis-py's lock does, ours does: every test runs on both, and on each server."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

from django_setnx_lock.core import RedisLock
from tests.core.helpers import in_thread
from tests.core.redis_py import NAME, both

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.redis_py import Lock

    Library = Callable[..., Lock]


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


@both
def test_a_lock_is_not_reentrant(library: Library, redis_client: redis.Redis) -> None:
    lock = library(redis_client, NAME, timeout=20)
    lock.acquire()

    assert lock.acquire(blocking=False) is False
    assert lock.owned() is True


@both
def test_without_thread_local_another_thread_may_release(
    library: Library, redis_client: redis.Redis
) -> None:
    lock = library(redis_client, NAME, timeout=20, thread_local=False)
    lock.acquire()

    assert in_thread(lock.owned) is True
    in_thread(lock.release)

    assert lock.owned() is False
    with pytest.raises(LockError):
        lock.release()


@both
def test_the_other_method_of_making_a_lock_makes_it_too(
    library: Any, redis_client: redis.Redis
) -> None:
    lock = redis_client.lock(NAME, timeout=20, sleep=0.01, lock_class=library)

    with lock:
        assert isinstance(lock, library)
        assert redis_client.exists(NAME)


@pytest.mark.parametrize(
    "method", ["__init__", "acquire", "release", "extend", "reacquire", "owned", "locked"]
)
def test_parameters_have_redis_pys_names_order_and_defaults(method: str) -> None:
    theirs = list(inspect.signature(getattr(redis.lock.Lock, method)).parameters.values())
    ours = list(inspect.signature(getattr(RedisLock, method)).parameters.values())

    expected = [(one.name.replace("redis", "client"), one.kind, one.default) for one in theirs]
    further = [one for one in ours[len(theirs) :] if one.name != "raise_on_release_error"]

    assert [(one.name, one.kind, one.default) for one in ours[: len(theirs)]] == expected
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in further)


def test_our_errors_are_redis_pys() -> None:
    from django_setnx_lock.core import errors

    assert issubclass(errors.LockLost, LockNotOwnedError)
    for ours in (errors.LockError, errors.LockBusy, errors.LockUnavailable):
        assert issubclass(ours, LockError)
        assert not issubclass(ours, LockNotOwnedError)
