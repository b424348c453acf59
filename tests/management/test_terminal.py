"""with_lock at a terminal: its keys, reading from it, stopping and going on."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import State
from tests.management.conftest import CHECKOUT, COMMAND
from tests.management.forking import Forked, Forking
from tests.processes import eventually, readable
from tests.servers import RealServer
from tests.support import programs
from tests.support.seams import SAYS_WHEN_ENDED

SECONDS = 20
# Mostly dash.
SH = pytest.param("sh", marks=pytest.mark.matrix)
SHELLS = pytest.mark.parametrize("shell", [SH, "bash"])
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"
BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
ASKS = 'echo asking; read x; echo "got $x"'
# Makes stdin the controlling terminal of its session.
AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Console:
    """A program that was started at a terminal of its own; with_lock itself is forked.

    ``first`` is what that runs before.
    """

    def __init__(self, forks: Forking, *command: str, first: str = "") -> None:
        self.fd, its_end = pty.openpty()
        count = len(COMMAND)
        self.process: subprocess.Popen[bytes] | Forked
        if command[:count] == COMMAND:
            self.process = forks.start(*command[count:], terminal=its_end, first=first)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-ISc", AT_A_TERMINAL, *command],
                cwd=CHECKOUT,
                stdin=its_end,
                stdout=its_end,
                stderr=its_end,
                start_new_session=True,
            )
        self.name = os.ttyname(its_end)
        os.close(its_end)
        self.shown = ""

    def __repr__(self) -> str:
        return f"<Console that shows {self.shown!r}>"

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
        if not readable(self.fd, within=seconds):
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
    real_cache: RealServer, forks: Forking, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Console]]:
    """Give a function that starts a program at a new terminal."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("PS1", "ready> ")
    consoles: list[Console] = []

    def console(*command: str, first: str = "") -> Console:
        consoles.append(Console(forks, *command, first=first))
        return consoles[-1]

    yield console
    for each in consoles:
        each.close()


Open = Callable[..., Console]


@pytest.fixture
def shell(console: Open) -> Console:
    """Give bash with job control, in which ``$wl`` is with_lock."""
    programs.need("bash")
    shell = console(*BASH)
    assert shell.shows("ready> ")
    shell.type(f"wl='{' '.join(COMMAND)}'\n")
    assert shell.shows("ready> ")
    return shell


def is_held() -> bool:
    return inspector().get("lock:k").state is State.HELD


def test_ctrl_c_ends_what_the_command_has_left(console: Open) -> None:
    # What a shell starts with & ignores INT otherwise.
    script = "env --default-signal=INT timeout 100 sh -c 'echo on; exec sleep 60' &"
    terminal = console(*COMMAND, "k", "sh", "-c", script, first=SAYS_WHEN_ENDED)
    # A key that is typed while with_lock takes the command for alive is left to the command.
    assert terminal.shows(r"(on|ended)\n(on|ended)\n")
    was_held = is_held()

    terminal.type(CTRL_C)

    assert terminal.end() == 0
    assert was_held


def test_the_command_can_read_the_terminal(console: Open) -> None:
    terminal = console(*COMMAND, "k", "sh", "-c", ASKS)
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


NEXT_STEP = '"$@"; echo "next step"'
IN_A_LOOP = 'for i in 1 2 3; do "$@"; echo "round $i"; done; echo "next step"'


@pytest.mark.parametrize("script", [NEXT_STEP, IN_A_LOOP], ids=["lines", "loop"])
@SHELLS
def test_ctrl_c_ends_the_script_that_calls_it(console: Open, shell: str, script: str) -> None:
    terminal = console(shell, "-c", script, shell, *COMMAND, "k", "sleep", "60")
    eventually(is_held)

    terminal.type(CTRL_C)

    assert terminal.end() == -signal.SIGINT
    assert "round" not in terminal.shown
    assert "next step" not in terminal.shown
    assert not is_held()


@SHELLS
def test_ctrl_c_ends_the_script_that_waits_for_the_lock(console: Open, shell: str) -> None:
    with lock("k"):
        terminal = console(shell, "-c", IN_A_LOOP, shell, *COMMAND, "k", "true")
        assert terminal.shows("waiting: the lock 'k'")

        terminal.type(CTRL_C)

        assert terminal.end() == -signal.SIGINT
        assert "round" not in terminal.shown
        assert not inspector().get("lock:k").waiting


# Bash drops what is typed before its prompt is there.
STOPPED = r"Stopped[^\0]*ready> "


