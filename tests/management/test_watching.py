"""How a command is ended: by signals, in time, with a lost lock; and when it counts as ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from django_setnx_lock import inspector, lock
from tests.management.forking import Forked, Forking, lines
from tests.management.test_matrix import RECORDER
from tests.processes import Stopwatch, eventually, is_running, may_be_late
from tests.servers import RealServer

IGNORES_TERM = 'trap "echo asked >>$0" TERM; echo $$ >>"$0"; while :; do sleep 0.05; done'
WAITS_LONG = 'echo $$ >>"$0"; sleep 60'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give the file in which commands write."""
    log = tmp_path / "log"
    log.touch()
    return log


def start(forking: Forking, log: Path, *options: str, script: str = WAITS_LONG) -> Forked:
    """Start a with_lock; return when its command runs."""
    with_lock = forking.start(*options, "k", "sh", "-c", script, str(log))
    lines(log, 1)
    return with_lock


def force_release() -> None:
    inspector().force_release("lock:k", inspector().get("lock:k").fingerprint)


def is_held(server: RealServer) -> bool:
    return bool(server.client().exists("lock:k"))


def test_the_lock_is_kept_until_the_last_process_of_the_group_has_ended(
    forking: Forking, real_server: RealServer, log: Path
) -> None:
    with_lock = start(forking, log, script='echo on >>"$0"; (sleep 0.4; echo off >>"$0") & exit 3')
    was_held = []

    while True:
        held = is_held(real_server)
        if "off" in log.read_text():
            break
        was_held.append(held)

    assert with_lock.end() == 3
    assert was_held
    assert all(was_held)
    assert not is_held(real_server)


def lose(forking: Forking, log: Path, script: str, *options: str) -> tuple[int, list[str]]:
    """Return the status of a with_lock whose lock is lost, and what its command wrote after."""
    with_lock = start(forking, log, "--timeout", "1", *options, script=script)
    force_release()
    status = with_lock.end()
    return status, log.read_text().splitlines()[1:]


ENDS_POLITELY = (
    'trap "echo asked >>$0; exit" TERM; echo on >>"$0"; for _ in 1 2 3 4 5 6 7 8 9 10 '
    + ('11 12; do sleep 0.1; done; echo done >>"$0"')
)


def test_a_command_whose_lock_is_lost_is_asked_to_end(forking: Forking, log: Path) -> None:
    assert lose(forking, log, ENDS_POLITELY) == (76, ["asked"])


@pytest.mark.matrix
def test_a_lost_lock_leaves_the_time_that_was_asked_for_to_end(forking: Forking, log: Path) -> None:
    script = (
        'trap "sleep 1.5; echo ended >>$0; exit" TERM; echo on >>"$0"; while :; do sleep 0.05; done'
    )

    # What is left of the lease at a renewal bounds it as well.
    given = lose(forking, log, script, "--timeout", "8", "--kill-after", "3")
    log.write_text("")
    not_given = lose(forking, log, script, "--timeout", "8", "--kill-after", "0.1")

    assert (given, not_given) == ((76, ["ended"]), (76, []))


def stopped_past_its_lease(forking: Forking, log: Path) -> Forked:
    """Give a with_lock that goes on when somebody else has its lock."""
    # Long enough for a command to begin on a machine that is busy.
    arguments = ("--timeout", "1.5", "k", sys.executable, "-ISc", RECORDER)
    with_lock = forking.start(*arguments, str(log), "plain")
    lines(log, 1)
    with_lock.send(signal.SIGSTOP)
    lock("k", timeout=60).take(10)
    with_lock.send(signal.SIGUSR1)
    with_lock.send(signal.SIGCONT)
    return with_lock


@may_be_late(1)
def test_one_that_goes_on_after_its_lease_ends_the_command_before_anything_else(
    forking: Forking, log: Path, late: float
) -> None:
    with_lock = stopped_past_its_lease(forking, log)
    with Stopwatch() as watch:
        command = int(log.read_text().split()[2])
        eventually(lambda: not is_running(command))
        ended = watch.seconds
        status = with_lock.end()

    assert status == 76
    assert "SIGUSR1" not in log.read_text()
    assert ended < late
    assert watch.seconds < 1 + late


def test_the_command_is_of_our_process_group(forking: Forking, log: Path) -> None:
    with_lock = start(forking, log, script='ps -o pgid= -p $$ >>"$0"')

    assert int(log.read_text()) == with_lock.pid
    assert with_lock.end() == 0


def test_what_a_terminal_sends_to_the_command_as_well_is_not_passed_on(
    forking: Forking, log: Path
) -> None:
    arguments = ("k", sys.executable, "-ISc", RECORDER, str(log), "plain")
    with_lock = forking.start(*arguments)
    lines(log, 1)

    with_lock.send(signal.SIGINT)
    with_lock.send(signal.SIGQUIT)
    with_lock.send(signal.SIGUSR1)

    assert with_lock.end() == 128 + signal.SIGUSR1
    assert log.read_text().splitlines()[1:] == ["child SIGUSR1"]


def ask_to_stop() -> None:
    look = inspector()
    look.ask_to_stop("lock:k", look.get("lock:k").fingerprint, by="joe", reason="deploy")


def test_a_command_whose_end_an_operator_asks_for_is_terminated_under_its_lock(
    forking: Forking, log: Path, real_server: RealServer
) -> None:
    script = (
        'trap "echo asked >>$0; sleep 0.5; exit 3" TERM; echo on >>"$0"; '
        "while :; do sleep 0.05; done"
    )
    with_lock = start(forking, log, "--timeout", "6", "--kill-after", "2", script=script)
    ask_to_stop()
    wrote = lines(log, 2)[1:]
    held = is_held(real_server)
    status = with_lock.end()

    assert held
    assert (status, wrote) == (3, ["asked"])
    assert not is_held(real_server)


def test_a_command_that_does_not_end_when_asked_is_killed_after_its_grace(
    forking: Forking, log: Path
) -> None:
    with_lock = start(forking, log, "--timeout", "1.5", "--kill-after", "0.2", script=IGNORES_TERM)
    ask_to_stop()

    assert with_lock.end() == 137
