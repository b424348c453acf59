"""What docs/operations.md has operators run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.needs("jq")
def test_the_line_for_a_monitor_finds_what_nobody_else_will() -> None:
    line = re.search(r"locks list --everything --json \| jq '(.*)'", PAGE.read_text())
    assert line is not None
    locks = [
        {"key": "young", "state": "held", "held_for": 5.0},
        {"key": "old", "state": "held", "held_for": 601.0},
        {"key": "theirs", "state": "foreign", "held_for": None},
        {"key": "endless", "state": "never-expires", "held_for": None},
        {"key": "passing", "state": "changing-hands", "held_for": None},
    ]

    found = subprocess.run(
        ["jq", line[1]],
        input=json.dumps({"locks": locks}),
        capture_output=True,
        text=True,
        timeout=20,
    )

    assert found.stderr == ""
    assert json.loads(found.stdout) == ["old", "theirs", "endless"]
