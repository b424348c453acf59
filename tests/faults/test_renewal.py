"""Renewal on a real server: through what it goes on, and how soon a loss is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockLost
from django_setnx_lock.core import RedisLock
from tests.processes import eventually, figure
from tests.servers import ONCE
from tests.support import seams
from tests.support.renewals import IS_RENEWED, end_of, is_renewed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

REAL = pytest.mark.real
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
# Long enough for a machine that is doing something else as well.
LEASE = 3.0


@pytest.fixture(autouse=True)
def fresh_renewals() -> None:
    """End the thread that earlier tests have left, and with it its connections."""
    seams.end_renewals()


def renewed(client: Any, name: str = "lock:a", timeout: float = LEASE, **options: Any) -> RedisLock:
    return RedisLock(client, name, timeout, **{"renew": True, **options})


@REAL
def test_a_pool_that_others_have_emptied_delays_no_renewal(server: RealServer) -> None:
    pool = redis.ConnectionPool(port=server.port, max_connections=2)
    client = redis.Redis(connection_pool=pool)
    held = renewed(client).take(0)
    # Subscriptions keep their connections.
    subscriptions = [client.pubsub() for _ in range(2)]  # type: ignore[no-untyped-call]  # redis-py's
    for one in subscriptions:
        one.subscribe("news")

    with pytest.raises(redis.exceptions.ConnectionError, match="Too many connections"):
        client.ping()
    kept = is_renewed(held)

    assert kept
    for one in subscriptions:
        one.close()
    held.release()
    pool.disconnect()


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client past the proxy, of a server that knows the scripts."""
    client = real_server.client()
    for name in ("ACQUIRE", "RENEW", "RELEASE"):
        client.script_load(seams.script(name).source)
    return client


def test_a_renewal_whose_reply_was_cut_off_is_sent_again(proxy: Proxy, direct: redis.Redis) -> None:
    held = renewed(proxy.client()).take(0)
    dropped = proxy.drop_next_reply(seams.script("RENEW").sha.encode())
    started = time.monotonic()

    kept = is_renewed(held)

    figure(f"a reply cut off: renewed after {(time.monotonic() - started) * 1000:.0f} ms all told")
    assert dropped.is_set()
    assert kept
    there = direct.pttl("lock:a") / 1000
    assert held.remaining() <= there + 0.002


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


@REAL
@pytest.mark.parametrize("renew", [True, False], ids=["renewed", "control: not renewed"])
def test_a_holder_whose_server_stands_still_hears_of_the_loss_before_it_goes_on(
    server: RealServer, renew: bool
) -> None:
    heard: list[float] = []
    lock = renewed(
        server.client(), timeout=1, renew=renew, on_lost=lambda held: heard.append(time.monotonic())
    )
    held = lock.take(0)
    deadline = end_of(held)
    server.pause()
    try:
        eventually(lambda: held.lost)
        is_known = held.lost
        if renew:
            eventually(lambda: heard)
    finally:
        server.resume()

    assert is_known
    if renew:
        figure(f"server paused: heard {(heard[0] - deadline) * 1000:.0f} ms after the deadline")
        assert heard[0] >= deadline
        with pytest.raises(LockLost, match="could not be renewed before its lease ended"):
            held.check()


def test_a_server_that_comes_back_empty_is_a_loss_at_the_next_renewal(
    real_server: RealServer,
) -> None:
    heard: list[LockHandle] = []
    held = renewed(real_server.client(retry=ONCE), on_lost=heard.append).take(0)
    assert is_renewed(held)
    real_server.restart()

    assert not is_renewed(held)

    eventually(lambda: heard == [held])
    with pytest.raises(LockLost, match="its key was removed"):
        held.check()


# Takes the lock, says so, and when told to go on what it knows of it.
STOPPING = """
import sys, threading, time, redis
from django_setnx_lock import LockLost
from django_setnx_lock.core import RedisLock
client = redis.Redis(port=int(sys.argv[1]))
heard = threading.Event()
lock = RedisLock(client, "lock:a", 1, renew=True, on_lost=lambda held: heard.set())
held = lock.take(0)
print("held", flush=True)
sys.stdin.readline()
was_lost = held.lost
started = time.monotonic()
print(was_lost, heard.wait(10), f"{(time.monotonic() - started) * 1000:.0f}", flush=True)
try:
    held.release()
except LockLost as error:
    print(error, flush=True)
"""


