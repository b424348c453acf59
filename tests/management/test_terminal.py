"""with_lock at a terminal: its keys, reading from it, stopping and going on."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from django_setnx_lock.core.inspection import State
from django_setnx_lock.locks import inspector, lock
from tests.management.conftest import CHECKOUT, COMMAND
from tests.management.test_supervisor import REPORTER
from tests.processes import eventually
from tests.servers import RealServer

# A shell has races of its own between what it shows and when it takes a key.
pytestmark = pytest.mark.flaky(reruns=2, reruns_delay=1)
SECONDS = 20
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
ASKS = 'echo asking; read x; echo "got $x"'
# Makes stdin the controlling terminal of its session.
AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
# The command without one of its rules.
NEVER_LENDS = (
    sys.executable,
    "-c",
    """
import sys
from django.core.management import execute_from_command_line
from django_setnx_lock.management.terminal import Terminal

Terminal.lend = lambda self, group: False
execute_from_command_line(["manage.py", "with_lock", *sys.argv[1:]])
""",
)


class Console:
    """A program that was started at a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self.fd, its_end = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", AT_A_TERMINAL, *command],
            cwd=CHECKOUT,
            stdin=its_end,
            stdout=its_end,
            stderr=its_end,
            start_new_session=True,
        )
        os.close(its_end)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def shows(self, pattern: str, seconds: float = SECONDS) -> bool:
        """Say whether ``pattern`` appears in time after what was found last; go on behind it."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown)):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                return False
        self.shown = self.shown[found.end() :]
        return True

    def end(self) -> int:
        """Return the exit status when it has ended."""
        while self._read(SECONDS):
            pass
        return self.process.wait(timeout=SECONDS)

    def close(self) -> None:
        # Hangs up: everything that was started here gets SIGHUP.
        os.close(self.fd)
        self.process.kill()
        self.process.wait(timeout=SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            # How Linux says that nobody has the terminal open any more.
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return bool(data)


@pytest.fixture
def console(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Console]]:
    """Give a function that starts a program at a new terminal."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("PS1", "ready> ")
    consoles: list[Console] = []

    def console(*command: str) -> Console:
        consoles.append(Console(*command))
        return consoles[-1]

    yield console
    for each in consoles:
        each.close()


Open = Callable[..., Console]


@pytest.fixture
def shell(console: Open) -> Console:
    """Give bash with job control, in which ``$wl`` is with_lock."""
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    shell = console(*BASH)
    assert shell.shows("ready> ")
    shell.type(f"wl='{' '.join(COMMAND)}'\n")
    assert shell.shows("ready> ")
    return shell


def is_held() -> bool:
    return inspector().get("lock:k").state is State.HELD


def test_ctrl_c_reaches_the_command_once(console: Open) -> None:
    terminal = console(*COMMAND, "k", *REPORTER)
    assert terminal.shows("on\n")

    terminal.type(CTRL_C)
    assert terminal.shows("SIGINT")
    terminal.type("\n")

    assert terminal.end() == 7
    assert "SIGINT" not in terminal.shown


def test_ctrl_c_ends_a_command_that_does_not_catch_it(console: Open) -> None:
    terminal = console(*COMMAND, "k", "sleep", "60")
    eventually(is_held)

    terminal.type(CTRL_C)

    assert terminal.end() == 130
    assert not is_held()


def test_ctrl_c_ends_what_the_command_has_left(console: Open) -> None:
    # What a shell starts with & ignores INT otherwise.
    script = "env --default-signal=INT timeout 100 sleep 60 & sleep 0.1"
    terminal = console(*COMMAND, "-v2", "k", "sh", "-c", script)
    assert terminal.shows("sh ended with status 0; what it has started has not")
    was_held = is_held()

    terminal.type(CTRL_C)

    assert terminal.end() == 0
    assert was_held


def test_ctrl_c_ends_the_wait_for_the_lock(console: Open) -> None:
    with lock("k"):
        terminal = console(*COMMAND, "k", "true")
        assert terminal.shows("waiting for 'k'")

        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert not inspector().get("lock:k").waiting


def test_the_command_can_read_the_terminal(console: Open) -> None:
    terminal = console(*COMMAND, "k", "sh", "-c", ASKS)
    assert terminal.shows("asking\n")

    terminal.type("it\n")

    assert terminal.shows("got it\n")
    assert terminal.end() == 0


def test_without_the_terminal_lent_it_could_not(console: Open) -> None:
    terminal = console(*NEVER_LENDS, "k", "sh", "-c", ASKS)
    assert terminal.shows("asking\n")

    terminal.type("it\n")

    assert not terminal.shows("got it\n", seconds=1)


