"""docs/polling.md beside the code that it tells of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_setnx_lock.core.connections.failures import unavailable

ROOT = Path(__file__).parents[1]
PAGE = ROOT.joinpath("docs", "polling.md").read_text()
SAID = re.findall(r"\| `([^`]*)` \|\n", PAGE[: PAGE.index("Both are")])


@pytest.mark.parametrize("said", SAID)
def test_what_a_server_says_is_told_as_undeclared(said: str) -> None:
    error = unavailable(Exception(f"ERR {said}, and more"), "a")

    assert error.cause == "undeclared"
    assert "POLLING" in str(error)


def test_what_two_servers_say_is_on_the_page() -> None:
    assert len(SAID) == 2


@pytest.mark.parametrize("page", ["docs/redis.md", "docs/settings.md"])
def test_the_page_is_linked_from_the_others(page: str) -> None:
    assert "polling.md" in ROOT.joinpath(page).read_text()
