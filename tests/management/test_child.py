from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from django_setnx_lock.management import child as child_module
from django_setnx_lock.management.child import CannotRun, Child
from tests.processes import eventually, is_running


@pytest.fixture
def child_of() -> Iterator[Callable[..., Child]]:
    """Give a function that starts a child, which is killed in the end."""
    started: list[Child] = []

    def child_of(*command: str) -> Child:
        started.append(Child(command, os.environ))
        return started[-1]

    yield child_of
    for child in started:
        child.kill()
        child.close()


def test_it_tells_what_stopped_it(child_of: Callable[..., Child]) -> None:
    child = child_of("sleep", "60")

    child.send(signal.SIGSTOP)

    assert eventually(child.look) == signal.SIGSTOP
    assert child.status is None


def test_its_end_is_noted_once(child_of: Callable[..., Child]) -> None:
    child = child_of("sh", "-c", "exit 3")

    eventually(lambda: child.look() is None and child.status is not None)

    assert (child.look(), child.status) == (None, 3)


def test_it_leads_a_process_group_of_its_own(child_of: Callable[..., Child]) -> None:
    assert os.getpgid(child_of("sleep", "60").pid) != os.getpgrp()


def test_killing_it_returns_when_it_is_gone(child_of: Callable[..., Child]) -> None:
    child = child_of("sleep", "60")

    child.kill()

    assert child.status == 137
    assert not is_running(child.pid)


def test_a_signal_to_one_that_is_gone_is_no_error(child_of: Callable[..., Child]) -> None:
    child = child_of("true")
    child.kill()

    assert child.send(signal.SIGTERM) is True
    assert child.is_extinct()


@pytest.mark.parametrize("missing", ["Guard", "Launcher"])
def test_what_keeps_us_from_starting_it_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/bin/sh")

    monkeypatch.setattr(child_module, missing, refused)

    with pytest.raises(CannotRun, match=r"true cannot be started: .*No such file.*'/bin/sh'"):
        Child(["true"], os.environ)


ZOMBIE = """
import os
if os.fork():
    os.read(0, 1)
else:
    if not os.fork():
        os._exit(0)
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    os.setpgid(0, 0)
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they count")
@pytest.mark.parametrize("looks", [True, False], ids=["", "without looking at /proc"])
def test_dead_processes_that_nobody_takes_note_of_do_not_count(
    monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    # In the group is left what another process, outside it, does not take note of.
    (to_read, answer), (said, to_say) = os.pipe(), os.pipe()
    before = os.dup(0), os.dup(1)
    os.dup2(to_read, 0)
    os.dup2(to_say, 1)
    try:
        child = Child([sys.executable, "-ISc", ZOMBIE], os.environ)
    finally:
        os.dup2(before[0], 0)
        os.dup2(before[1], 1)
    outside = int(os.read(said, 100))
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: child.look() is None and child.status is not None)
    if not looks:
        monkeypatch.setattr(child_module, "_lives", lambda group: True)

    assert child.is_extinct() is looks

    os.kill(outside, signal.SIGKILL)
    child.close()
    for fd in (to_read, answer, said, to_say, *before):
        os.close(fd)


def test_it_says_when_it_may_not_be_signalled(
    child_of: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of("true")

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refused)

        assert child.send(signal.SIGTERM) is False
        assert not child.is_extinct()
