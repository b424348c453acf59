"""Holders that end without releasing: killed, or forked away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from tests.processes import Stopwatch, eventually, figure, may_be_late
from tests.servers import server_kinds
from tests.support.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import RealServer

REAL = pytest.mark.real
LEASE = 1.0

HOLDING = """
import sys, time, redis
from django_setnx_lock.core import RedisLock
RedisLock(redis.Redis(port=int(sys.argv[1])), "lock:a", timeout=float(sys.argv[2])).acquire()
print("held", flush=True)
time.sleep(60)
"""

# What a forked child may do with its parent's lock: nothing.
FORKING = """
import json, os, sys, redis
from django_setnx_lock.core import RedisLock
from django_setnx_lock import LockError

def said(work):
    try:
        return repr(work())
    except LockError as error:
        return f"{type(error).__name__}: {error}"

lock = RedisLock(redis.Redis(port=int(sys.argv[1])), "lock:a")
told = {}
with lock as held:
    readable, writable = os.pipe()
    if os.fork() == 0:
        told = {
            "handle": {
                "is_here": said(lambda: held.is_here),
                "owned": said(held.owned),
                "remaining": said(held.remaining),
                "check": said(held.check),
                "extend": said(lambda: held.extend(600)),
                "reacquire": said(held.reacquire),
                "release": said(held.release),
            },
            "lock": {
                "held": said(lambda: lock.held),
                "fence": said(lambda: lock.fence),
                "token": said(lambda: lock.token),
                "owned": said(lock.owned),
                "release": said(lock.release),
                "locked": said(lock.locked),
                "acquire": said(lambda: lock.acquire(blocking=False)),
            },
        }
        os.write(writable, json.dumps(told).encode())
        child = True
    else:
        os.wait()
        told = json.loads(os.read(readable, 1 << 16))
        child = False
        told["parent"] = said(held.owned)
        told["ttl"] = lock.client.pttl("lock:a")
# The child leaves the block too.
if child:
    os._exit(0)
told["after"] = said(lock.locked)
print(json.dumps(told))
"""

LEAVING = """
import os, sys, redis
from django_setnx_lock.core import RedisLock
client = redis.Redis(port=int(sys.argv[1]))
lock = RedisLock(client, "lock:a")
with lock as held:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print(held.owned())
if not child:
    os._exit(0)
"""


@contextlib.contextmanager
def holder(server: RealServer, lease: float) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds ``lock:a``."""
    command = [sys.executable, "-c", HOLDING, str(server.port), str(lease)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def forked(server: RealServer, script: str) -> str:
    """Return what ``script`` prints, which forks; run apart from the tests' own threads."""
    # Forking with threads about is deprecated, and hiredis or coverage may have some.
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        script,
        str(server.port),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@may_be_late(0.15)
@REAL
def test_a_killed_holder_is_followed_soon_after_the_end_of_its_lease(
    server: RealServer, late: float
) -> None:
    client = server.client()
    with holder(server, LEASE) as process, ThreadPoolExecutor(1) as pool:
        result = pool.submit(RedisLock(client, "lock:a").take, 10)
        eventually(lambda: client.zcard("{lock:a}:waiters"))

        process.send_signal(signal.SIGKILL)
        process.wait(10)
        left = client.pttl("lock:a") / 1000
        with Stopwatch() as watch:
            held = result.result(10)
        after = watch.seconds - left

    figure(f"a holder killed with -9 was followed {after * 1000:.0f} ms after its lease's end")
    assert left > 0
    assert held.owned()
    assert watch.passed - left > -0.05
    assert after < late


@REAL
def test_who_was_given_the_lock_has_it_for_its_lease_however_short(server: RealServer) -> None:
    client = server.client()
    held = RedisLock(client, "lock:a").take()
    waiter = Waiter(RedisLock(client, "lock:a", 0.2), client)
    held.release()
    waiter.held()

    # Shorter than it was given for. Else nobody follows at its end, should it be killed.
    assert client.pttl("lock:a") <= 200


@REAL
def test_a_killed_holder_keeps_others_out_until_its_lease_ends(server: RealServer) -> None:
    with holder(server, 30) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

        assert RedisLock(server.client(), "lock:a").acquire(blocking_timeout=0.2) is False


@pytest.fixture(scope="module")
def told(running_server: Callable[[str], RealServer]) -> Any:
    server = running_server(server_kinds()[0])
    server.flush()
    return json.loads(forked(server, FORKING))


@pytest.mark.xdist_group("told")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_owns_nothing(told: Any) -> None:
    refused = "belongs to process"

    handle = told["handle"]
    assert handle["is_here"] == handle["owned"] == "False"
    assert handle["remaining"] == "0.0"
    for what in ("check", "extend", "reacquire", "release"):
        assert refused in handle[what], what


@pytest.mark.xdist_group("told")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_lock_of_a_forked_child_is_not_held_there(told: Any) -> None:
    lock = told["lock"]

    assert lock["held"] == lock["fence"] == lock["token"] == "None"
    assert lock["owned"] == "False"
    assert "not held here" in lock["release"]
    assert lock["locked"] == "True"
    assert lock["acquire"] == "False"


@pytest.mark.xdist_group("told")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_parent_of_a_forked_child_keeps_its_lock_as_it_was(told: Any) -> None:
    assert told["parent"] == "True"
    assert told["ttl"] <= 30_000
    assert told["after"] == "False"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_that_leaves_the_block_releases_nothing(real_server: RealServer) -> None:
    assert forked(real_server, LEAVING) == "True\n"
    assert not real_server.client().exists("lock:a")
