"""A command under a lock: how long the lock lasts, what reaches the command, how it ends."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_setnx_lock import LockBusy, inspector, lock
from django_setnx_lock.core import LockHandle, State
from tests.faults.proxy import Proxy
from tests.management.conftest import COMMAND, Program
from tests.management.forking import lines
from tests.management.test_matrix import RECORDER
from tests.processes import Stopwatch, eventually, is_running, may_be_late
from tests.servers import RealServer

Start = Callable[..., Program]

LONG = "exec sleep 60"
# A second TERM would kill.
FORWARDED = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]
# Tells of each signal it gets, and ends with status 7 when it is given a line.
REPORTER = (
    sys.executable,
    "-c",
    """
import os, select, signal, sys
numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
           signal.SIGUSR2)
for number in numbers:
    if signal.getsignal(number) != signal.SIG_IGN:
        # Not print(), which a signal may interrupt, and cannot be called again meanwhile.
        name = signal.Signals(number).name
        signal.signal(number, lambda *_, name=name: os.write(1, f"{name}\\n".encode()))
# A signal that comes just before Python reads is told of only when the read returns. So it waits
# for either.
woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
print("on", flush=True)
while 0 not in select.select([0, woken], [], [])[0]:
    os.read(woken, 100)
sys.stdin.readline()
sys.exit(7)
""",
)
WAITS = ("sh", "-c", "echo on; read line; exit 5")
# Shells tell of the programs that a signal ended under them.
SLOW_TO_END = (
    'exec 2>/dev/null; trap "echo ending; sleep 0.5; echo ended; exit 4" TERM; '
    "echo on; while :; do sleep 0.05; done"
)
IGNORES_TERM = 'trap "" TERM; sleep 60 & echo $!; wait'


@pytest.fixture
def start_through(start: Start, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Give ``start``, but for programs that reach the server through the proxy."""
    monkeypatch.setenv("TEST_SERVER_URL", proxy.url)
    return start


@pytest.fixture
def resumed(real_server: RealServer) -> Iterator[RealServer]:
    """Give the real server, which goes on after the test if it was paused."""
    yield real_server
    real_server.resume()


def is_held(key: str = "k") -> bool:
    return inspector().get(f"lock:{key}").state is State.HELD


def terminate(with_lock: Program) -> None:
    with_lock.terminate()


def ask_to_stop(with_lock: Program) -> None:
    inspector().ask_to_stop("lock:k", inspector().get("lock:k").fingerprint, reason="deploy")


def force_release() -> None:
    seen = inspector().get("lock:k").fingerprint
    inspector().force_release("lock:k", seen, by="ann", reason="stale")


def called(*arguments: str, **options: Any) -> int:
    """Run the command in this process; return its status."""
    try:
        call_command("with_lock", *arguments, **options)
    except CommandError as error:
        return error.returncode
    return 0


def test_the_lock_is_kept_for_as_long_as_the_command_runs(start: Start) -> None:
    with_lock = start("--timeout", "3", "k", *WAITS, stdin=subprocess.PIPE)
    with_lock.line()

    with pytest.raises(LockBusy):
        lock("k").take(4)

    assert with_lock.communicate("\n", timeout=20) == ("", "")
    assert with_lock.returncode == 5


@pytest.mark.parametrize("end", [terminate, ask_to_stop])
def test_whoever_ends_the_command_the_lock_is_held_until_it_is_gone(
    start: Start, end: Callable[[Program], None]
) -> None:
    with_lock = start("--timeout", "6", "--kill-after", "2", "k", "sh", "-c", SLOW_TO_END)
    with_lock.line()

    end(with_lock)
    assert with_lock.line() == "ending"
    held_at_the_end = is_held()

    assert with_lock.end()[:2] == (4, "ended\n")
    assert held_at_the_end
    assert not is_held()


@may_be_late(0.4)
def test_after_a_kill_9_the_lock_is_free_when_its_lease_is_over(start: Start, late: float) -> None:
    with_lock = start("--timeout", "1", "k", "sh", "-c", "echo on; exec sleep 60")
    with_lock.line()

    with_lock.kill()
    killed = time.monotonic()
    lock("k").take(10)

    assert time.monotonic() - killed < 1 + late


