"""Processes that are forked, by Python or in C, as uWSGI does: each begins anew."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.servers import RealServer

# What the master does, then the child; each says one thing at the end.
BEGINNING = """
import asyncio, json, os, sys, time, redis
from django_setnx_lock import LockError
from django_setnx_lock.core import Inspector, RedisLock
from tests.processes import FORKS

client = redis.Redis(port=int(sys.argv[1]))
fork = FORKS[sys.argv[2]]
look = Inspector(client, "lock:")

def lock(name, timeout=2, **options):
    return RedisLock(client, f"lock:{name}", timeout, **options)

def is_renewed(held):
    give_up = time.monotonic() + 10
    before = held.remaining()
    while 0 < held.remaining() <= before and time.monotonic() < give_up:
        before = held.remaining()
        time.sleep(0.01)
    return held.remaining() > before

def beside(child):
    readable, writable = os.pipe()
    pid = fork()
    if not pid:
        try:
            os.write(writable, json.dumps(child()).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writable)
    return json.loads(os.read(readable, 1 << 16) or "null")
"""


# Where no hook is called is more to be found out; what those of Python do, `make matrix` has too.
@pytest.fixture(params=["C", pytest.param("python", marks=pytest.mark.matrix)])
def ran(request: pytest.FixtureRequest, real_server: RealServer) -> Any:
    """Give what runs code in a process of its own, that forks in this way, and returns ``said``."""

    def ran(code: str) -> Any:
        script = f"{BEGINNING}{code}\nprint(json.dumps(said))"
        # Forking with threads about is deprecated, and hiredis or coverage may have some.
        python = [sys.executable, "-W", "ignore::DeprecationWarning"]
        command = [*python, "-c", script, str(real_server.port), request.param]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ran


def test_a_child_renews_what_it_takes_where_its_parent_has_renewed_before(ran: Any) -> None:
    said = ran(
        """
with lock("warm-up", renew=True) as held:
    assert is_renewed(held)

def child():
    with lock("report", renew=True) as held:
        return is_renewed(held), held.lost

said = beside(child)
"""
    )

    assert said == [True, False]


def test_a_parent_goes_on_renewing_what_it_holds_and_its_child_does_not(ran: Any) -> None:
    said = ran(
        """
with lock("a", renew=True) as held:
    assert is_renewed(held)

    def child():
        with lock("b", renew=True) as own:
            busy = not lock("a", blocking=False).acquire()
            return is_renewed(own), busy, held.owned(), held.remaining()

    said = [beside(child), is_renewed(held), held.owned()]
"""
    )

    assert said == [[True, True, False, 0.0], True, True]


def test_a_child_leaves_its_parents_block_whatever_other_threads_did_as_it_was_forked(
    ran: Any,
) -> None:
    said = ran(
        """
import signal, threading

# That in C waits until all other threads sleep.
fork = os.fork

def enter_again_and_again():
    other = lock("b", timeout=30, reentrant=True)
    with other:
        while not is_over.is_set():
            with other:
                pass

def child():
    # It would wait for ever for a thread that it does not have.
    signal.alarm(20)
    try:
        held.release()
    except LockError:
        return True

is_over = threading.Event()
thread = threading.Thread(target=enter_again_and_again)
thread.start()
try:
    with lock("a", timeout=30, reentrant=True) as held:
        said = [beside(child) for _ in range(20)]
finally:
    is_over.set()
    thread.join()
"""
    )

    assert said == [True] * 20


def test_a_child_has_a_name_of_its_own(ran: Any) -> None:
    said = ran(
        """
from tests.support.seams import says_alive

def named(name):
    with lock(name, **says_alive("lock:")):
        holder = look.get(f"lock:{name}").holder
        return holder.process, holder.pid

mine = named("a")
said = [mine, beside(lambda: named("b"))]
"""
    )

    (parent, parent_pid), (child, child_pid) = said
    assert parent
    assert child
    assert parent != child
    assert parent_pid != child_pid


def test_a_child_of_a_task_renews_in_a_loop_of_its_own(ran: Any) -> None:
    said = ran(
        """
async def is_renewed_here(held):
    return await asyncio.to_thread(is_renewed, held)

async def child_main():
    async with lock("b", renew=True) as own:
        return await is_renewed_here(own), own.lost, await lock("a").alocked()

def child():
    # The loop of the parent is not the child's.
    asyncio._set_running_loop(None)
    return asyncio.run(child_main())

async def main():
    async with lock("a", renew=True) as held:
        assert await is_renewed_here(held)
        return [beside(child), await is_renewed_here(held), await held.aowned()]

said = asyncio.run(main())
"""
    )

    assert said == [[True, False, True], True, True]
