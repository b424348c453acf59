"""Renewals where an answer does not come, and as the process ends."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from tests.processes import eventually, figure
from tests.support import seams
from tests.support.renewals import IS_RENEWED, is_renewed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

# Long enough for a machine that is doing something else as well.
LEASE = 3.0


@pytest.fixture(autouse=True)
def fresh_renewals() -> Iterator[None]:
    """Begin without the thread that earlier tests have left, and leave none."""
    seams.end_renewals()
    yield
    seams.end_renewals()


def renewed(client: Any, name: str = "lock:a", timeout: float = LEASE, **options: Any) -> RedisLock:
    return RedisLock(client, name, timeout, **{"renew": True, **options})


def test_a_renewal_without_an_answer_delays_none_of_a_shorter_lease(proxy: Proxy) -> None:
    client = proxy.client(socket_timeout=20)
    long, short = [renewed(client, f"lock:{lease}", lease).take(0) for lease in (60, 3)]
    assert is_renewed(short)
    # Its connection has died, and nothing says so.
    proxy.hold(b"lock:60", once=True)
    seams.renew_now(long)
    eventually(proxy.holds.is_set)

    assert is_renewed(short)

    proxy.let_go()
    assert is_renewed(long)
    for held in (short, long):
        held.release()


def ran(server: RealServer, script: str) -> str:
    """Return what ``script`` prints, which runs in a process of its own."""
    command = [sys.executable, "-c", script, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


ENDING = """
import sys, time, redis
from django_setnx_lock.core import RedisLock
client = redis.Redis.from_url(sys.argv[1])
held = RedisLock(client, "lock:a", 30, renew=True).take(0)
print(time.time(), flush=True)
"""


def test_a_lock_that_is_renewed_delays_no_exit(real_server: RealServer) -> None:
    ended = float(ran(real_server, ENDING))

    took = time.time() - ended
    figure(f"exit with a renewed lock: {took * 1000:.0f} ms")
    # Not until the next renewal, in ten seconds.
    assert took < 8
    assert real_server.client().exists("lock:a")


AT_EXIT = (
    IS_RENEWED
    + """
import atexit, sys, time
import redis
from django_setnx_lock.core import RedisLock
client = redis.Redis.from_url(sys.argv[1])
def mine(name):
    return RedisLock(client, name, 3, renew=True)
@atexit.register
def last():
    with mine("lock:last") as held:
        assert is_renewed(held)
        held.check()
        print("kept")
with mine("lock:first"):
    # The thread that renews has begun.
    pass
"""
)


def test_a_lock_taken_at_the_exit_of_the_process_is_renewed(real_server: RealServer) -> None:
    assert ran(real_server, AT_EXIT) == "kept\n"
