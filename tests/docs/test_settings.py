"""docs/settings.md beside the options that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from django_setnx_lock.conf import DEFAULTS

PAGE = Path(__file__).parents[2].joinpath("docs", "settings.md").read_text()


ROWS = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| `([^`]+)` \|", PAGE, re.MULTILINE)
SECTIONS = re.findall(r"^### (\w+)\n\nDefault `([^`]+)`", PAGE, re.MULTILINE)


def test_the_table_lists_every_option_with_its_default() -> None:
    assert {name: ast.literal_eval(default) for name, _, default in ROWS} == DEFAULTS


def test_every_option_has_a_section_that_begins_with_its_default() -> None:
    assert {name: ast.literal_eval(default) for name, default in SECTIONS} == DEFAULTS


def test_the_table_leads_to_the_sections_in_their_order() -> None:
    assert [anchor for _, anchor, _ in ROWS] == [name.lower() for name, _ in SECTIONS]
