"""Locks whose value is a time, on real servers, through each door."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from django.core.management import execute_from_command_line
from django.test import Client, override_settings

from django_setnx_lock import LockBusy, lock
from tests.admin.pages import LIST, address, boxes, choose, confirm, text
from tests.management.conftest import forks as forks
from tests.management.conftest import start as start
from tests.processes import Stopwatch, eventually, in_thread, may_be_late
from tests.support.locks import server_ms, timed, value_of
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.management.conftest import Program
    from tests.servers import RealServer

REAL = pytest.mark.real
EACH = pytest.mark.parametrize("unit", ["s", "ms"])
IN_SETTINGS = override_settings(SETNX_LOCK={"PROTOCOL": "timestamp-ms", "REENTRANT": False})
INSIDE = """
import django; django.setup()
from django_setnx_lock import lock
with lock("k", blocking_timeout=0, reentrant=True) as held:
    print(held.client.get(held.name).decode(), held.fence)
"""


@pytest.mark.matrix
@REAL
@EACH
def test_a_lock_is_renewed_for_as_long_as_it_is_held(server: RealServer, unit: str) -> None:
    client = server.client()
    with timed(client, unit, 2.0, renew=True, expire=False) as held:
        first = value_of(client)
        eventually(lambda: server_ms(client) > held.fence // 1000 + 2500)

        assert held.owned()
        assert int(value_of(client) or 0) > int(first or 0)
        assert not in_thread(lambda: timed(client, unit).acquire(blocking=False))


@REAL
@EACH
def test_who_waits_has_it_soon_after_it_was_let_go(server: RealServer, unit: str) -> None:
    first = timed(server.client(), unit).take()
    fences = []

    def wait() -> None:
        with timed(server.client(), unit, blocking_timeout=5) as held:
            fences.append((held.fence, server_ms(server.client())))

    async def all_wait() -> None:
        waiting = asyncio.create_task(asyncio.to_thread(wait))
        await asyncio.sleep(0.2)
        let_go = server_ms(server.client())
        await asyncio.to_thread(first.release)
        await waiting
        # Its lease of 10 s runs still.
        assert fences[0][1] - let_go < 4000

    asyncio.run(all_wait())

    assert fences[0][0] > first.fence


@may_be_late(0.1)
@REAL
@EACH
@pytest.mark.parametrize("blocking_timeout", [0, 0.25])
def test_a_wait_in_vain_ends_within_a_tenth_of_a_second(
    server: RealServer, unit: str, blocking_timeout: float, late: float
) -> None:
    with timed(server.client(), unit):
        other = timed(server.client(), unit)
        with Stopwatch() as watch:
            taken = other.acquire(blocking_timeout=blocking_timeout)

    assert not taken
    assert watch.passed >= blocking_timeout
    assert watch.seconds < blocking_timeout + late


@REAL
def test_a_lock_in_asyncio_is_the_same_lock(server: RealServer) -> None:
    async def hold() -> None:
        async with timed(server.client(), renew=True) as held:
            assert await held.aowned()
            assert await held.alocked()
            await held.aextend(5)
            with pytest.raises(LockBusy):
                await timed(server.client()).atake(0.15)
        assert not await timed(server.client()).alocked()

    asyncio.run(hold())

    assert server.client().get("lock:a") is None


def test_with_lock_holds_one_and_its_command_has_it_again(
    real_cache: RealServer, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_PROTOCOL", "timestamp-ms")

    status, out, _ = start("k", "--", sys.executable, "-c", INSIDE).end()

    value, fence = out.split()
    assert status == 0
    assert 28_000 < int(value) - int(fence) // 1000 <= 31_000
    assert real_cache.client().get("lock:k") is None


@IN_SETTINGS
def test_with_lock_tells_who_has_it(
    real_cache: RealServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock("k", label="nightly"), pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "with_lock", "--nonblock", "k", "true"])

    assert ended.value.code == 75
    assert "nightly" in capsys.readouterr().err


@pytest.mark.django_db
@IN_SETTINGS
def test_the_admin_lists_them_with_holder_and_time_left(
    real_cache: RealServer, admin_client: Client
) -> None:
    client = real_cache.client()
    client.set("lock:legacy", server_ms(client) + 150_000)

    with any_lock("order:42", timeout=150, label="pay", user="ann"):
        listed = text(admin_client.get(LIST + "?q=legacy"))
        detail = text(admin_client.get(address("change", "lock:order:42")))
        foreign = text(admin_client.get(address("change", "lock:legacy")))

    assert "legacy foreign" in listed
    assert "ann@" in detail
    assert "2 min" in detail
    assert "Label pay" in detail
    assert "foreign" in foreign
    assert "2 min" in foreign


@pytest.mark.django_db
@IN_SETTINGS
def test_the_admin_takes_one_from_its_holder(real_cache: RealServer, admin_client: Client) -> None:
    held = lock("order:42").take(0)
    question = choose(admin_client, "release", *boxes("order:42"))
    held.extend(5)

    confirm(admin_client, question)

    assert not held.owned()
    assert not held.locked()
