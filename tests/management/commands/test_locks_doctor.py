"""``manage.py locks doctor`` as a program."""

from __future__ import annotations

import pytest

from django_setnx_lock.core.docs import docs_url
from tests.management.commands.conftest import Locks
from tests.servers import FakeServer, RealServer


def test_it_says_what_is_there_and_what_to_do(locks: Locks, real_cache: RealServer) -> None:
    ended = locks("doctor")

    first, *lines = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert first.startswith(("default: redis ", "default: valkey "))
    assert f"tcp 127.0.0.1:{real_cache.port}/0" in first
    # The server of the tests writes nothing to disk.
    assert [line for line in lines if line.startswith("  WARNING D008: Nothing is written")]
    assert f"    {docs_url('locks-command', 'D008')}" in lines


def test_strict_makes_warnings_status_1(locks: Locks, real_cache: RealServer) -> None:
    assert locks("doctor", "--strict").status == 1


def test_errors_are_status_2(locks: Locks, real_cache: RealServer) -> None:
    client = real_cache.client()
    client.config_set("maxmemory", 1)
    try:
        ended = locks("doctor")
    finally:
        client.config_set("maxmemory", 0)

    assert ended.status == 2
    assert "ERROR D004" in ended.out


def test_a_server_that_is_not_there_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    ended = locks("doctor", "--json")

    assert ended.status == 69
    assert [one["id"] for one in ended.document["findings"]] == ["D001"]


def test_json_tells_the_same(locks: Locks, real_cache: RealServer) -> None:
    ended = locks("doctor", "--json", "--worker-timeout", "5")

    found = {one["id"]: one for one in ended.document["findings"]}
    assert ended.document["examined"].keys() == {"default"}
    assert found["D015"]["severity"] == "warning"
    assert "5 s (--worker-timeout)" in found["D015"]["seen"]


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "soon"])
def test_a_worker_timeout_that_is_no_time_is_status_64(locks: Locks, timeout: str) -> None:
    ended = locks("doctor", f"--worker-timeout={timeout}")

    assert ended.status == 64
    assert "--worker-timeout" in ended.err


def test_a_cache_that_cannot_hold_locks_is_status_78(locks: Locks) -> None:
    assert locks("doctor", "--using", "none").status == 78
