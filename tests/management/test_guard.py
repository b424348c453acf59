"""When with_lock is killed with -9 its command dies, with all that the command has started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_setnx_lock.management.guard import Guard
from django_setnx_lock.management.launcher import Launcher
from tests.management.forking import Forking, lines
from tests.processes import eventually, figure, is_running

# The shell, one in the background, and what that one runs.
FAMILY = 'echo $$ >>"$0"; (sleep 60 & echo $! >>"$0"; wait) & echo $! >>"$0"; wait'
NO_GUARD = """
from django_setnx_lock.management.guard import Guard
Guard.watch = lambda self, target: None
"""
# Between the start of the process and that of the command.
KILLED_BEFORE_IT_GOES = """
import os, signal
from django_setnx_lock.management.launcher import Launcher
Launcher.go = lambda self: os.kill(os.getpid(), signal.SIGKILL)
"""
TOLD_LATE = """
import os, signal
from django_setnx_lock.management.guard import Guard
Guard.watch = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Give the file in which commands write their pids; what still runs is killed."""
    log = tmp_path / "log"
    log.touch()
    yield log
    for pid in log.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def family_of_a_killed(forking: Forking, log: Path, *options: str, first: str = "") -> list[int]:
    """Kill a with_lock whose command has started others; return the pids of all of them."""
    with_lock = forking.start(*options, "k", "sh", "-c", FAMILY, str(log), first=first)
    family = [int(pid) for pid in lines(log, 3)]
    with_lock.send(signal.SIGKILL)
    assert with_lock.end() == -signal.SIGKILL
    return family


def test_the_command_and_all_that_it_started_are_dead_within_a_second(
    forking: Forking, log: Path
) -> None:
    family = family_of_a_killed(forking, log)

    killed = time.monotonic()
    eventually(lambda: not any(map(is_running, family)), seconds=1)

    figure(f"dead {(time.monotonic() - killed) * 1000:.0f} ms after with_lock was killed")


def test_without_the_guard_they_would_run_on(forking: Forking, log: Path) -> None:
    family = family_of_a_killed(forking, log, first=NO_GUARD)

    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: not all(map(is_running, family)), seconds=1)


def test_in_the_foreground_the_command_itself_is_dead(forking: Forking, log: Path) -> None:
    command, *others = family_of_a_killed(forking, log, "--foreground")

    eventually(lambda: not is_running(command), seconds=1)

    assert all(map(is_running, others))


@pytest.mark.parametrize("moment", [TOLD_LATE, KILLED_BEFORE_IT_GOES], ids=["untold", "told"])
def test_one_that_is_killed_as_it_starts_the_command_has_started_none(
    forking: Forking, log: Path, moment: str
) -> None:
    with_lock = forking.start("k", "sh", "-c", 'echo $$ >>"$0"', str(log), first=moment)

    assert with_lock.end() == -signal.SIGKILL

    time.sleep(0.2)
    assert log.read_text() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stopped_command_dies_too(forking: Forking, log: Path) -> None:
    script = 'echo $$ >>"$0"; kill -STOP $$; sleep 60'
    with_lock = forking.start("k", "sh", "-c", script, str(log))
    command = int(lines(log, 1)[0])
    eventually(lambda: Path(f"/proc/{command}/stat").read_text().rpartition(")")[2][1] == "T")

    with_lock.send(signal.SIGKILL)

    eventually(lambda: not is_running(command), seconds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_guard_that_was_killed_is_replaced(forking: Forking, log: Path) -> None:
    with_lock = forking.start("k", "sh", "-c", FAMILY, str(log))
    family = [int(pid) for pid in lines(log, 3)]
    guard = guard_of(with_lock.pid)

    os.kill(guard, signal.SIGKILL)
    eventually(lambda: guard_of(with_lock.pid) not in {0, guard})
    with_lock.send(signal.SIGKILL)

    eventually(lambda: not any(map(is_running, family)), seconds=1)


def guard_of(with_lock: int) -> int:
    """Return the pid of the child that is no command; 0 if there is none."""
    for task in Path(f"/proc/{with_lock}/task").iterdir():
        for child in task.joinpath("children").read_text().split():
            if b"whom" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return 0


def test_what_a_command_left_outside_its_group_runs_on(forking: Forking, log: Path) -> None:
    # docs/command.md says so.
    script = 'setsid sh -c \'echo $$ >>"$0"; exec sleep 60\' "$0" & sleep 60'
    with_lock = forking.start("k", "sh", "-c", script, str(log))
    daemon = int(lines(log, 1)[0])

    with_lock.send(signal.SIGKILL)
    with_lock.end()

    time.sleep(0.2)
    assert is_running(daemon)


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM], ids=lambda n: n.name
)
def test_a_guard_outlives_what_asks_it_to_end(number: signal.Signals) -> None:
    launcher = Launcher("/bin/sleep", ["sleep", "60"], os.environ)
    guard = Guard()
    guard.watch(-launcher.pid)
    launcher.go()
    # It has set itself up when it does not end by this.
    time.sleep(0.1)
    os.kill(guard.pid, number)

    os.close(guard._writer)

    assert os.waitpid(launcher.pid, 0)[1] == signal.SIGKILL
    os.waitpid(guard.pid, 0)


def test_a_guard_that_is_dismissed_kills_nobody() -> None:
    launcher = Launcher("/bin/sh", ["sh", "-c", "sleep 0.2; exit 3"], os.environ)
    guard = Guard()
    guard.watch(-launcher.pid)
    launcher.go()

    guard.dismiss()

    assert os.waitstatus_to_exitcode(os.waitpid(launcher.pid, 0)[1]) == 3
    assert not is_running(guard.pid)


def test_a_guard_that_was_killed_is_no_trouble() -> None:
    guard = Guard()
    os.kill(guard.pid, signal.SIGKILL)
    eventually(guard.has_died)

    guard.watch(1)
    guard.dismiss()
