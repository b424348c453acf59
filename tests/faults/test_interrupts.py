"""A caller that is interrupted while it takes a lock, or lets it go, leaves none behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from tests.faults.points import Lines, Points
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

INTERRUPTS = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit, MemoryError]
KEYS = ("lock:a", "{lock:}:index")
# Says when it starts to wait for an answer that will come too late.
TAKER = """
import sys, redis
from django_setnx_lock.core import RedisLock
client = redis.Redis(port=int(sys.argv[1]), socket_timeout=30)
client.ping()
print("waiting", flush=True)
sys.stdin.readline()
RedisLock(client, "lock:a").take(0)
"""


@pytest.fixture
def count_points(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[Points], None]:
    """Give what takes a lock, with a connection of its own, while points are counted."""

    def take(points: Points) -> None:
        client = server.client()
        with monkeypatch.context() as patched:
            points.watch(client, patched)
            RedisLock(client, "lock:a", index="{lock:}:index").take(0)

    return take


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_acquire_interrupted_anywhere_is_undone(
    server: Server, count_points: Callable[[Points], None], error: type[BaseException]
) -> None:
    # It may take a step more or less each time: whether there is an answer yet is one.
    for at in itertools.count(1):
        server.flush()
        points = Points(at, error)
        with contextlib.suppress(error):
            count_points(points)
        if len(points.passed) < at:
            break
        assert not server.client().exists(*KEYS), points.passed

    assert server.client().exists(*KEYS)
    assert {"after send_packed_command", "after read_response"} < set(points.passed)
    assert points.passed[-1] == "after read_response"


def test_without_undoing_the_interrupted_lock_would_stand_for_its_lease(
    server: Server, count_points: Callable[[Points], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seams.clean_nothing_up(monkeypatch)
    points = Points()

    def interrupt() -> None:
        if server.client().exists("lock:a"):
            raise KeyboardInterrupt
        points.meanwhile("after read_response", interrupt)

    interrupt()

    with pytest.raises(KeyboardInterrupt):
        count_points(points)

    assert server.client().exists("lock:a")


def test_a_release_interrupted_anywhere_can_be_called_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = server.client()
    at = 0
    while True:
        at += 1
        points = Points(at)
        held = RedisLock(client := server.client(), "lock:a").take(0)
        with monkeypatch.context() as patched:
            points.watch(client, patched)
            try:
                held.release()
            except KeyboardInterrupt:
                interrupted = True
            else:
                interrupted = False
        if not interrupted:
            break

        held.release()

        assert held.released
        assert not watch.exists("lock:a")
    assert {"after send_packed_command", "after read_response"} < set(points.passed)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("options", [{}, {"renew": True}], ids=["plain", "renewed"])
def test_a_block_whose_end_is_interrupted_at_any_line_lets_the_lock_go(
    real_server: RealServer, options: dict[str, Any]
) -> None:
    client, watch = real_server.client(), real_server.client()
    for at in itertools.count(1):
        block = RedisLock(client, "lock:a", **options)
        # As ``with`` does, which looks it up before the block begins.
        leave = block.__exit__
        block.__enter__()
        lines = Lines(at)
        if not lines.run(lambda: leave(None, None, None)):  # noqa: B023 - run at once
            break
        assert not watch.exists("lock:a"), lines.passed[-1]
    assert lines.surrounds_a_request


@pytest.mark.parametrize("error", INTERRUPTS)
def test_a_block_whose_end_is_interrupted_at_any_step_lets_the_lock_go(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    watch = server.client()
    at = 0
    is_interrupted = True
    while is_interrupted:
        at += 1
        points = Points(at, error)
        block = RedisLock(client := server.client(), "lock:a")
        with monkeypatch.context() as patched:
            block.__enter__()
            points.watch(client, patched)
            try:
                block.__exit__(None, None, None)
            except error:
                assert not watch.exists("lock:a"), points.passed
            else:
                is_interrupted = False
    assert {"after send_packed_command", "after read_response"} < set(points.passed)


def test_ctrl_c_in_a_real_process_leaves_no_lock(proxy: Proxy, real_server: RealServer) -> None:
    direct: redis.Redis = real_server.client()
    direct.script_load(seams.script("ACQUIRE").source)
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKER, str(proxy.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with taker:
        assert taker.stdin
        assert taker.stdout
        assert taker.stdout.readline() == "waiting\n"
        proxy.halve_replies(seams.script("ACQUIRE").sha.encode())
        taker.stdin.write("\n")
        taker.stdin.flush()
        assert proxy.holds.wait(20)
        was_taken = direct.exists("lock:a")

        taker.send_signal(signal.SIGINT)
        proxy.let_go()
        _, said = taker.communicate(timeout=20)

    assert was_taken
    assert "KeyboardInterrupt" in said
    assert not direct.exists("lock:a")
