"""Locks whose value is a time, through the doors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from django.test import Client, override_settings

from tests.admin.pages import LIST, address, text
from tests.management.conftest import forks as forks
from tests.management.conftest import start as start
from tests.support.locks import server_ms
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.management.conftest import Program
    from tests.servers import RealServer

INSIDE = """
import django; django.setup()
from django_setnx_lock import lock
with lock("k", blocking_timeout=0, reentrant=True) as held:
    print(held.client.get(held.name).decode(), held.fence)
"""


def test_with_lock_holds_one_and_its_command_has_it_again(
    real_cache: RealServer, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_PROTOCOL", "timestamp-ms")

    status, out, _ = start("k", "--", sys.executable, "-c", INSIDE).end()

    value, fence = out.split()
    assert status == 0
    assert 28_000 < int(value) - int(fence) // 1000 <= 31_000
    assert real_cache.client().get("lock:k") is None


@pytest.mark.django_db
@override_settings(SETNX_LOCK={"PROTOCOL": "timestamp-ms", "REENTRANT": False})
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
