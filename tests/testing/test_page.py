"""docs/testing.md beside the code that it tells of."""

from __future__ import annotations

import re
from pathlib import Path

from django_setnx_lock.testing.helpers import LockHelpers

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs", "testing.md").read_text()


def test_the_page_tells_of_every_helper_and_of_no_other() -> None:
    told = set(re.findall(r"^\| `(?:async |await )?(\w+)\(", PAGE, re.MULTILINE))

    assert told == {name for name in vars(LockHelpers) if not name.startswith("_")}
