"""What is run, and what is told of it: --busy-code, --kill-after, --quiet."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import CommandError

from django_setnx_lock import inspector, lock
from tests.management.conftest import CHECKOUT, Program
from tests.processes import eventually
from tests.servers import RealServer

Run = Callable[..., tuple[int, str, str]]
Start = Callable[..., Program]


def talk(start: Start, *arguments: str) -> Program:
    """Start a with_lock to talk to."""
    return start(*arguments, stdin=subprocess.PIPE)


def status(*arguments: str, **options: Any) -> int:
    """Run the command in this process; return its status."""
    try:
        call_command("with_lock", *arguments, **options)
    except CommandError as error:
        return error.returncode
    return 0


def test_busy_has_the_status_that_was_asked_for(real_cache: RealServer) -> None:
    with lock("k"):
        statuses = [
            status("-n", "-E", "0", "k", "true"),
            status("-w0", "--busy-code=9", "k", "true"),
        ]

    assert statuses == [0, 9]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-E", "256"], "--busy-code is a number from 0 to 255"),
        (["-E=-1"], "--busy-code is a number from 0 to 255"),
        (["--kill-after", "-1"], "--kill-after is a number of seconds from 0 to 12"),
        (["--kill-after", "nan"], "--kill-after is a number of seconds from 0 to 12"),
        (["--kill-after", "12.1"], "from 0 to 12 with a lease of 30 s"),
        (["--timeout", "5", "--kill-after", "2.1"], "from 0 to 2 with a lease of 5 s"),
    ],
)
def test_a_bad_value_is_refused(options: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        call_command("with_lock", *options, "k", "true")

    assert refused.value.returncode == 64


def test_a_lease_with_time_for_the_end_is_enough(real_cache: RealServer) -> None:
    assert status("--timeout", "30", "--kill-after", "12", "k", "true") == 0


def program(*arguments: str) -> object:
    """Run the command in this process as a program; return its status."""
    with pytest.raises(SystemExit) as ended:
        load_command_class("django_setnx_lock", "with_lock").run_from_argv(
            ["manage.py", "with_lock", *arguments]
        )
    return ended.value.code


@pytest.mark.parametrize("silent", [["-q"], ["--quiet"], ["-v0"]])
@pytest.mark.parametrize("wait", [["-n"], ["-w", "0.1"]])
def test_a_busy_lock_is_told_to_nobody_who_does_not_want_to_hear_of_it(
    real_cache: RealServer, capfd: pytest.CaptureFixture[str], silent: list[str], wait: list[str]
) -> None:
    with lock("k"):
        assert program(*silent, *wait, "k", "true") == 75

    assert capfd.readouterr() == ("", "")


def test_one_who_waits_quietly_says_nothing(start: Start) -> None:
    with lock("k"):
        with_lock = talk(start, "-q", "k", "true")
        eventually(lambda: inspector().get("lock:k").waiting)

    assert with_lock.end() == (0, "", "")


def test_quiet_or_not_an_error_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert program("-q", "-v0", "-n", "k", "no-such-program") == 127

    assert capfd.readouterr().err == "with_lock: no-such-program is not found\n"


@pytest.mark.matrix
def test_the_line_for_cron_in_the_docs_says_nothing_when_the_lock_is_busy(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (CHECKOUT / "docs/commands.md").read_text()
    (line,) = re.findall(r"^    \*/5 \* \* \* \*  app  (.*)$", text, re.MULTILINE)
    line = line.replace("/srv/shop", str(CHECKOUT)).replace(".venv/bin/python", sys.executable)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")

    with lock("import"):
        ended = subprocess.run(
            ["/bin/sh", "-c", line], check=False, capture_output=True, text=True, timeout=50
        )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_output_comes_as_it_was_written(run: Run) -> None:
    both = 'exec 2>&1; for i in 1 2 3; do echo "out $i"; echo "err $i" >&2; done'

    assert run("k", "sh", "-c", both) == (0, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n", "")


def test_a_part_of_a_line_is_there_while_the_command_still_runs(start: Start) -> None:
    with_lock = talk(start, "k", "sh", "-c", "printf part; read x")

    assert with_lock.stdout is not None
    assert with_lock.stdout.read(4) == "part"
