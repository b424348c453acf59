"""What goes wrong with redis-py's lock is caught alike with ours, by redis-py's own classes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

from tests.core.redis_py import NAME, both, can_log_a_failed_release

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.redis_py import Handle, Lock

    Library = Callable[..., Lock]

# What can be asked of a lock that is held.
ASKED: dict[str, Callable[[Handle], object]] = {
    "release": lambda lock: lock.release(),
    "extend": lambda lock: lock.extend(5),
    "extend anew": lambda lock: lock.extend(5, replace_ttl=True),
    "reacquire": lambda lock: lock.reacquire(),
}
asked = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
SPOILT: dict[str, Callable[[redis.Redis], object]] = {
    "removed": lambda client: client.delete(NAME),
    "overwritten": lambda client: client.set(NAME, "somebody", px=9_000),
}
spoilt = pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)


def held(library: Library, client: redis.Redis, **options: object) -> Lock:
    lock = library(client, NAME, timeout=20, **options)
    assert lock.acquire(blocking=False)
    return lock


def ms_left(client: redis.Redis) -> int:
    return int(client.pttl(NAME))


@both
def test_extend_adds_to_what_is_left(library: Library, redis_client: redis.Redis) -> None:
    lock = held(library, redis_client)

    assert lock.extend(10) is True
    assert 29_000 < ms_left(redis_client) <= 30_000
    assert lock.extend(0.5) is True
    assert 29_500 < ms_left(redis_client) <= 30_500


@both
def test_extend_can_set_a_longer_lease(library: Library, redis_client: redis.Redis) -> None:
    lock = held(library, redis_client)

    assert lock.extend(additional_time=50, replace_ttl=True) is True

    assert 49_000 < ms_left(redis_client) <= 50_000


@both
def test_reacquire_starts_the_lease_anew(library: Library, redis_client: redis.Redis) -> None:
    lock = held(library, redis_client)
    redis_client.pexpire(NAME, 5_000)

    assert lock.reacquire() is True

    assert 19_000 < ms_left(redis_client) <= 20_000


@both
@asked
def test_a_lock_that_was_never_taken_is_a_lock_error(
    library: Library, redis_client: redis.Redis, ask: Callable[[Handle], object]
) -> None:
    with pytest.raises(LockError) as caught:
        ask(library(redis_client, NAME, timeout=20))

    assert not isinstance(caught.value, LockNotOwnedError)
    assert caught.value.lock_name == NAME


@both
@asked
def test_a_lock_that_was_released_is_a_lock_error(
    library: Library, redis_client: redis.Redis, ask: Callable[[Handle], object]
) -> None:
    lock = held(library, redis_client)
    lock.release()

    with pytest.raises(LockError) as caught:
        ask(lock)

    assert not isinstance(caught.value, LockNotOwnedError)
    assert not redis_client.exists(NAME)


@both
@asked
@spoilt
def test_a_lock_that_was_lost_is_not_owned(
    library: Library,
    redis_client: redis.Redis,
    ask: Callable[[Handle], object],
    spoil: Callable[[redis.Redis], object],
) -> None:
    lock = held(library, redis_client)
    spoil(redis_client)
    there = redis_client.get(NAME)

    with pytest.raises(LockNotOwnedError) as caught:
        ask(lock)

    assert caught.value.lock_name == NAME
    assert redis_client.get(NAME) == there


@both
def test_a_lost_lock_is_released_only_once(library: Library, redis_client: redis.Redis) -> None:
    lock = held(library, redis_client)
    redis_client.delete(NAME)
    with pytest.raises(LockNotOwnedError):
        lock.release()

    with pytest.raises(LockError) as caught:
        lock.release()

    assert not isinstance(caught.value, LockNotOwnedError)
    assert lock.acquire(blocking=False) is True


@both
def test_a_block_releases_at_its_end(library: Library, redis_client: redis.Redis) -> None:
    lock = library(redis_client, NAME, timeout=20)

    with lock as given:
        assert given.name == NAME
        assert (given.owned(), given.locked(), lock.owned()) == (True, True, True)
        assert given.extend(10) is True
        assert lock.reacquire() is True

    assert not redis_client.exists(NAME)


@both
def test_a_block_that_fails_releases_and_fails(library: Library, redis_client: redis.Redis) -> None:
    with pytest.raises(ZeroDivisionError), library(redis_client, NAME, timeout=20):
        raise ZeroDivisionError

    assert not redis_client.exists(NAME)


@both
@pytest.mark.parametrize("wait", [{"blocking": False}, {"blocking_timeout": 0.01}], ids=str)
def test_a_busy_block_is_a_lock_error_and_not_entered(
    library: Library, redis_client: redis.Redis, wait: dict[str, float]
) -> None:
    held(library, redis_client)

    with pytest.raises(LockError) as caught, library(redis_client, NAME, timeout=20, **wait):
        pytest.fail("entered")

    assert not isinstance(caught.value, LockNotOwnedError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.lock_name == NAME


@both
@spoilt
def test_leaving_the_block_of_a_lost_lock_raises(
    library: Library, redis_client: redis.Redis, spoil: Callable[[redis.Redis], object]
) -> None:
    with pytest.raises(LockNotOwnedError), library(redis_client, NAME, timeout=20):
        spoil(redis_client)


@both
@spoilt
@can_log_a_failed_release
def test_leaving_the_block_of_a_lost_lock_can_be_one_warning_instead(
    library: Library,
    redis_client: redis.Redis,
    spoil: Callable[[redis.Redis], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = library(redis_client, NAME, timeout=20, raise_on_release_error=False)

    with caplog.at_level(logging.WARNING), lock:
        spoil(redis_client)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert lock.raise_on_release_error is False
