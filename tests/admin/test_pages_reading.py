"""What the lock pages offer to those who do not see them, or read them on a small screen."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from django_setnx_lock import lock
from tests.admin.pages import LIST, address, info, row, text

pytestmark = pytest.mark.django_db
DETAIL = address("change", "lock:report")


def readers(number: int) -> list[Any]:
    return [
        lock("report", shared=True, reentrant=False, timeout=60 + one).take(0)
        for one in range(number)
    ]


def test_the_help_of_the_reason_is_where_its_field_says(admin_client: Client) -> None:
    lock("report").take(0)

    page = admin_client.get(address("release", "lock:report")).content.decode()

    (described,) = re.findall(r'name="reason"[^>]* aria-describedby="([^"]*)"', page)
    assert f'id="{described}"' in page


def test_each_button_names_its_holder_alone(admin_client: Client) -> None:
    held = readers(3)

    page = admin_client.get(DETAIL).content.decode()

    names = re.findall(r'<input type="submit"[^>]* aria-label="([^"]*)"', page)
    # Each can be asked to stop, extended, and released.
    assert len(set(names)) == len(names) == 3 * len(held)


def test_a_single_reader_has_one_button(admin_client: Client) -> None:
    held = readers(1)

    assert admin_client.get(DETAIL).content.decode().count('Force-release…"') == len(held)


def test_the_meaning_of_each_state_is_below_the_list(admin_client: Client) -> None:
    lock("report").take(0)

    assert "not a lock Something that is no lock is stored" in text(admin_client.get(LIST))


def test_a_lock_that_is_kept_is_not_said_to_be_held(admin_client: Client) -> None:
    with lock("report", min_hold=500, user="ann"):
        pass

    assert re.search(r"report kept ann@\S+ - - 8 min", row(admin_client.get(LIST), "report"))


def test_a_fence_is_written_so_that_it_can_be_pasted(admin_client: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    held = readers(2)

    content = admin_client.get(DETAIL).content.decode()

    assert str(info("report").fence) in content
    fences = re.findall(r"<td[^>]*>([\d.]{16,})</td>", content)
    assert len(fences) >= len(held) - 1
    assert all(fence.isdigit() for fence in fences)
