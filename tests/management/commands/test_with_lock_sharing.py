"""Commands that run at the same time as others: ``--shared`` and ``--limit``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_setnx_lock import lock, rwlock, semaphore
from tests.management.conftest import Program
from tests.processes import eventually

Start = Callable[..., Program]


def status(*arguments: str) -> int:
    """Return with what status a command ends that does nothing, under a lock."""
    try:
        call_command("with_lock", "-n", *arguments, "report", "true")
    except CommandError as error:
        return error.returncode
    return 0


@pytest.mark.usefixtures("real_cache")
def test_commands_that_share_run_beside_readers_and_not_beside_a_writer() -> None:
    with rwlock("report").read():
        beside_readers = status("--shared"), status()
    with lock("report", reentrant=False):
        beside_a_writer = status("--shared"), status("-s")

    assert beside_readers == (0, 75)
    assert beside_a_writer == (75, 75)


@pytest.mark.usefixtures("real_cache")
def test_no_more_than_the_limit_run() -> None:
    with semaphore("report", 2):
        one_more = status("--limit", "2")
        with semaphore("report", 2):
            two_more = status("--limit=2")

    assert (one_more, two_more) == (0, 75)


def test_two_commands_run_at_the_same_time(start: Start, tmp_path: Path) -> None:
    both_are_there = f"touch $0; while ! test -e {tmp_path}/b; do sleep 0.01; done"
    first = start("--shared", "report", "sh", "-c", both_are_there, str(tmp_path / "a"))
    eventually((tmp_path / "a").exists)

    second = start("-n", "--shared", "report", "sh", "-c", "touch $0", str(tmp_path / "b"))

    assert (second.end()[0], first.end()[0]) == (0, 0)


def test_a_command_within_may_read_and_not_write(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_REENTRANT", "1")
    inner = f"{sys.executable} manage.py with_lock -n"
    line = f"{inner} --shared report true && {inner} report true"

    program = start("--shared", "report", "sh", "-c", line)

    status, _, told = program.end()
    assert status != 0
    assert "would wait for itself" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--limit", "0"),
        ("--limit", "x"),
        ("--limit", "2", "--shared"),
        ("--shared", "--min-hold", "3"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert status(*arguments) == 64