@pytest.mark.parametrize("script", [SLOW_TO_END, f"sh -c '{SLOW_TO_END}' & wait"])
def test_when_the_lock_is_lost_the_command_and_what_it_started_are_asked_to_end(
    start: Start, script: str
) -> None:
    with_lock = start("--timeout", "6", "--kill-after", "2.4", "k", "sh", "-c", script)
    with_lock.line()

    force_release()

    assert with_lock.end() == (
        76,
        "ending\nended\n",
        "with_lock: the lock 'k' was force-released by ann: stale; sh is terminated, and killed "
        "after 2.4 s\n",
    )


def test_a_loss_found_at_the_release_is_status_76(start: Start) -> None:
    with_lock = start("k", *WAITS, stdin=subprocess.PIPE)
    with_lock.line()

    force_release()
    out, err = with_lock.communicate("\n", timeout=20)

    assert (with_lock.returncode, out) == (76, "")
    assert err == "with_lock: the lock 'k' was force-released by ann: stale\n"


def test_the_lock_outlives_a_short_outage(start_through: Start, proxy: Proxy) -> None:
    with_lock = start_through("--timeout", "6", "k", *WAITS, stdin=subprocess.PIPE)
    with_lock.line()

    proxy.refuse()
    said = with_lock.message()
    proxy.accept()
    eventually(lambda: (inspector().get("lock:k").remaining or 0) > 4.5)
    out, err = with_lock.communicate("\n", timeout=20)

    assert said.startswith("with_lock: cannot renew the lock, trying on for ")
    assert (with_lock.returncode, out, err) == (5, "", "")


def test_a_command_that_does_not_end_when_asked_is_killed_after_its_grace(start: Start) -> None:
    with_lock = start("--timeout", "1.5", "--kill-after", "0.2", "k", "sh", "-c", IGNORES_TERM)
    child = int(with_lock.line())

    ask_to_stop(with_lock)

    assert with_lock.end()[0] == 137
    assert not is_running(child)


@may_be_late(1)
def test_one_that_was_stopped_past_its_lease_ends_the_command_before_anything_else(
    start: Start, log: Path, late: float
) -> None:
    with_lock = start("--timeout", "1.5", "k", sys.executable, "-ISc", RECORDER, str(log), "plain")
    command = int(lines(log, 1)[0].split()[2])
    with_lock.send_signal(signal.SIGSTOP)
    lock("k", timeout=60).take(10)

    with_lock.send_signal(signal.SIGUSR1)
    with_lock.send_signal(signal.SIGCONT)
    with Stopwatch() as watch:
        eventually(lambda: not is_running(command))

    status, _, err = with_lock.end()
    assert status == 76
    assert "SIGUSR1" not in log.read_text()
    assert watch.seconds < late
    assert err.count("with_lock: ") == err.count("\n") > 0


def test_a_server_that_does_not_answer_keeps_nobody_from_the_command(
    start: Start, resumed: RealServer
) -> None:
    with_lock = start("--timeout", "2", "--kill-after", "0.1", "k", "sh", "-c", IGNORES_TERM)
    with_lock.line()

    resumed.pause()
    status, _, err = with_lock.end()

    assert status == 76
    assert re.search(r"renewed in time: .*Redis did not answer in time.*; sh is terminated", err)


def test_a_signal_reaches_the_command_while_the_server_does_not_answer(
    start: Start, resumed: RealServer
) -> None:
    with_lock = start("--timeout", "2", "k", "sh", "-c", "echo on; exec sleep 60")
    with_lock.line()

    resumed.pause()
    with_lock.terminate()

    status, _, err = with_lock.end()
    assert status == 143
    # By the time of the request, or of the lease, whichever ends first.
    ending = r"cannot release the lock, which ends with its lease in .* (did|does) not answer"
    assert re.search(ending, err)


def test_a_release_that_fails_is_a_message_and_the_status_stands(
    start_through: Start, proxy: Proxy
) -> None:
    with_lock = start_through("k", *WAITS, stdin=subprocess.PIPE)
    with_lock.line()

    proxy.refuse()
    out, err = with_lock.communicate("\n", timeout=20)

    assert (with_lock.returncode, out, err.count("\n")) == (5, "", 1)
    assert err.startswith("with_lock: cannot release the lock, which ends with its lease in ")


