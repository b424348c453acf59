"""The lock follows all that came from the command, also what has left its process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from django_setnx_lock import inspector
from tests.management.conftest import Program
from tests.management.forking import Forked, Forking, lines
from tests.management.guards import MARK, children_of, guard_of, marked
from tests.processes import eventually, figure, is_running
from tests.servers import RealServer
from tests.support import programs
from tests.support.seams import SLOW_LOOKS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere: what can be found")

# Each writes down its pid. The second one outlives the first if it is left alone.
SLEEPS = 'sh -c \'echo $$ >>"$0"; exec sleep 71\' "$0"'
TIMEOUT = f'echo $$ >>"$0"; timeout 100 {SLEEPS}; exit 5'
JOBS = {
    "timeout": ("sh", "-c", TIMEOUT),
    "set -m": ("bash", "-c", f'set -m; echo $$ >>"$0"; {SLEEPS}; exit 5'),
    # It may not open the file itself.
    "su": (
        *("sh", "-c"),
        'exec 3>>"$0"; echo $$ >&3; su nobody -s /bin/sh -c "echo \\$\\$ >&3; exec sleep 71"; :',
    ),
    "daemon": ("sh", "-c", f'(setsid {SLEEPS} &) >&- 2>&-; echo $$ >>"$0"; exec sleep 71'),
}
BACKGROUND = 'sleep 71 & echo $! >>"$0"; exit 5'
# Starts another one of itself and ends, again and again, each in a session of its own if asked.
HOPS = """
import os, sys
while True:
    if os.fork():
        os._exit(0)
    if sys.argv[2:]:
        os.setsid()
    with open(sys.argv[1], "w") as file:
        file.write(f"{os.getpid()}\\n")
