"""Locks whose value is a time, on the admin's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.test import Client, override_settings

from tests.admin.pages import LIST, address, text
from tests.support.locks import server_ms
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from tests.servers import RealServer


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
