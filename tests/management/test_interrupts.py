"""What a signal leaves of a lock that with_lock is taking: nothing."""

from __future__ import annotations

import io
import random
import signal
import time
from collections.abc import Callable

import pytest
from django.core.management import call_command

from django_setnx_lock import inspector, lock
from tests.faults.proxy import Proxy
from tests.management.conftest import Program
from tests.management.forking import Forking
from tests.processes import eventually
from tests.servers import RealServer

Start = Callable[..., Program]
# A second one of INT and TERM would kill.
ENDING = [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]


@pytest.fixture
def start_through(start: Start, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Give ``start``, but for programs that reach the server through the proxy."""
    monkeypatch.setenv("TEST_SERVER_URL", proxy.url)
    return start


def is_waited_for() -> int:
    return inspector().get("lock:k").waiting


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_signal_that_comes_while_it_waits_leaves_no_waiter_behind(
    start: Start, real_server: RealServer, number: signal.Signals
) -> None:
    with lock("k"):
        with_lock = start("k", "echo", "started")
        with_lock.message()
        eventually(is_waited_for)

        with_lock.send_signal(number)

        assert with_lock.end() == (128 + number, "", "")
        assert not real_server.client().exists("{lock:k}:waiters")
    assert not real_server.client().exists("lock:k")


# What a handler raises there is lost.
IN_A_FINALIZER = """
import signal
from redis.connection import Connection

class Ends:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def can_read(self, timeout, real=Connection.can_read):
    Connection.can_read = real
    Ends()
    return self.can_read(timeout)

Connection.can_read = can_read
"""
# What is called by map() is C: no handler is run between the two.
JUST_BEFORE_THE_SLEEP = """
import ctypes, signal, socket
from functools import partial

def recv(self, size, real=socket.socket.recv):
    if self.gettimeout() < 10:
        return real(self, size)
    socket.socket.recv = real
    came = partial(getattr(ctypes.CDLL(None), "raise"), signal.SIGTERM)
    return list(map(partial.__call__, [came, partial(real, self, size)]))[1]

socket.socket.recv = recv
"""


@pytest.mark.parametrize("when", [IN_A_FINALIZER, JUST_BEFORE_THE_SLEEP], ids=["lost", "late"])
def test_a_signal_ends_the_wait_also_where_python_loses_it_or_runs_its_handler_late(
    forking: Forking, real_server: RealServer, when: str
) -> None:
    with lock("k"):
        with_lock = forking.start("k", "true", first=when)

        # The sleep itself is longer.
        assert with_lock.has_ended(15)
        assert with_lock.wait() == 128 + signal.SIGTERM
        assert not real_server.client().exists("{lock:k}:waiters")


def test_an_alarm_that_was_set_before_it_began_ends_it(forking: Forking) -> None:
    # As by perl -e 'alarm shift; exec @ARGV' 600 manage.py with_lock ...
    with lock("k"):
        with_lock = forking.start("k", "true", first="import signal\nsignal.alarm(600)")
        eventually(is_waited_for)

        with_lock.send_signal(signal.SIGALRM)

        assert with_lock.has_ended(15)
        assert with_lock.wait() == -signal.SIGALRM


class Signals(io.StringIO):
    """A stderr that has a signal sent when it is told of the wait, which has not begun yet."""

    def write(self, text: str) -> int:
        if "waiting" in text:
            signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def test_a_signal_that_comes_before_it_asks_keeps_it_from_asking(real_cache: RealServer) -> None:
    with lock("k"), pytest.raises(SystemExit) as ended:
        call_command("with_lock", "k", "true", stderr=Signals())

    assert ended.value.code == 143
    assert not real_cache.client().exists("{lock:k}:waiters")


def test_a_signal_while_the_request_is_under_way_leaves_no_lock(
    start_through: Start, proxy: Proxy, real_server: RealServer
) -> None:
    proxy.hold(b"EVALSHA", once=True)
    with_lock = start_through("--timeout", "60", "k", "echo", "started")
    assert proxy.holds.wait(timeout=20)

    with_lock.terminate()
    with_lock.wait()
    # The request reaches the server only now.
    proxy.let_go()

    assert with_lock.end()[:2] == (143, "")
    assert not real_server.client().exists("lock:k")


def test_a_signal_before_the_answer_is_read_leaves_no_lock(
    start_through: Start, proxy: Proxy, real_server: RealServer
) -> None:
    proxy.halve_replies(b"EVALSHA")
    with_lock = start_through("--timeout", "60", "k", "echo", "started")
    assert proxy.holds.wait(timeout=20)
    was_granted = real_server.client().exists("lock:k")

    with_lock.terminate()
    proxy.let_go()

    assert with_lock.end()[:2] == (143, "")
    assert was_granted
    assert not real_server.client().exists("lock:k")


def test_a_signal_ends_it_soon_also_where_the_server_hangs(
    start_through: Start, proxy: Proxy
) -> None:
    proxy.hold(b"EVALSHA")
    with_lock = start_through("k", "echo", "started")
    assert proxy.holds.wait(timeout=20)

    with_lock.terminate()

    # What undoes the request would wait for as long as the socket may, which is longer.
    assert with_lock.wait(timeout=4) == 143


def test_a_wait_ends_with_69_when_the_server_goes_away(start_through: Start, proxy: Proxy) -> None:
    with lock("k"):
        with_lock = start_through("k", "echo", "started")
        eventually(is_waited_for)

        proxy.refuse()

        assert with_lock.end()[:2] == (69, "")


# What coverage does upon a signal, and as a program ends, is none of with_lock's.
@pytest.mark.unmeasured
def test_a_signal_at_any_moment_leaves_no_lock(real_cache: RealServer) -> None:
    client = real_cache.client()
    with Forking({"DJANGO_SETTINGS_MODULE": "tests.settings"}) as forking:
        for _ in range(60):
            with_lock = forking.start("--timeout", "60", "k", "true")
            time.sleep(random.uniform(0, 0.06))  # noqa: S311 - any moment will do
            with_lock.send_signal(signal.SIGTERM)
            assert with_lock.wait() in (0, 143, -signal.SIGTERM)
            assert not client.exists("lock:k")
