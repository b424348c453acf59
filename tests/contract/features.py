"""What a lock can do, each as one small use of it: the table in docs/redis.md says where."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, MultiLock, Outcome, State
from tests.processes import eventually
from tests.support import seams
from tests.support.drivers import growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import RedisLock

T = TypeVar("T")
PREFIX = "lock:"


def in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(20)


class Kind(Protocol):
    """One protocol at one kind of servers. ``polls``: whether those who wait ask by themselves."""

    polls: bool

    @property
    def client(self) -> Any:
        """A client of redis-py that a lock can be looked at with."""

    def requests(self) -> int:
        """Return how many requests for locks the servers have had."""

    def sleepers(self) -> int:
        """Return how many wait to be woken by a server."""

    def lock(self, name: str = "lock:a", **options: Any) -> RedisLock:
        """Make a lock."""


def excludes(kind: Kind) -> None:
    with kind.lock(), pytest.raises(LockBusy):
        kind.lock().take(0)
    kind.lock().take(0).release()


def renews(kind: Kind) -> None:
    with kind.lock(timeout=1.5, renew=True) as held:
        eventually(growth(held))
        held.check()


def extends(kind: Kind) -> None:
    with kind.lock(timeout=10) as held:
        held.extend(20)
        longer = held.remaining()
        held.extend(5, replace_ttl=True)
        held.reacquire()
        assert longer > 25
        assert held.remaining() > 25


def finds_out_that_it_is_lost(kind: Kind) -> None:
    held = kind.lock(timeout=0.8).take(5)
    with kind.lock(), pytest.raises(LockLost):
        held.release()


def waits(kind: Kind) -> None:
    with ThreadPoolExecutor(1) as pool:
        held = kind.lock().take(0)
        waiting = pool.submit(lambda: kind.lock().take(20))
        assert not waiting.done()
        held.release()
        waiting.result(20).release()


def sleeps_while_it_waits(kind: Kind) -> None:
    with ThreadPoolExecutor(1) as pool:
        held = kind.lock().take(0)
        waiting = pool.submit(lambda: kind.lock().take(20))
        # What is counted is what is sent while nothing happens, so that there is no event.
        time.sleep(0.8)
        before = kind.requests()
        time.sleep(0.5)
        after = kind.requests()
        held.release()
        waiting.result(20).release()
    assert after - before <= 1


def queued(kind: Kind) -> int:
    return Inspector(kind.client, PREFIX, use_index=False).get("lock:a").waiting


def comes_in_order(kind: Kind) -> None:
    """Whoever came first has it first."""
    order: list[int] = []

    def work(number: int) -> None:
        with kind.lock(blocking_timeout=20):
            order.append(number)

    with ThreadPoolExecutor(4) as pool:
        with kind.lock():
            jobs = []
            for number in range(4):
                jobs.append(pool.submit(work, number))
                eventually(lambda: queued(kind) == len(jobs), seconds=1)
            # Who does not listen yet when its turn comes is passed over.
            eventually(lambda: kind.polls or kind.sleepers() == len(jobs))
        for job in jobs:
            job.result(20)
    assert order == list(range(4))


def follows_a_killed_holder(kind: Kind) -> None:
    kind.lock(timeout=0.8).take(5)
    kind.lock().take(20).release()


def has_a_fence(kind: Kind) -> None:
    first = kind.lock().take(0)
    first.release()
    second = kind.lock().take(0)
    second.release()
    assert second.fence > first.fence


def tells_the_holder(kind: Kind) -> None:
    with kind.lock(label="view pay", user="ann"), pytest.raises(LockBusy) as busy:
        kind.lock().take(0)
    assert busy.value.holder
    assert busy.value.holder.user == "ann"


def is_listed(kind: Kind) -> None:
    with kind.lock(label="view pay"):
        page = Inspector(kind.client, PREFIX, use_index=False, protocol="timestamp-ms").find()
    assert [(one.key, one.state) for one in page.locks] == [("a", State.HELD)]
    assert page.locks[0].holder


def is_released_by_force(kind: Kind) -> None:
    look = Inspector(kind.client, PREFIX, use_index=False)
    held = kind.lock().take(0)
    outcome = look.force_release("lock:a", look.get("lock:a").fingerprint, by="joe")
    assert outcome is Outcome.RELEASED
    with pytest.raises(LockLost, match="joe"):
        held.check()


def is_had_again(kind: Kind) -> None:
    with kind.lock(reentrant=True) as outer, kind.lock(reentrant=True) as inner:
        assert inner.token == outer.token
        assert not in_thread(lambda: kind.lock(reentrant=True).acquire(blocking=False))


def works_in_asyncio(kind: Kind) -> None:
    async def work() -> None:
        async with kind.lock() as held:
            await held.acheck()
            assert not await kind.lock().aacquire(blocking=False)

    asyncio.run(asyncio.wait_for(work(), 20))


def is_kept_for_its_min_hold(kind: Kind) -> None:
    with kind.lock(min_hold=60):
        pass
    with pytest.raises(LockBusy):
        kind.lock().take(0)


def asks_replicas(kind: Kind) -> None:
    with pytest.raises(LockUnavailable, match="replicas"):
        # There are none so many.
        kind.lock(replicas=9, replica_timeout=0.05).take(0)
    kind.lock().take(0).release()


def takes_a_chosen_token(kind: Kind) -> None:
    mine = kind.lock()
    assert mine.acquire(token="worker-7")
    assert kind.client.get("lock:a") in (b"worker-7", "worker-7")
    mine.release()


def excludes_redis_py(kind: Kind) -> None:
    theirs = kind.client.lock("lock:a", timeout=10)
    with kind.lock():
        assert not theirs.acquire(blocking=False)
    assert theirs.acquire(blocking=False)
    with pytest.raises(LockError):
        kind.lock().take(0)
    theirs.release()


def takes_each_of_several(kind: Kind) -> None:
    """As admin actions do."""
    with kind.lock("lock:b"):
        taken = seams.take_each([kind.lock(f"lock:{letter}") for letter in "abc"])
    assert [one.held is not None for one in taken] == [True, False, True]
    assert seams.release_each([one.held for one in taken if one.held]) == []


def takes_several_keys(kind: Kind) -> None:
    """All of them or none."""
    with kind.lock("lock:b") as other:
        with pytest.raises(LockBusy):
            several(kind).take(0)
        assert not kind.lock("lock:c").locked()
        assert not kind.lock("lock:a").locked()
        assert other.owned()
    with several(kind) as held:
        assert sorted(held) == ["lock:a", "lock:b", "lock:c"]


def takes_them_in_one_trip(kind: Kind) -> None:
    several(kind).take(0).release()
    before = kind.requests()
    held = several(kind).take(0)
    after = kind.requests()
    held.release()
    assert after - before == 1


def several(kind: Kind) -> MultiLock:
    return MultiLock.of([kind.lock(f"lock:{letter}") for letter in "cab"])


def has_readers(kind: Kind) -> None:
    with kind.lock(shared=True), kind.lock(shared=True), pytest.raises(LockBusy):
        kind.lock().take(0)


def has_permits(kind: Kind) -> None:
    with kind.lock(limit=2), kind.lock(limit=2), pytest.raises(LockBusy):
        kind.lock(limit=2).take(0)


def is_had_again_by_a_child(kind: Kind) -> None:
    """As by a command under with_lock."""
    with kind.lock() as outer, seams.started_under(outer):
        # Another thread does not hold it by itself.
        token = in_thread(lambda: kind.lock(reentrant=True).take(0).token)
    assert token == outer.token


FEATURES: dict[str, Callable[[Kind], None]] = {
    "excludes others": excludes,
    "renewed in the background": renews,
    "`extend()`, `reacquire()`": extends,
    "a loss is found": finds_out_that_it_is_lost,
    "waits until it is free": waits,
    "sleeps while it waits": sleeps_while_it_waits,
    "first come, first served": comes_in_order,
    "a killed holder is followed": follows_a_killed_holder,
    "fencing number": has_a_fence,
    "holder record": tells_the_holder,
    "admin page": is_listed,
    "force-release": is_released_by_force,
    "reentrant": is_had_again,
    "had again under `with_lock`": is_had_again_by_a_child,
    "asyncio": works_in_asyncio,
    "`min_hold`": is_kept_for_its_min_hold,
    "`replicas`": asks_replicas,
    "readers": has_readers,
    "permits": has_permits,
    "several keys": takes_several_keys,
    "in one round trip": takes_them_in_one_trip,
    "admin actions": takes_each_of_several,
    "`acquire(token=…)`": takes_a_chosen_token,
    "excludes redis-py's lock": excludes_redis_py,
}
