"""docs/tutorial.md does what it shows: every block of it is run."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import override_settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@override_settings(SETNX_LOCK={})
def test_what_is_typed_into_python_answers_as_it_says() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")

    assert tried >= 20
    assert failed == 0


def test_every_block_is_one_that_is_run() -> None:
    # What is of the language Python alone, tests/docs/test_examples.py runs.
    assert {kind for kind, _ in BLOCKS} == {"pycon", "console", "python"}
    assert all(">>> " in block for kind, block in BLOCKS if kind == "pycon")


@pytest.mark.matrix
@pytest.mark.usefixtures("real_cache")
def test_what_is_typed_into_a_shell_prints_what_it_says() -> None:
    lines = [line for kind, block in BLOCKS if kind == "console" for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    said = [line for line in lines if not line.startswith("$ ")]

    script = "\n".join(["set -e", f'python() {{ "{sys.executable}" "$@"; }}', *typed])
    done = subprocess.run(
        ["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )

    assert (done.stderr, done.stdout.splitlines()) == ("", said)


def test_a_block_that_does_not_hold_would_be_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)

    result = doctest.DocTestRunner(verbose=False).run(wrong, out=lambda _: None)

    assert result.failed == 1