def test_a_script_that_calls_it_has_the_terminal_again_afterwards(console: Open) -> None:
    terminal = console("sh", "-c", f'"$@"; {ASKS}', "sh", *COMMAND, "k", "sh", "-c", ASKS)

    for _ in range(2):
        assert terminal.shows("asking\n")
        terminal.type("it\n")
        assert terminal.shows("got it\n")

    assert terminal.end() == 0


def test_ctrl_c_reaches_both_the_command_and_the_script_that_calls_it(console: Open) -> None:
    script = 'trap "echo script" INT; "$@"; echo "status $?"'
    terminal = console("sh", "-c", script, "sh", *COMMAND, "k", "sleep", "60")
    eventually(is_held)

    terminal.type(CTRL_C)

    assert terminal.shows("script\nstatus 130\n")


def test_ctrl_c_ends_a_pipeline(shell: Console) -> None:
    shell.type("set -o pipefail; $wl k sleep 60 | cat\n")
    eventually(is_held)

    shell.type(CTRL_C)
    assert shell.shows("ready> ")
    shell.type("echo status $?\n")

    assert shell.shows("status 130\n")


def test_ctrl_z_stops_it_and_fg_goes_on(shell: Console) -> None:
    shell.type("$wl k cat\n")
    eventually(is_held)
    shell.type("one\n")
    assert shell.shows("\none\none\n")

    shell.type(CTRL_Z)
    assert shell.shows("Stopped")
    assert shell.shows("ready> ")
    shell.type("fg\n")
    assert shell.shows("k cat\n")
    shell.type("two\n")
    assert shell.shows("two\ntwo\n")
    shell.type(CTRL_D)
    assert shell.shows("ready> ")

    eventually(lambda: not is_held())


def test_ctrl_z_stops_a_pipeline_and_fg_goes_on(shell: Console) -> None:
    # What is stopped in the midst of a vfork() keeps its parent, dash, from being stopped.
    shell.type("$wl k sh -c '(echo on; exec sleep 1); echo done' | cat\n")
    assert shell.shows("\non\n")

    shell.type(CTRL_Z)
    assert shell.shows("Stopped")
    assert not shell.shows("done\n", seconds=1.5)
    shell.type("fg\n")

    assert shell.shows("\ndone\n")


def test_ctrl_z_stops_it_while_it_waits_for_the_lock(shell: Console) -> None:
    with lock("k"):
        shell.type("$wl k echo started\n")
        assert shell.shows("waiting for 'k'")

        shell.type(CTRL_Z)
        assert shell.shows("Stopped")
        shell.type("fg\n")

    assert shell.shows("\nstarted\n")


def test_a_background_job_stops_when_it_wants_to_read_and_fg_goes_on(shell: Console) -> None:
    shell.type(f"$wl k sh -c '{ASKS}' &\n")
    assert shell.shows("asking\n")
    shell.type('while [ "$(jobs -r)" ]; do sleep 0.1; done\n')
    assert shell.shows("Stopped")
    shell.type("fg\n")
    assert shell.shows("read x")
    shell.type("it\n")

    assert shell.shows("got it\n")


def test_a_command_whose_lock_ended_while_it_was_stopped_does_not_go_on(shell: Console) -> None:
    shell.type("$wl --timeout 0.6 k sh -c 'trap \"echo ended; exit\" TERM; echo on; read x'\n")
    assert shell.shows("\non\n")
    shell.type(CTRL_Z)
    assert shell.shows("Stopped")

    with lock("k", blocking_timeout=5):
        shell.type("fg; echo status $?\n")

        assert shell.shows(
            r"the lease of the lock 'k' ran out: this process stood still .*; sh is terminated"
            r"|could not be renewed"
        )
        assert shell.shows("status 76\n")


def test_where_no_shell_could_continue_it_ctrl_z_does_nothing(console: Open) -> None:
    terminal = console(*COMMAND, "k", "sh", "-c", ASKS)
    assert terminal.shows("asking\n")

    terminal.type(CTRL_Z)
    terminal.type("it\n")

    assert terminal.shows("got it\n")


def test_a_message_from_the_background_does_not_stop_it(
    console: Open, real_cache: RealServer
) -> None:
    terminal = console(
        *COMMAND, "--timeout", "1.5", "k", "sh", "-c", "stty tostop; echo on; sleep 60"
    )
    assert terminal.shows("on\n")

    inspector().force_release("lock:k", inspector().get("lock:k").fingerprint)

    assert terminal.shows("sh is terminated")
    assert terminal.end() == 76


NOBODY_TO_BORROW_FROM = """
import os
from django_setnx_lock.management.terminal import Terminal
terminal = Terminal()
print(terminal.lend(os.getpgrp()))
terminal.take_back()
terminal.close()
"""


def test_without_a_terminal_nothing_is_lent() -> None:
    # A new session has none.
    ended = subprocess.run(
        [sys.executable, "-c", NOBODY_TO_BORROW_FROM],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=SECONDS,
    )

    assert (ended.stdout, ended.stderr) == ("False\n", "")
