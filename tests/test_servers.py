"""The servers and fixtures that the other tests stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import redis

from tests.processes import is_running
from tests.servers import ONCE, RealServer


@pytest.mark.parametrize("time", ["first", "second"])
def test_every_server_has_no_keys_and_runs_lua(redis_client: redis.Redis, time: str) -> None:
    script = redis_client.register_script(
        "redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 5000) "
        "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}"
    )
    before = redis_client.keys()

    value, remaining = script(keys=["key"], args=[time])

    assert before == []
    assert value == time.encode()
    assert 0 < remaining <= 5000


def test_no_program_is_pointed_at_the_real_server_otherwise() -> None:
    assert "TEST_SERVER_URL" not in os.environ


def test_a_server_of_ones_own_takes_options_and_leaves_nothing(real_server: RealServer) -> None:
    with RealServer(real_server.binary, "--requirepass", "secret") as server:
        pid, directory = server.pid, server.directory
        with pytest.raises(redis.AuthenticationError):
            server.client(retry=ONCE).ping()
        assert server.client(password="secret").ping()

    assert not directory.exists()
    assert not is_running(pid)


def test_a_taken_port_is_exchanged_for_another(real_server: RealServer) -> None:
    server = RealServer(real_server.binary)
    server.port = real_server.port

    with server:
        assert server.port != real_server.port
        assert server.client().ping()


SLEEPS = """
import time
from tests.processes import Stopwatch

began = time.monotonic()
with Stopwatch() as watch:
    print(flush=True)
    time.sleep(1)
print(time.monotonic() - began, watch.seconds)
"""


@pytest.mark.parametrize("stopped", [0.0, 2.0])
def test_a_stopwatch_does_not_count_while_the_process_stands_still(stopped: float) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(child.pid, signal.SIGCONT)
        took, counted = map(float, child.stdout.read().split())

    assert took >= max(stopped, 1.0)
    assert counted <= took - 0.9 * stopped
