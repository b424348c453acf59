"""An interrupt anywhere in having a lock again, or in letting it go, leaks no count.

A share sends nothing, so that there is no step of a connection to be interrupted at: every line
of this package is. Only the first line of ``__exit__`` is left out: what comes before it, no
Python code can guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import RedisLock
from tests.faults.points import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.servers import RealServer


def enter_and_leave(lock: RedisLock) -> None:
    with lock:
        pass


def acquire_and_release(lock: RedisLock) -> None:
    lock.acquire()
    lock.release()


def take(lock: RedisLock) -> None:
    lock.take()


def standing(client: redis.Redis, work: Callable[[RedisLock], None]) -> Iterator[str]:
    """Interrupt ``work`` at each line in turn, within a lock that is then let go while the
    interrupt is on its way up. Give the lines where that left the lock standing.
    """
    at, interrupted = 0, True
    while interrupted:
        at += 1
        lines = Lines(at)
        outer = RedisLock(client, "lock:a", reentrant=True, blocking=False).take()
        inner = RedisLock(client, "lock:a", reentrant=True, blocking=False)
        on_its_way: list[BaseException] = []

        def run(inner: RedisLock = inner, on_its_way: list[BaseException] = on_its_way) -> None:
            try:
                work(inner)
            except KeyboardInterrupt as error:
                on_its_way.append(error)
                raise

        interrupted = lines.run(run)
        if work is acquire_and_release and inner.held is not None:
            # It was not released: the caller still has it, and can do so again.
            inner.release()
        # The interrupt may not let go what the other handle holds.
        outer.check()
        outer.release()
        if client.exists("lock:a"):
            yield lines.passed[-1]
            client.delete("lock:a")
    # It sends nothing.
    assert lines.passed


def test_no_interrupt_leaves_a_lock_that_could_be_had_again(real_server: RealServer) -> None:
    client, at, interrupted = real_server.client(), 0, True
    # What is made but once is not counted.
    enter_and_leave(RedisLock(client, "lock:b"))
    while interrupted:
        at += 1
        lines = Lines(at)
        lock = RedisLock(client, "lock:a", reentrant=True, blocking=False)
        interrupted = lines.run(lambda: enter_and_leave(lock))  # noqa: B023 - run at once
        assert not client.exists("lock:a"), lines.passed[-1]
    assert lines.surrounds_a_request


@pytest.mark.parametrize("work", [enter_and_leave, acquire_and_release, take])
def test_no_interrupt_leaks_a_count(
    real_server: RealServer, work: Callable[[RedisLock], None]
) -> None:
    assert list(standing(real_server.client(), work)) == []
