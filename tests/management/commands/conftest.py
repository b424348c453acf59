"""``manage.py locks`` and ``with_lock`` run in the process of the tests."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol, cast

import pytest
from django.core.management import load_command_class


class Ended(NamedTuple):
    """How a program ended, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


class Locks(Protocol):
    """Runs one of the commands with these arguments."""

    def __call__(self, *arguments: str) -> Ended: ...


def runner(name: str, captured: pytest.CaptureFixture[str]) -> Locks:
    """Return a function that runs the command of that name as a program does, in this process."""

    def run(*arguments: str) -> Ended:
        captured.readouterr()
        status = 0
        try:
            command = load_command_class("django_setnx_lock", name)
            command.run_from_argv(["manage.py", name, *arguments])
        except SystemExit as ended:
            status = cast("int", ended.code)
        return Ended(status, *captured.readouterr())

    return run


@pytest.fixture(autouse=True)
def _listed(listed_at_once: None) -> None:
    """Have the list show what is held, however short."""


@pytest.fixture
def locks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Give a function that runs ``manage.py locks``."""
    monkeypatch.delenv("COLUMNS", raising=False)
    return runner("locks", capsys)


@pytest.fixture
def with_lock(capfd: pytest.CaptureFixture[str]) -> Locks:
    """Give a function that runs ``manage.py with_lock``, with what its command writes."""
    return runner("with_lock", capfd)