@REAL
def test_a_holder_that_was_stopped_past_its_lease_knows_at_once(server: RealServer) -> None:
    client = server.client()
    command = [sys.executable, "-c", STOPPING, str(server.port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        eventually(lambda: not client.exists("lock:a"))
        following = RedisLock(client, "lock:a").take(0)
        holder.stdin.write("\n")
        holder.stdin.flush()

        holder.send_signal(signal.SIGCONT)
        was_lost, heard, took = holder.stdout.readline().split()
        reason = holder.stdout.readline()
        holder.wait(10)

    figure(f"stopped and continued: on_lost was called within {took} ms")
    assert (was_lost, heard) == ("True", "True")
    assert "lock:a" in reason
    following.check()


def ran(server: RealServer, script: str, *arguments: str) -> str:
    """Return what ``script`` prints, which runs in a process of its own."""
    # Forking with threads about is deprecated, and hiredis or coverage may have some.
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]
    command = [*python, "-c", script, str(server.port), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Forks while a lock is held and renewed. The child takes one of its own.
FORKING = (
    IS_RENEWED
    + """
import json, os, sys, threading, time, redis
port = int(sys.argv[1])
at_fork = []
os.register_at_fork(before=lambda: at_fork.append(threading.active_count()))
if "unhooked" in sys.argv:
    os.register_at_fork = lambda **hooks: None
from django_setnx_lock.core import RedisLock
from tests.support.renewals import threads

with RedisLock(redis.Redis(port=port), "lock:a", 3, renew=True) as held:
    told = {"renewed before": is_renewed(held)}
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        mine = {"threads": len(threads())}
        own = RedisLock(redis.Redis(port=port), "lock:b", 3, renew=True).take(0)
        mine["own is renewed"] = is_renewed(own)
        mine["threads then"] = len(threads())
        mine["parent's is here"] = held.is_here
        os.write(writable, json.dumps(mine).encode())
        os._exit(0)
    told["renewed beside the child"] = is_renewed(held)
    os.waitpid(child, 0)
    told["renewed after it"] = is_renewed(held)
    told["owned"] = held.owned()
    told["child"] = json.loads(os.read(readable, 1 << 16))
    told["threads at the fork"] = at_fork
print(json.dumps(told))
"""
)


@FORKS
def test_a_fork_in_the_middle_of_a_held_lock_leaves_the_child_nothing_and_the_parent_all(
    real_server: RealServer,
) -> None:
    told = json.loads(ran(real_server, FORKING))

    assert told["child"] == {
        "threads": 0,
        "own is renewed": True,
        "threads then": 1,
        "parent's is here": False,
    }
    assert told["renewed before"]
    assert told["renewed beside the child"]
    assert told["renewed after it"]
    assert told["owned"]


@pytest.mark.matrix
@FORKS
def test_without_hooks_at_the_fork_the_child_begins_anew_when_it_takes_a_lock(
    real_server: RealServer,
) -> None:
    told = json.loads(ran(real_server, FORKING, "unhooked"))

    assert told["child"]["own is renewed"]
    assert told["renewed beside the child"]
    assert told["renewed after it"]


# As gunicorn does with preload: what the master did goes on, and its children begin anew.
PREFORK = (
    IS_RENEWED
    + """
import multiprocessing, sys, time, redis
from django_setnx_lock.core import RedisLock

def work(number, port):
    held = RedisLock(redis.Redis(port=port), f"lock:{number}", 3, renew=True).take(0)
    sys.exit(0 if is_renewed(held) else 3)

port = int(sys.argv[1])
with RedisLock(redis.Redis(port=port), "lock:master", renew=True) as held:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(number, port)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
    print([child.exitcode for child in children], held.owned())
"""
)


@pytest.mark.matrix
@FORKS
def test_the_children_of_a_process_that_holds_locks_renew_their_own(
    real_server: RealServer,
) -> None:
    said = ran(real_server, PREFORK)

    assert said == "[0, 0, 0] True\n"


ENDING = """
import sys, time, redis
from django_setnx_lock.core import RedisLock
client = redis.Redis(port=int(sys.argv[1]))
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


@pytest.fixture(autouse=True)
def no_thread_afterwards() -> Iterator[None]:
    yield
    seams.end_renewals()


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
    command = [sys.executable, "-c", AT_EXIT, real_server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert (done.stdout, done.stderr) == ("kept\n", "")
