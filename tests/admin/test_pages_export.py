"""What the list finds, as a file."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.test import AsyncClient, Client

from django_setnx_lock import lock
from django_setnx_lock.admin import export
from django_setnx_lock.admin.lock_list import LOOKED_AT
from tests.admin.pages import LIST, staff, text
from tests.core.test_inspection_many import hold
from tests.hostile import KEYS, RECORDS
from tests.hostile import hold as hold_hostile

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.servers import FakeServer, RealServer

pytestmark = pytest.mark.django_db


def file(client: Client, kind: str, **asked: str) -> str:
    response: Any = client.get(LIST, {**asked, "format": kind})
    assert response.status_code == 200
    assert response["Content-Disposition"].startswith('attachment; filename="locks-2')
    assert response["Content-Disposition"].endswith(f'.{kind}"')
    return b"".join(response.streaming_content).decode()


def rows(content: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content, newline="")))


def test_json_is_what_the_command_writes(admin_client: Client) -> None:
    lock("order:1", user="ann", note="é").take(0)
    for user in ("ann", "bob"):
        lock("report", shared=True, reentrant=False, user=user).take(0)
    out = io.StringIO()
    call_command("locks", "list", "--json", stdout=out)

    found, expected = json.loads(file(admin_client, "json", o="key")), json.loads(out.getvalue())

    assert [list(one) for one in found["locks"]] == [list(one) for one in expected["locks"]]
    for one, other in zip(found["locks"], expected["locks"], strict=True):
        for name in ("using", "key", "name", "state", "holder", "fence", "fingerprint"):
            assert one[name] == other[name]
    assert found["troubles"] == expected["troubles"] == []


def test_csv_has_the_same_fields_flat(admin_client: Client) -> None:
    lock("order:1", user="ann", label="pay").take(0)

    (row,) = rows(file(admin_client, "csv"))

    assert row["key"] == "order:1"
    assert row["states"] == "held"
    assert (row["holder.user"], row["holder.label"]) == ("ann", "pay")
    assert row["stop_requested.by"] == row["shares"] == ""


def test_only_what_is_filtered_is_in_the_file(admin_client: Client) -> None:
    lock("a", user="ann").take(0)
    lock("b", user="bob").take(0)

    assert [row["key"] for row in rows(file(admin_client, "csv", user="bob"))] == ["b"]
    assert rows(file(admin_client, "csv", user="cyd")) == []


def test_a_spreadsheet_finds_no_formula(admin_client: Client) -> None:
    for first in "=+-@\t\r":
        lock(f"{first}cmd|' /C calc'!A0", label=f"{first}1+1", user=f"{first}x").take(0)

    found = rows(file(admin_client, "csv"))

    assert len(found) == 6
    for row in found:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@", "\t", "\r"))
            assert not cell.startswith("-") or float(cell)


def test_no_token_is_in_the_file(admin_client: Client) -> None:
    held = lock("a").take(0)

    for kind in ("csv", "json"):
        assert held.token not in file(admin_client, kind)


def test_nothing_that_others_wrote_breaks_a_file(admin_client: Client, no_collection: None) -> None:
    for number, record in enumerate(RECORDS.values()):
        hold_hostile(f"record-{number}", record)
    for key in KEYS:
        hold_hostile(key)

    assert len(rows(file(admin_client, "csv"))) == len(RECORDS) + len(KEYS)
    assert len(json.loads(file(admin_client, "json"))["locks"]) == len(RECORDS) + len(KEYS)


def test_many_locks_are_all_in_the_file_each_once(
    admin_client: Client, real_cache: RealServer
) -> None:
    many = hold(real_cache.client(), LOOKED_AT + 800)

    found = json.loads(file(admin_client, "json"))

    assert sorted(one["key"] for one in found["locks"]) == many
    assert found["troubles"] == []


def test_a_file_that_was_cut_says_so(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MOST", 2)
    for key in "abc":
        lock(key).take(0)

    cut = json.loads(file(admin_client, "json"))

    assert len(cut["locks"]) == 2
    assert cut["troubles"] == ["There are more locks than these."]
    assert file(admin_client, "csv").splitlines()[-1] == "# There are more locks than these."


def test_a_redis_that_is_away_is_a_page(admin_client: Client, fake_server: FakeServer) -> None:
    fake_server.connected = False

    assert "Redis cannot be reached" in text(admin_client.get(LIST, {"format": "csv"}))


def test_it_takes_the_permission_to_see() -> None:
    assert staff("release_lock").get(LIST, {"format": "csv"}).status_code == 403


def test_another_format_is_the_page(admin_client: Client) -> None:
    assert "Nobody holds a lock" in text(admin_client.get(LIST, {"format": "exe"}))


def test_it_streams_under_asgi_without_a_warning(
    admin_user: User, fake_server: FakeServer, recwarn: pytest.WarningsRecorder
) -> None:
    lock("a").take(0)

    async def ask() -> bytes:
        client = AsyncClient()
        await client.aforce_login(admin_user)
        response: Any = await client.get(LIST, {"format": "json"})
        return b"".join([part async for part in response.streaming_content])

    assert [one["key"] for one in json.loads(async_to_sync(ask)())["locks"]] == ["a"]
    assert [str(one.message) for one in recwarn if "synchronous" in str(one.message)] == []
