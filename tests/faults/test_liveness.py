"""Holders that were killed are told from those that live, which are never taken for dead."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import Inspector, RedisLock, State
from tests.processes import Stopwatch, eventually, figure
from tests.servers import RealServer, any_binary
from tests.support import seams
from tests.support.children import Child, child
from tests.support.drivers import DRIVERS, Driver, Face, Threads
from tests.support.locks import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

# So many times faster than it is, for what need not be seen at its real length.
FASTER = 5


def lock(port: int, key: str, timeout: float = 300) -> RedisLock:
    client, alive = redis.Redis(port=port), seams.says_alive(PREFIX)
    return RedisLock(client, f"lock:{key}", timeout, renew=key == "renewed", **alive)


@contextmanager
def holding(
    *servers: RealServer,
    keys: tuple[str, ...] = ("long", "renewed"),
    timeout: float = 300,
    faster: float = 1,
    driver: Driver = Threads(),  # noqa: B008 - it has no state
) -> Iterator[Child]:
    """Have a process hold locks on each of the servers."""

    def work(say: Any) -> None:
        seams.say_faster(faster)
        locks = [lock(server.port, key, timeout) for server in servers for key in keys]

        async def hold() -> None:
            held = [await Face(one, driver).take(0) for one in locks]
            say(len(held))
            await driver.sleep(60)

        driver.run(hold())

    with child(work) as process:
        assert process.hear() == len(servers) * len(keys)
        yield process


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what looks at the locks count as fast as the holders do."""
    seams.look_faster(monkeypatch, FASTER)


def states(server: RealServer, *keys: str) -> list[State]:
    inspector = Inspector(server.client(), PREFIX)
    return [one.state for one in inspector.get_each([f"lock:{key}" for key in keys])]


def watch_for(server: RealServer, seconds: float, *keys: str) -> set[State]:
    """Return the states that the locks are seen in during that time."""
    seen: set[State] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen.update(states(server, *keys))
        time.sleep(0.05)
    return seen


def test_a_killed_holder_is_not_renewed_within_one_and_a_half_intervals(
    real_server: RealServer,
) -> None:
    with holding(real_server, keys=("renewed",), timeout=3) as holder:
        assert watch_for(real_server, 4, "renewed") == {State.HELD}

        holder.kill()
        with Stopwatch() as watch:
            eventually(lambda: states(real_server, "renewed") == [State.NOT_RENEWED])

    figure(f"renewed every second: not renewed {watch.seconds:.2f} s after it was killed")
    assert watch.seconds <= 1.5 + 0.5


@pytest.mark.matrix
def test_a_killed_holder_is_gone_within_15_seconds_however_long_its_lease(
    real_server: RealServer,
) -> None:
    with holding(real_server) as holder:
        assert watch_for(real_server, 5, "long", "renewed") == {State.HELD}

        holder.kill()
        with Stopwatch() as watch:
            eventually(lambda: states(real_server, "long", "renewed") == [State.GONE] * 2, 40)

    figure(f"lease of 300 s: gone {watch.seconds:.1f} s after it was killed")
    assert watch.seconds < 15 + 0.5


@pytest.mark.matrix
@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_living_holder_is_never_gone(real_server: RealServer, driver: Driver) -> None:
    with holding(real_server, faster=FASTER, driver=driver) as holder:
        assert watch_for(real_server, 4, "long", "renewed") == {State.HELD}

        holder.kill()
        eventually(lambda: states(real_server, "long", "renewed") == [State.GONE] * 2)


@pytest.mark.matrix
@pytest.mark.usefixtures("faster")
def test_a_forked_child_does_not_keep_the_locks_of_its_dead_parent_alive(
    real_server: RealServer,
) -> None:
    def work(say: Any) -> None:
        seams.say_faster(FASTER)
        held = [lock(real_server.port, "long").take(0)]
        time.sleep(1.5)
        pid = os.fork()
        if pid == 0:
            held = [lock(real_server.port, "child").take(0)]
            say(os.getpid())
        time.sleep(60)
        assert held

    with child(work) as parent:
        forked = parent.hear()
        try:
            assert watch_for(real_server, 4, "long", "child") == {State.HELD}
            parent.kill()
            eventually(lambda: states(real_server, "long", "child") == [State.GONE, State.HELD])
            assert watch_for(real_server, 2, "child") == {State.HELD}
        finally:
            os.kill(forked, signal.SIGKILL)


@pytest.mark.usefixtures("faster")
def test_a_holder_of_locks_on_two_servers_lives_on_both(real_server: RealServer) -> None:
    with (
        RealServer(any_binary()) as other,
        holding(real_server, other, keys=("long",), faster=FASTER),
    ):
        # Longer than the first lasts, which is said after a second at most: three.
        end = time.monotonic() + 6
        while time.monotonic() < end:
            for server in (real_server, other):
                assert states(server, "long") == [State.HELD]
            time.sleep(0.05)