IN_A_NAMESPACE = ("unshare", "--pid", "--fork")


@pytest.fixture
def namespaces() -> None:
    """Skip where no PID namespace may be made, as in most containers."""
    programs.need("unshare")
    if subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace may be made here")


@pytest.mark.matrix
@pytest.mark.usefixtures("namespaces")
def test_where_the_system_tells_of_nobody_the_command_itself_is_ended(console: Open) -> None:
    # It hears of what is asked when it renews. A busy machine keeps it from that for a while.
    inside = ("--timeout", "3", "k", "sh", "-c", "echo on; exec sleep 60")
    terminal = console(*IN_A_NAMESPACE, *COMMAND, *inside)
    assert terminal.shows("on")
    inspector().ask_to_stop("lock:k", inspector().get("lock:k").fingerprint)

    assert terminal.end() == 143


@pytest.mark.matrix
@pytest.mark.usefixtures("namespaces")
def test_the_first_process_of_a_container_exits_with_the_status_of_a_signal(console: Open) -> None:
    inside = [*IN_A_NAMESPACE, "--mount-proc", *COMMAND, "k", "sh", "-c", "kill -TERM $$"]

    assert console(*inside).end() == 143


@pytest.mark.matrix
def test_ctrl_c_ends_a_pipeline(shell: Console) -> None:
    shell.type("set -o pipefail; $wl k sleep 60 | cat\n")
    eventually(is_held)

    shell.type(CTRL_C)
    assert shell.shows("ready> ")
    shell.type("echo status $?\n")

    assert shell.shows("status 130\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_z_stops_it_and_fg_goes_on(shell: Console, tmp_path: Path) -> None:
    # What is typed before it reads belongs to nobody yet.
    shell.type(f"$wl k sh -c 'echo $$ >{tmp_path}/pid; echo on; exec cat'\n")
    assert shell.shows("\non\n")
    shell.type("one\n")
    assert shell.shows("one\none\n")
    stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")

    shell.type(CTRL_Z)
    assert shell.shows(STOPPED)
    # The shell has seen with_lock stop, beside which the command stops on its own.
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    shell.type("fg\n")
    assert shell.shows("exec cat'\n")
    shell.type("two\n")
    assert shell.shows("two\ntwo\n")
    shell.type(CTRL_D)
    assert shell.shows("ready> ")

    eventually(lambda: not is_held())


@pytest.mark.matrix
def test_ctrl_z_stops_a_pipeline_and_fg_goes_on(shell: Console) -> None:
    # What is stopped in the midst of a vfork() keeps its parent, dash, from being stopped.
    shell.type("$wl k sh -c '(echo on; exec sleep 1); echo done' | cat\n")
    assert shell.shows("\non\n")

    shell.type(CTRL_Z)
    assert shell.shows(STOPPED)
    shell.type("fg\n")

    assert shell.shows("\ndone\n")


def test_ctrl_z_stops_it_while_it_waits_for_the_lock(shell: Console) -> None:
    with lock("k"):
        shell.type("$wl k echo started\n")
        assert shell.shows("waiting: the lock 'k'")

        shell.type(CTRL_Z)
        assert shell.shows(STOPPED)
        shell.type("fg\n")

    assert shell.shows("\nstarted\n")


def test_a_background_job_stops_when_it_wants_to_read_and_fg_goes_on(shell: Console) -> None:
    shell.type(f"$wl k sh -c '{ASKS}' &\n")
    assert shell.shows("asking\n")
    shell.type('while [ "$(jobs -r)" ]; do sleep 0.1; done\n')
    assert shell.shows(STOPPED)
    shell.type("fg\n")
    assert shell.shows("read x")
    shell.type("it\n")

    assert shell.shows("got it\n")


def test_where_no_shell_could_continue_it_ctrl_z_does_nothing(console: Open) -> None:
    terminal = console(*COMMAND, "k", "sh", "-c", ASKS)
    assert terminal.shows("asking\n")

    terminal.type(CTRL_Z)
    terminal.type("it\n")

    assert terminal.shows("got it\n")


@pytest.mark.matrix
def test_locks_release_asks_before_it_releases(console: Open) -> None:
    lock("k").take()
    terminal = console(sys.executable, "-m", "django", "locks", "release", "k")
    assert terminal.shows(r"is held by \S+: held, for [^\0]*\[y/N\] ")

    terminal.type("y\n")

    assert terminal.end() == 0
    assert not is_held()