def test_each_signal_is_forwarded_once(start: Start) -> None:
    with_lock = start("k", *REPORTER, stdin=subprocess.PIPE)
    with_lock.line()
    reported = []

    for number in FORWARDED:
        with_lock.send_signal(number)
        reported.append(with_lock.line())
    out, err = with_lock.communicate("\n", timeout=20)

    assert reported == [number.name for number in FORWARDED]
    assert (with_lock.returncode, out, err) == (7, "", "")


def test_a_stopped_command_is_ended_too(start: Start) -> None:
    with_lock = start("k", "sh", "-c", "echo $$; exec sleep 60")
    os.kill(int(with_lock.line()), signal.SIGSTOP)

    with_lock.terminate()

    assert with_lock.end() == (143, "", "")


def test_what_a_terminal_sends_to_the_command_as_well_is_not_passed_on(
    start: Start, log: Path
) -> None:
    with_lock = start("k", sys.executable, "-ISc", RECORDER, str(log), "plain")
    lines(log, 1)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
        with_lock.send_signal(number)

    assert with_lock.end()[0] == 128 + signal.SIGUSR1
    assert log.read_text().splitlines()[1:] == ["child SIGUSR1"]


def test_the_command_is_of_our_process_group(start: Start) -> None:
    with_lock = start("k", "sh", "-c", "ps -o pgid= -p $$")

    status, out, _ = with_lock.end()
    assert (status, int(out)) == (0, with_lock.pid)


@pytest.mark.matrix
def test_a_hangup_that_nohup_ignores_stays_ignored(start: Start) -> None:
    nohup = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND)
    with_lock = start("k", *REPORTER, command=nohup, stdin=subprocess.PIPE)
    with_lock.line()

    with_lock.send_signal(signal.SIGHUP)
    out, _ = with_lock.communicate("\n", timeout=20)

    assert (with_lock.returncode, out) == (7, "")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_command_starts_with_the_signals_of_one_started_without_us(start: Start) -> None:
    show = ("cat", "/proc/self/status")
    directly = subprocess.run(show, capture_output=True, text=True, check=True).stdout

    status, out, _ = start("k", *show).end()

    assert (status, masks(out)) == (0, masks(directly))


def masks(shown: str) -> list[int]:
    """The sets of signals, without 32 and 33, which glibc keeps for itself."""
    lines = [line.split() for line in shown.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
    return [int(mask, 16) & ~(3 << 31) for _, mask in lines]


def test_a_lease_may_be_of_any_length_that_redis_takes(start: Start) -> None:
    assert start("--timeout", "1e9", "k", "true").end() == (0, "", "")


def test_the_command_inherits_open_files(start: Start) -> None:
    reader, writer = os.pipe()

    with_lock = start("k", "sh", "-c", f"echo here >/dev/fd/{writer}", pass_fds=[writer])
    status, _, _ = with_lock.end()
    os.close(writer)

    with open(reader) as file:
        assert (status, file.read()) == (0, "here\n")


def test_a_lease_that_is_over_before_the_start_is_a_lost_lock(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LockHandle, "lost", True)

    status = called("k", "echo", "started")

    assert (status, capfd.readouterr().out) == (76, "")


def test_whatever_goes_wrong_here_the_command_does_not_run_on_without_the_lock(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    poll = select.poll

    def broken() -> object:
        if log.exists() and log.read_text():
            raise ZeroDivisionError
        return poll()

    with monkeypatch.context() as patched:
        patched.setattr(select, "poll", broken)
        with pytest.raises(ZeroDivisionError):
            call_command("with_lock", "k", "sh", "-c", f"echo $$ >{log}; {LONG}")

    eventually(lambda: not is_running(int(log.read_text())))
    assert not is_held()


def test_a_guard_that_cannot_start_is_told_of_and_no_lock_is_left(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", refused)
        with pytest.raises(CommandError, match="Resource temporarily unavailable") as failed:
            call_command("with_lock", "k", "true")

    assert (failed.value.returncode, is_held()) == (126, False)
