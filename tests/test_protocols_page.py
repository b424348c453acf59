"""docs/protocols.md beside the code that it tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_setnx_lock.core.protocol.commands import PROTOCOLS, UNITS

ROOT = Path(__file__).parents[1]
PAGE = ROOT.joinpath("docs", "protocols.md").read_text()


@pytest.mark.parametrize("word", [*PROTOCOLS, *UNITS])
def test_every_protocol_and_unit_is_told_of(word: str) -> None:
    assert f'"{word}"' in PAGE


def test_the_page_is_linked_from_the_others() -> None:
    pages = [ROOT / "docs" / f"{name}.md" for name in ("settings", "code")]

    assert [page.name for page in pages if "protocols.md" not in page.read_text()] == []
