"""Holders that were killed are told from those that live, which are never taken for dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, State
from tests.processes import Stopwatch, eventually, figure
from tests.servers import RealServer, any_binary
from tests.support import seams
from tests.support.locks import PREFIX
from tests.support.seams import process_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

ROOT = Path(__file__).parents[2]
PROCESSES = process_key(PREFIX)
# So many times faster than it is, for what need not be seen at its real length.
FASTER = 5

BEGINNING = """
import asyncio, os, sys, time, redis
from django_setnx_lock.core import RedisLock
from tests.support import seams
seams.say_faster(float(sys.argv[2]))
client = redis.Redis(port=int(sys.argv[1]))
def lock(name, client=client, **options):
    return RedisLock(client, name, **seams.says_alive("lock:"), **options)
"""
HOLDING = """
held = [lock("lock:long", timeout=300).take(), lock("lock:renewed", timeout=300, renew=True).take()]
print("held", flush=True)
time.sleep(120)
"""
HOLDING_BRIEFLY = """
held = lock("lock:renewed", timeout=3, renew=True).take()
print("held", flush=True)
time.sleep(120)
"""
IN_ASYNCIO = """
async def main():
    held = [
        await lock("lock:long", timeout=300).atake(),
        await lock("lock:renewed", timeout=300, renew=True).atake(),
    ]
    print("held", flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""
FORKING = """
held = [lock("lock:long", timeout=300).take(), lock("lock:renewed", timeout=300, renew=True).take()]
time.sleep(1.5)
if os.fork() == 0:
    held = lock("lock:child", timeout=300).take()
    print("held", os.getpid(), flush=True)
time.sleep(120)
"""
ON_TWO_SERVERS = """
other = redis.Redis(port=int(sys.argv[3]))
held = [lock("lock:long", timeout=300).take(), lock("lock:long", other, timeout=300).take()]
print("held", flush=True)
time.sleep(120)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Give what starts a holder, which is killed in the end; it holds its locks by then."""
    with ExitStack() as at_end:

        def start(code: str, *ports: int, faster: float = 1) -> subprocess.Popen[str]:
            first, *others = map(str, ports)
            arguments = [first, str(faster), *others]
            process = subprocess.Popen(
                [sys.executable, "-c", BEGINNING + code, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            at_end.callback(process.wait)
            at_end.callback(process.kill)
            assert process.stdout is not None
            at_end.callback(process.stdout.close)
            told = process.stdout.readline()
            assert told.startswith("held")
            process.told = told.split()  # type: ignore[attr-defined]  # for the test
            return process

        yield start


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what looks at the locks count as fast as the holders do."""
    seams.look_faster(monkeypatch, FASTER)


def states(client: redis.Redis, *keys: str) -> list[State]:
    inspector = Inspector(client, PREFIX)
    return [one.state for one in inspector.get_each([f"lock:{key}" for key in keys])]


def watch_for(client: redis.Redis, seconds: float, *keys: str) -> set[State]:
    """Return the states that the locks are seen in during that time."""
    seen: set[State] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen.update(states(client, *keys))
        time.sleep(0.05)
    return seen


def test_a_killed_holder_is_not_renewed_within_one_and_a_half_intervals(
    real_server: RealServer, start: Callable[..., subprocess.Popen[str]]
) -> None:
    client = real_server.client()
    holder = start(HOLDING_BRIEFLY, real_server.port)
    assert watch_for(client, 4, "renewed") == {State.HELD}

    holder.kill()
    with Stopwatch() as watch:
        eventually(lambda: states(client, "renewed") == [State.NOT_RENEWED])

    figure(f"renewed every second: not renewed {watch.seconds:.2f} s after it was killed")
    assert watch.seconds <= 1.5 + 0.5


@pytest.mark.matrix
def test_a_killed_holder_is_gone_within_15_seconds_however_long_its_lease(
    real_server: RealServer, start: Callable[..., subprocess.Popen[str]]
) -> None:
    client = real_server.client()
    holder = start(HOLDING, real_server.port)
    assert watch_for(client, 5, "long", "renewed") == {State.HELD}

    holder.kill()
    with Stopwatch() as watch:
        eventually(lambda: states(client, "long", "renewed") == [State.GONE] * 2, 40)

    figure(f"lease of 300 s: gone {watch.seconds:.1f} s after it was killed")
    assert watch.seconds < 15 + 0.5


@pytest.mark.matrix
@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize("code", [HOLDING, IN_ASYNCIO], ids=["thread", "asyncio"])
def test_a_living_holder_is_never_gone(
    real_server: RealServer, start: Callable[..., subprocess.Popen[str]], code: str
) -> None:
    client = real_server.client()
    holder = start(code, real_server.port, faster=FASTER)

    assert watch_for(client, 4, "long", "renewed") == {State.HELD}

    holder.kill()
    eventually(lambda: states(client, "long", "renewed") == [State.GONE] * 2)


@pytest.mark.matrix
@pytest.mark.usefixtures("faster")
def test_a_forked_child_does_not_keep_the_locks_of_its_dead_parent_alive(
    real_server: RealServer, start: Callable[..., subprocess.Popen[str]]
) -> None:
    client = real_server.client()
    parent = start(FORKING, real_server.port, faster=FASTER)
    assert watch_for(client, 4, "long", "child") == {State.HELD}

    try:
        parent.kill()
        eventually(lambda: states(client, "long", "child") == [State.GONE, State.HELD])
        assert watch_for(client, 2, "child") == {State.HELD}
    finally:
        os.kill(int(parent.told[1]), 9)  # type: ignore[attr-defined]  # set by start


@pytest.mark.usefixtures("faster")
def test_a_holder_of_locks_on_two_servers_lives_on_both(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    with RealServer(any_binary()) as one, RealServer(any_binary()) as other:
        start(ON_TWO_SERVERS, one.port, other.port, faster=FASTER)
        end = time.monotonic() + 4

        while time.monotonic() < end:
            assert [states(server.client(), "long") for server in (one, other)] == [
                [State.HELD],
                [State.HELD],
            ]
            time.sleep(0.05)
