"""Each signal, with and without a terminal, to each kind of command."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

import pytest

from tests.management.forking import Forking, lines
from tests.processes import is_running
from tests.servers import RealServer

TYPED = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
# Writes down each signal it gets, looks for a second copy, and ends by it as if it were nothing.
# "stubborn" does not end by TERM; "family" has a child in its group that takes longer to end;
# "patient" looks for longer.
RECORDER = """
import os, signal, sys
log, kind = sys.argv[1:]
who, patience = "child", 1.5 if kind == "patient" else 0.02
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
def tell(what):
    with open(log, "a") as file:
        file.write(f"{who} {what}\\n")
if kind == "family" and not os.fork():
    who, patience = "grandchild", 0.1
tell(f"on {os.getpid()}")
while True:
    number = signal.sigwait(numbers)
    tell(number.name)
    if signal.sigtimedwait(numbers, patience):
        tell("again")
    if kind == "stubborn" and number == signal.SIGTERM:
        continue
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize("kind", ["plain", "stubborn", "family"])
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("terminal", [True, False], ids=["pty", "no pty"])
def test_a_signal_comes_once_and_nothing_is_left(
    forking: Forking,
    real_server: RealServer,
    tmp_path: Path,
    terminal: bool,
    number: signal.Signals,
    kind: str,
) -> None:
    log = tmp_path / "log"
    log.touch()
    ours, its = pty.openpty()
    with open(ours, "wb", buffering=0) as keyboard:
        with_lock = forking.start(
            *("k", sys.executable, "-ISc", RECORDER, str(log), kind),
            terminal=its if terminal else None,
        )
        os.close(its)
        began = lines(log, 2 if kind == "family" else 1)

        if terminal and number in TYPED:
            keyboard.write(TYPED[number])
        elif terminal and number == signal.SIGHUP:
            keyboard.close()
        else:
            # As a shell does, which has no terminal to send them.
            (os.killpg if number in TYPED else os.kill)(with_lock.pid, number)
        told = lines(log, 2 * len(began))[len(began) :]
        if kind == "stubborn" and number == signal.SIGTERM:
            assert real_server.client().exists("lock:k")
            number = signal.SIGKILL
            os.kill(int(began[0].split()[2]), number)
        status = with_lock.wait()

    pids = [int(line.split()[2]) for line in began]
    assert status == (-number if number == signal.SIGINT else 128 + number)
    assert not [pid for pid in pids if is_running(pid)]
    assert not real_server.client().exists("lock:k")
    assert log.read_text().splitlines() == began + told


# Types Ctrl-C when the guard is there, and the command is not.
EARLY = """
class Early(socket.socket):
    def send(self, data, *options):
        if self.family == socket.AF_UNIX and os.getpid() == os.getsid(0):
            os.killpg(0, signal.SIGINT)
        return super().send(data, *options)
socket.socket = Early
"""
# Types it when the command is at work, and with_lock does not know yet that it lives.
LATE = """
class Late(socket.socket):
    def recv(self, *options):
        said = super().recv(*options)
        if said.startswith(bytes(4)):
            import time
            end = time.monotonic() + 20
            while not os.path.getsize({log!r}) and time.monotonic() < end:
                time.sleep(0.01)
            os.killpg(0, signal.SIGINT)
        return said
socket.socket = Late
"""


def test_a_key_that_is_typed_before_there_is_a_command_comes_to_it(
    forking: Forking, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    with_lock = forking.start("k", "sh", "-c", f"sleep 10; echo on > {log}", first=EARLY)

    assert with_lock.wait() == -signal.SIGINT
    assert not log.exists()


def test_a_key_that_is_typed_as_the_command_begins_comes_to_it_once(
    forking: Forking, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()

    with_lock = forking.start(
        *("k", sys.executable, "-ISc", RECORDER, str(log), "patient"),
        first=LATE.replace("{log!r}", repr(str(log))),
    )

    assert with_lock.wait() == -signal.SIGINT
    assert log.read_text().splitlines()[1:] == ["child SIGINT"]
