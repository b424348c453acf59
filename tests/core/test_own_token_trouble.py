"""Tokens that callers choose, when replies are lost, late or never come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.db import transaction

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from django_setnx_lock.transactions import AT_COMMIT
from tests.core.aio.helpers import run as run_in_loop
from tests.core.helpers import ask
from tests.core.redis_py import around

if TYPE_CHECKING:
    from collections.abc import Callable


def is_swap(words: tuple[Any, ...]) -> bool:
    return words[:2] == ("EVALSHA", scripts.SWAP.sha)


def fail_after_swap(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Have ``error`` raised once, in the place of the reply to a swap that was carried out."""
    errors = [error]

    def cut(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        reply = send()
        if errors and is_swap(words):
            raise errors.pop()
        return reply

    around(client, monkeypatch, cut)


@pytest.fixture
def knowing(redis_client: redis.Redis) -> redis.Redis:
    """Give a client of a server that knows the scripts."""
    for script in (scripts.ACQUIRE, scripts.SWAP, scripts.RELEASE, scripts.CANCEL):
        redis_client.script_load(script.source)
    return redis_client


def granted(client: redis.Redis, **options: Any) -> tuple[AcquireAttempt, LockHandle]:
    turn = RedisLock(client, "lock:a", **options).attempt()
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    return turn, held


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), redis.TimeoutError("slow"), redis.ResponseError("ERR")], ids=repr
)
def test_an_interrupted_swap_leaves_no_lock_behind(
    knowing: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    lock = RedisLock(knowing, "lock:a")
    fail_after_swap(knowing, monkeypatch, error)

    with pytest.raises((KeyboardInterrupt, LockUnavailable)):
        lock.acquire(token="worker-7")

    assert not knowing.exists("lock:a")
    assert lock.held is None
    assert RedisLock(knowing, "lock:a").acquire(blocking=False, token="worker-7")


@pytest.mark.django_db(transaction=True)
def test_within_a_transaction_a_swap_that_failed_leaves_no_lock_until_its_end(
    knowing: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(knowing, "lock:a", ending=AT_COMMIT)
    fail_after_swap(knowing, monkeypatch, redis.TimeoutError("slow"))

    with transaction.atomic():
        with pytest.raises(LockUnavailable):
            lock.acquire(token="worker-7")

        assert not knowing.exists("lock:a")


@pytest.mark.usefixtures("fake_connections")
def test_in_asyncio_a_swap_that_failed_leaves_no_lock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [LockUnavailable("slow", key="a", cause="timeout")]

    call: Any = execute.call

    async def cut(io: Any, client: Any, request: Any, *args: Any, **options: Any) -> Any:
        reply = await call(io, client, request, *args, **options)
        if errors and request.script is scripts.SWAP:
            raise errors.pop()
        return reply

    monkeypatch.setattr(execute, "call", cut)

    with pytest.raises(LockUnavailable):
        run_in_loop(RedisLock(redis_client, "lock:a", ending=AT_COMMIT).aacquire(token="worker-7"))

    assert errors == []
    assert not redis_client.exists("lock:a")


def test_an_interrupted_swap_takes_nothing_from_another_with_the_same_token(
    knowing: redis.Redis,
) -> None:
    turn, held = granted(knowing)
    knowing.delete("lock:a")
    other = RedisLock(knowing, "lock:a")
    other.acquire(token="worker-7")

    with pytest.raises(LockLost):
        run(turn.replace_token(BLOCKING, held, "worker-7"))

    assert other.owned()


def test_a_swap_that_was_not_carried_out_gives_the_lock_back(
    knowing: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupted(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        if interrupts and is_swap(words):
            raise interrupts.pop()
        return send()

    around(knowing, monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        RedisLock(knowing, "lock:a").acquire(token="worker-7")

    assert not knowing.exists("lock:a")


def test_a_swap_that_is_refused_gives_the_lock_back(redis_client: redis.Redis) -> None:
    turn, held = granted(redis_client)
    redis_client.delete("{lock:a}:meta")
    redis_client.lpush("{lock:a}:meta", "x")

    with pytest.raises(LockUnavailable):
        run(turn.replace_token(BLOCKING, held, "worker-7"))

    assert not redis_client.exists("lock:a")


def test_nothing_is_renewed_by_the_random_token_while_it_is_swapped(
    knowing: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, held = granted(knowing, renew=True)
    before = WATCHDOG.forget(held.grant)
    WATCHDOG.watch(held.grant)
    meanwhile: list[bool] = []

    def note(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        meanwhile.append(WATCHDOG.forget(held.grant))
        return send()

    around(knowing, monkeypatch, note)
    run(turn.replace_token(BLOCKING, held, "worker-7"))

    assert (before, meanwhile) == (True, [False])
    assert WATCHDOG.forget(held.grant) is True


def test_every_key_still_expires(redis_client: redis.Redis) -> None:
    turn, held = granted(redis_client)
    redis_client.delete("{lock:a}:meta")

    run(turn.replace_token(BLOCKING, held, "worker-7"))

    assert redis_client.exists("{lock:a}:meta")
    assert [key for key in redis_client.keys("*") if redis_client.pttl(key) < 0] == []
