"""Locks through django-redis' SentinelClient, while three Sentinels fail over."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.core import LockHandle
from tests.processes import eventually, figure
from tests.redis.sentinels import cache_at, watched
from tests.servers import any_binary
from tests.support.locks import listeners, value_of

# What is set up takes seconds, and a vote of the Sentinels that fails is repeated 20 s later.
pytestmark = [pytest.mark.xdist_group("failover"), pytest.mark.timeout(300)]
LONGEST = 120
LEASE = 30


class Story(NamedTuple):
    """What befell callers while the primary was killed.

    Whether a lock that the replica knew of was ``kept``; what the holder was told of one that it
    never heard of; whether those who ``waited`` have what stands there; what somebody ``met`` who
    asked all the time, and the seconds until that one had a lock.
    """

    kept: bool
    loss: str
    waited: list[bool]
    met: list[Exception]
    until_granted: float


def ask_until_granted(met: list[Exception]) -> float:
    """Return when a lock was granted."""
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        try:
            with lock("asked for", blocking_timeout=0):
                return time.monotonic()
        except Exception as error:  # noqa: BLE001 - the tests look what they are
            met.append(error)
            time.sleep(0.02)
    pytest.fail("no lock was granted")


def wait_in_asyncio() -> LockHandle:
    async def work() -> LockHandle:
        held = await lock("waited for in asyncio").atake(LONGEST)
        held.handover()
        return held

    return asyncio.run(work())


@pytest.fixture(scope="module")
def story() -> Story:
    """Give what happens when the primary is killed while locks are held and waited for."""
    with (
        watched(any_binary()) as deployment,
        cache_at(deployment),
        ThreadPoolExecutor(3) as pool,
    ):
        new = deployment.replicas[0]
        at_new = new.client(db=1)
        renewed = lock("renewed", timeout=LEASE, renew=True, replicas=1).take(0)
        names = ("waited for", "waited for in asyncio")
        before = [
            lock(name, timeout=2 * LONGEST, renew=False, replicas=1).take(0) for name in names
        ]
        waiting = [pool.submit(lock("waited for").take, LONGEST), pool.submit(wait_in_asyncio)]
        eventually(lambda: listeners(deployment.primary) == 2)
        deployment.cut_off()
        forgotten = lock("forgotten", timeout=LEASE, renew=True).take(0)
        met: list[Exception] = []

        killed = time.monotonic()
        deployment.primary.kill()
        granted = pool.submit(ask_until_granted, met).result()
        until = time.monotonic() + renewed.remaining()
        eventually(lambda: time.monotonic() + renewed.remaining() > until + 0.5, 2 * LEASE)
        kept = value_of(at_new, "lock:renewed") == renewed.token and not renewed.lost
        eventually(lambda: forgotten.lost, 2 * LEASE)
        with pytest.raises(LockLost) as loss:
            forgotten.check()
        eventually(lambda: listeners(new) == 2)
        for held in before:
            held.release()
        waited = [result.result(20) for result in waiting]
        stand = [value_of(at_new, held.name) == held.token for held in waited]
        for held in (renewed, *waited):
            held.release()
    return Story(kept, str(loss.value), stand, met, granted - killed)


def test_a_lock_that_the_new_primary_knows_is_renewed_there(story: Story) -> None:
    assert story.kept


def test_a_lock_that_the_new_primary_never_heard_of_is_told_as_lost(story: Story) -> None:
    assert "its key was removed" in story.loss


def test_those_who_wait_go_on_at_the_new_primary(story: Story) -> None:
    assert story.waited == [True, True]


def test_who_asks_meanwhile_meets_the_one_error(story: Story) -> None:
    figure(f"from kill -9 of the primary to the next grant: {story.until_granted:.2f} s")

    assert {type(error) for error in story.met} == {LockUnavailable}
