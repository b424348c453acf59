"""What is counted of a use of a lock: calls of ours, and opcodes of everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.calls import calls_of_ours, opcodes, row
from django_setnx_lock import KeyTemplate

ROOT = Path(__file__).parents[2]


def test_a_call_of_ours_is_counted_by_its_file_and_one_of_another_package_is_not() -> None:
    template = KeyTemplate("order:<pk>")

    found = calls_of_ours(lambda: json.dumps(template.format(pk=42)))

    assert found["key_template.py", "format"] == 1
    assert {file for file, _ in found} <= {"key_template.py", "plain.py"}
    assert calls_of_ours(lambda: json.dumps([])) == {}


def test_each_call_is_counted() -> None:
    template = KeyTemplate("order:<pk>")

    found = calls_of_ours(lambda: [template.format(pk=pk) for pk in range(3)])

    assert found["key_template.py", "format"] == 3


def test_the_opcodes_of_everything_are_counted_and_of_the_same_use_are_as_many() -> None:
    def loops(times: int) -> int:
        return opcodes(lambda: [json.dumps({"a": 1}, indent=1) for _ in range(times)])

    loops(1)
    first, again, twice = loops(50), loops(50), loops(100)

    assert first == again
    assert first > 50
    assert twice - first > 0.9 * first


def test_a_row_says_how_many_calls_and_files() -> None:
    found = calls_of_ours(lambda: KeyTemplate("order:<pk>"))

    said = row("templates", found, 12345).split()

    assert said[:2] == ["templates", str(found.total())]
    assert said[-2:] == ["12,345", "opcodes"]


@pytest.mark.matrix
def test_the_program_says_what_each_way_costs_and_lists_ours() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.calls", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    rows = [line for line in done.stdout.splitlines() if line.endswith("opcodes")]
    assert [line.split("  ")[0] for line in rows][:2] == ["lock()", "RedisLock"]
    assert rows[-1].startswith("redis-py's lock ")
    assert " 0 calls of ours" in rows[-1]
    assert " core/locks/lock.py: __init__" in done.stdout
