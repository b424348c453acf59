"""docs/locks-command.md has all that ``manage.py locks`` understands."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from django_setnx_lock.management.commands.locks import Command

DOCS = (Path(__file__).parents[2] / "docs" / "locks-command.md").read_text()
(COMMANDS,) = (
    action.choices
    for action in Command().create_parser("manage.py", "locks")._actions
    if isinstance(action, argparse._SubParsersAction)
)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_in_the_docs(name: str) -> None:
    section = re.search(rf"^## `{name}( KEY)?`$.*?^## ", DOCS, re.MULTILINE | re.DOTALL)
    assert section
    known = section[0] + DOCS[: DOCS.index("## `list`")]

    shown = [action for action in COMMANDS[name]._actions if action.help != argparse.SUPPRESS]
    options = {text for action in shown for text in action.option_strings} - {"-h", "--help"}

    assert options
    assert not [text for text in options if f"`{text}" not in known]


def test_each_state_and_order_is_in_the_docs() -> None:
    choices = {action.dest: action.choices for action in COMMANDS["list"]._actions}

    assert not [word for word in [*choices["state"], *choices["sort"]] if f"`{word}`" not in DOCS]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_has_its_statuses(name: str) -> None:
    text = " ".join(COMMANDS[name].format_help().split())

    for status in re.findall(r"(\d+) ", text.partition("Exit status: ")[2]):
        assert f"| {status} |" in DOCS
    assert ("2 CRITICAL" if name == "check" else "69 Redis unreachable") in text