"""


def family_of(forking: Forking, log: Path, job: str, *options: str) -> tuple[Forked, list[int]]:
    """Start a with_lock; return it, and the pids of the command and of what it has started."""
    needed = {"su": ["su"], "set -m": ["bash"], "daemon": ["setsid"], "timeout": ["timeout"]}
    programs.need(*needed[job])
    if job == "su" and os.getuid():
        pytest.skip("only root need not give a password")
    with_lock = forking.start(*options, "k", *JOBS[job], str(log))
    return with_lock, [int(pid) for pid in lines(log, 2)]


def nobody_gets_in_before_the_end_of(forking: Forking, family: list[int]) -> int:
    """Try to take the lock until it is had or all have ended; return the last status."""

    def is_over() -> int:
        status = forking.start("-n", "k", "true").wait()
        left = [pid for pid in family if is_running(pid)]
        assert status == 75 or not left
        return 0 if left else status or 1

    return eventually(is_over, seconds=10)


def by_term(with_lock: Forked) -> None:
    with_lock.terminate()


def by_kill_of_the_wrapper(with_lock: Forked) -> None:
    os.kill(with_lock.pid, signal.SIGKILL)


def by_kill_of_the_guard(with_lock: Forked) -> None:
    os.kill(guard_of(with_lock.pid), signal.SIGKILL)


KILLED = [by_kill_of_the_wrapper, by_kill_of_the_guard]


@pytest.mark.parametrize(
    ("job", "end"),
    [
        *(("timeout", end) for end in (by_term, *KILLED)),
        *(
            pytest.param(job, end, marks=pytest.mark.matrix if end == by_term else ())
            for job in ("set -m", "su", "daemon")
            for end in (by_term, KILLED[0])
        ),
    ],
)
def test_nobody_gets_the_lock_before_the_last_descendant_is_gone(
    forking: Forking, real_server: RealServer, log: Path, job: str, end: Callable[[Forked], None]
) -> None:
    with_lock, family = family_of(forking, log, job)

    began = time.monotonic()
    end(with_lock)
    status = nobody_gets_in_before_the_end_of(forking, family)
    took = time.monotonic() - began

    figure(f"{job}, {end.__name__}: {took:.2f} s")
    wrapper_was_killed = with_lock.wait() == -signal.SIGKILL
    # Far from the end of the lease, which a killed one leaves to run out.
    assert took < 10
    assert bool(real_server.client().exists("lock:k")) == wrapper_was_killed
    assert not wrapper_was_killed or status == 75


@pytest.mark.parametrize(
    "job", ["timeout", *(pytest.param(job, marks=pytest.mark.matrix) for job in ("set -m", "su"))]
)
def test_after_a_force_release_none_outlives_the_lease(
    forking: Forking, log: Path, job: str
) -> None:
    # The lock itself is free at once: that is what a force-release is for.
    with_lock, family = family_of(forking, log, job, "--timeout", "3")

    inspector().force_release("lock:k", inspector().get("lock:k").fingerprint)
    lost = time.monotonic()

    eventually(lambda: not any(map(is_running, family)), seconds=10)
    assert time.monotonic() - lost < 3
    assert with_lock.wait() == 76


def test_what_is_left_in_the_background_keeps_the_lock_and_not_the_status(
    start: Callable[..., Program], real_server: RealServer, log: Path
) -> None:
    with_lock = start("k", "sh", "-c", BACKGROUND, str(log), stdout=subprocess.DEVNULL)
    left = int(lines(log, 1)[0])
    # Its guard has adopted it.
    assert eventually(lambda: children_of(guard_of(with_lock.pid)) == [left])
    was_held = real_server.client().exists("lock:k")

    os.kill(left, signal.SIGTERM)

    assert with_lock.end()[0] == 5
    assert (was_held, real_server.client().exists("lock:k")) == (1, 0)


@pytest.mark.parametrize("where", [[], ["away"]], ids=["our session", "sessions of their own"])
def test_what_forks_faster_than_it_is_looked_for_does_not_get_away(
    forking: Forking, log: Path, where: list[str]
) -> None:
    with_lock = forking.start(
        *("--timeout", "1.5", "--kill-after", "0.1"),
        *("k", sys.executable, "-ISc", HOPS, str(log), *where),
        environment={MARK: str(log)},
    )

    lines(log, 1)
    look = inspector()
    look.ask_to_stop("lock:k", look.get("lock:k").fingerprint)

    assert with_lock.wait() == 0
    assert marked(str(log)) == []


def test_what_is_started_while_the_command_is_signalled_gets_the_signal_too(
    forking: Forking, log: Path
) -> None:
    script = 'echo >>"$0"; sleep 0.2; sleep 60'
    with_lock = forking.start(
        *("--kill-after", "12", "k", "sh", "-c", script, str(log)), first=SLOW_LOOKS
    )
    lines(log, 1)

    with_lock.send_signal(signal.SIGTERM)

    assert with_lock.has_ended(within=15)
    assert with_lock.wait() == 143


# Does what su(1) does when it finds its child stopped: it stops itself, once.
STOPS_ITSELF = """
import os, signal, sys
def stop(*_):
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(4)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGCONT, stop)
with open(sys.argv[1], "w") as file:
    file.write("on\\n")
while True:
    signal.pause()
"""


def test_one_that_stops_itself_upon_a_signal_goes_on(forking: Forking, log: Path) -> None:
    with_lock = forking.start("k", sys.executable, "-ISc", STOPS_ITSELF, str(log))
    lines(log, 1)

    with_lock.send_signal(signal.SIGTERM)

    assert with_lock.has_ended(within=15)
    assert with_lock.wait() == 4


def test_when_both_are_killed_at_once_the_command_itself_dies(forking: Forking, log: Path) -> None:
    with_lock, family = family_of(forking, log, "timeout")
    both = (guard_of(with_lock.pid), with_lock.pid)

    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    for pid in both:
        os.kill(pid, signal.SIGKILL)

    eventually(lambda: not is_running(family[0]), seconds=5)


def test_other_children_of_a_program_that_calls_it_are_left_alone(
    real_cache: RealServer, log: Path
) -> None:
    ends = subprocess.Popen(["sh", "-c", "sleep 0.1; exit 9"])
    stays = subprocess.Popen(["sleep", "60"])

    call_command("with_lock", "k", "sh", "-c", "(sleep 0.3 &); exit 0")
    running = stays.poll()
    stays.kill()

    assert (ends.wait(timeout=5), running) == (9, None)
    assert stays.wait(timeout=5) == -signal.SIGKILL
