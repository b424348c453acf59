"""The servers and fixtures that the other tests stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import redis
from django.core.cache import cache

from tests.processes import is_running
from tests.servers import ONCE, RealServer

if TYPE_CHECKING:
    pass

READ_THE_CACHE = """
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()
from django.core.cache import cache
print(cache.get("key"))
"""


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


@pytest.mark.matrix
@pytest.mark.parametrize("time", ["first", "second"])
def test_the_real_cache_is_shared_with_the_programs_of_a_test(
    real_cache: RealServer, time: str
) -> None:
    before = cache.get("key")
    cache.set("key", time)

    assert before is None
    assert real_cache.client().keys() == [b":1:key"]
    if time == "first":
        child = subprocess.run(
            [sys.executable, "-c", READ_THE_CACHE], capture_output=True, text=True, check=True
        )
        assert child.stdout == "first\n"


def test_no_program_is_pointed_at_the_real_server_otherwise() -> None:
    assert "TEST_SERVER_URL" not in os.environ


def test_a_killed_server_is_down_until_it_is_started(real_server: RealServer) -> None:
    client = real_server.client(retry=ONCE)

    real_server.kill()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    real_server.start()

    assert client.ping()


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
