"""``manage.py locks`` run in the process of the tests."""

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
    """Runs ``manage.py locks`` with these arguments."""

    def __call__(self, *arguments: str) -> Ended: ...


@pytest.fixture(autouse=True)
def _listed(listed_at_once: None) -> None:
    """Have the list show what is held, however short."""


@pytest.fixture
def locks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Give a function that runs the command as a program does, in this process."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        command = load_command_class("django_setnx_lock", "locks")
        try:
            command.run_from_argv(["manage.py", "locks", *arguments])
        except SystemExit as ended:
            return Ended(cast("int", ended.code), *capsys.readouterr())
        return Ended(0, *capsys.readouterr())

    return run
