"""When with_lock is killed with -9 its command dies, with all that the command has started."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from django_setnx_lock import inspector
from tests.management.conftest import Program
from tests.management.forking import Forking, lines
from tests.management.guards import MARK, guard_of, marked
from tests.processes import Stopwatch, eventually, figure, is_running, may_be_late

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# The shell, one in the background, and what that one runs.
FAMILY = 'echo $$ >>"$0"; (sleep 60 & echo $! >>"$0"; wait) & echo $! >>"$0"; wait'
# The same; it tells of each USR1.
ANSWERING = f"trap 'echo told >>\"$0\"' USR1; {FAMILY}; while :; do wait; done"
# Before the guard is asked to start the command, and right after: what they say to each other goes
# over a socket that is not one of the network. The guard has the same code.
KILLED = """
import os, socket
def patched(name, last):
    real = getattr(socket.socket, name)
    def call(own, *given):
        if own.family == socket.AF_UNIX and os.getpid() == os.getsid(0):
            last(real, own, *given)
            os.kill(os.getpid(), 9)
        return real(own, *given)
    setattr(socket.socket, name, call)
"""
MOMENTS = {
    "not asked": "patched('send', lambda *_: None)",
    "asked": "patched('send', lambda real, own, *given: real(own, *given))",
    "started": "patched('recv', lambda *_: None)",
}

# Once with_lock has read that the command has ended, and before it makes anything of that, it gets
# a signal; what the guard says next is there by then.
SIGNALLED = """
import socket
def recv(own, *given, real=socket.socket.recv):
    import os, select, signal, struct
    said = real(own, *given)
    if len(said) == 8 and struct.unpack("ii", said)[0] == 1:
        select.select([own], [], [], 20)
        os.kill(os.getpid(), signal.SIGTERM)
    return said
socket.socket.recv = recv
"""
# The guard is refused another process, or a thread, as where the user has too many.
REFUSED = """
global errno, os, threading
import errno, os, threading

def refuse(owner, name, error, with_lock=os.getpid()):
    real = getattr(owner, name)
    def call(*given):
        if os.getpid() != with_lock and os.getppid() == with_lock:
            raise error
        return real(*given)
    setattr(owner, name, call)
"""
REFUSALS = {
    "process": "refuse(os, 'fork', BlockingIOError(errno.EAGAIN, 'too many'))",
    "thread": "refuse(threading.Thread, 'start', RuntimeError('too many'))",
}


@may_be_late(1)
def test_the_command_and_all_that_it_started_are_dead_within_a_second(
    forking: Forking, log: Path, late: float
) -> None:
    with_lock = forking.start("k", "sh", "-c", FAMILY, str(log))
    family = [int(pid) for pid in lines(log, 3)]

    with_lock.send_signal(signal.SIGKILL)
    assert with_lock.wait() == -signal.SIGKILL

    with Stopwatch() as watch:
        eventually(lambda: not any(map(is_running, family)))

    figure(f"dead {watch.seconds * 1000:.0f} ms after with_lock was killed")
    assert watch.seconds < late


def test_a_signal_as_with_lock_hears_of_the_end_changes_nothing(
    forking: Forking, log: Path
) -> None:
    with log.open("w") as err:
        with_lock = forking.start(
            *("k", "sh", "-c", "exit 3"), first=SIGNALLED, stdout=err, stderr=err
        )

    assert with_lock.wait() == 3
    assert log.read_text() == ""


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_that_is_killed_as_it_starts_the_command_leaves_none(
    forking: Forking, log: Path, moment: str
) -> None:
    script = 'sleep 0.2; echo $$ >>"$0"'
    with_lock = forking.start(
        *("k", "sh", "-c", script, str(log)),
        first=f"{KILLED}\n{MOMENTS[moment]}",
        environment={MARK: str(log)},
    )

    assert with_lock.wait() == -signal.SIGKILL

    eventually(lambda: not marked(str(log)))
    assert log.read_text() == ""


def test_without_its_guard_the_command_dies_and_we_say_why(
    start: Callable[..., Program], log: Path
) -> None:
    script = f"trap 'echo told' USR1; {FAMILY}; wait"
    with_lock = start("k", "sh", "-c", script, str(log))
    family = [int(pid) for pid in lines(log, 3)]
    # Once it passes signals on, it knows that the command was started.
    with_lock.send_signal(signal.SIGUSR1)
    assert with_lock.line() == "told"

    os.kill(guard_of(with_lock.pid), signal.SIGKILL)

    assert with_lock.end() == (
        137,
        "",
        "with_lock: what guards sh was killed; sh is terminated, and killed after 0.0 s\n",
    )
    assert not any(map(is_running, family))


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM], ids=lambda n: n.name
)
def test_the_guard_outlives_what_asks_it_to_end(
    forking: Forking, log: Path, number: signal.Signals
) -> None:
    with_lock = forking.start("k", "sh", "-c", ANSWERING, str(log))
    family = [int(pid) for pid in lines(log, 3)]
    guard = guard_of(with_lock.pid)

    os.kill(guard, number)
    with_lock.send_signal(signal.SIGUSR1)

    assert lines(log, 4)[3] == "told"
    assert all(map(is_running, [guard, *family]))


def test_the_guard_outlives_what_kills_by_the_words_of_the_command(
    forking: Forking, log: Path
) -> None:
    with_lock = forking.start("k", "sh", "-c", 'echo $$ >>"$0"; sleep 60', str(log))
    command = int(lines(log, 1)[0])
    guard = guard_of(with_lock.pid)

    # As pkill -f finds them.
    assert str(log) in Path(f"/proc/{command}/cmdline").read_text()
    assert str(log) not in Path(f"/proc/{guard}/cmdline").read_text()
    # It ends with the command.
    with_lock.send_signal(signal.SIGTERM)
    assert with_lock.wait() == 143
    eventually(lambda: not is_running(guard))


@pytest.mark.parametrize("what", REFUSALS)
def test_a_command_that_the_system_has_no_process_for_is_126_and_says_so(
    forking: Forking, tmp_path: Path, what: str
) -> None:
    started, said = tmp_path / "started", tmp_path / "said"
    with said.open("w") as err:
        with_lock = forking.start(
            *("k", "touch", str(started)),
            first=REFUSED + REFUSALS[what],
            stderr=err,
        )

        assert with_lock.has_ended(20)
    assert with_lock.wait() == 126
    assert re.fullmatch(r"with_lock: the command cannot be started: .*too many\n", said.read_text())
    assert not started.exists()
    assert not inspector().get("lock:k").is_held
