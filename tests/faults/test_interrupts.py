"""A caller that is interrupted while it takes a lock leaves none behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import scripts
from django_setnx_lock.core.lock import RedisLock
from django_setnx_lock.core.turn import Turn
from tests.faults.points import Points
from tests.processes import eventually

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
from django_setnx_lock.core.lock import RedisLock
client = redis.Redis(port=int(sys.argv[1]), socket_timeout=30)
client.ping()
print("asking", flush=True)
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


def all_points(server: Server, take: Callable[[Points], None]) -> list[str]:
    whole = Points()
    take(whole)
    return whole.passed


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_acquire_interrupted_anywhere_is_undone(
    server: Server, count_points: Callable[[Points], None], error: type[BaseException]
) -> None:
    passed = all_points(server, count_points)

    for at in range(1, len(passed) + 1):
        server.flush()
        with pytest.raises(error):
            count_points(Points(at, error))
        assert not server.client().exists(*KEYS), passed[:at]

    assert passed[-1] == "after read_response"


def test_without_undoing_the_interrupted_lock_would_stand_for_its_lease(
    server: Server, count_points: Callable[[Points], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = all_points(server, count_points)
    server.flush()
    monkeypatch.setattr(Turn, "leave", lambda self: None)

    with pytest.raises(KeyboardInterrupt):
        count_points(Points(len(passed)))

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
    assert at > 4


def test_ctrl_c_in_a_real_process_leaves_no_lock(proxy: Proxy, real_server: RealServer) -> None:
    direct: redis.Redis = real_server.client()
    direct.script_load(scripts.ACQUIRE.source)
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKER, str(proxy.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with taker:
        assert taker.stdout
        assert taker.stdout.readline() == "asking\n"
        proxy.delay_replies(1)
        eventually(lambda: direct.exists("lock:a"))

        proxy.delay_replies(0)
        taker.send_signal(signal.SIGINT)
        _, said = taker.communicate(timeout=20)

    assert "KeyboardInterrupt" in said
    assert not direct.exists("lock:a")
