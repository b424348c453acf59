from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# How a process that is looked after behaves is timed here to the moment, without a lock.
from django_setnx_lock.management.with_lock import child as child_module
from django_setnx_lock.management.with_lock.child import CannotRun, Child
from tests.management.guards import children_of
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
        child.wait()
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
    child.wait()

    assert child.status == 137
    assert not is_running(child.pid)


def test_a_signal_to_one_that_is_gone_is_no_error(child_of: Callable[..., Child]) -> None:
    child = child_of("true")
    child.wait()

    child.send(signal.SIGTERM)
    assert child.send_to_all(signal.SIGTERM) is True
    assert child.kill() is True


def test_what_keeps_us_from_starting_it_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_python", lambda: "/no/such/python")

    with pytest.raises(CannotRun, match=r"true cannot be started: .*No such file"):
        Child(["true"], os.environ)


def test_what_keeps_the_program_from_running_is_told(tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    unknown.write_text("\0")
    unknown.chmod(0o755)
    before = children_of(os.getpid()) if sys.platform == "linux" else []

    with pytest.raises(CannotRun, match="unknown cannot be executed: Exec format error"):
        Child([str(unknown)], os.environ)
    if sys.platform == "linux":
        assert children_of(os.getpid()) == before


def test_a_script_that_names_no_interpreter_is_run_by_a_shell(
    child_of: Callable[..., Child], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text('printf "%s|" "$0" "$@" >"$1"\n')
    script.chmod(0o755)
    out = tmp_path / "out"

    child_of(str(script), str(out), "a  b", "").wait()

    assert out.read_text() == f"{script}|{out}|a  b||"


def test_a_guard_that_cannot_start_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_python", lambda: "/bin/false")

    with pytest.raises(CannotRun, match="true cannot be started: what is to guard it was killed"):
        Child(["true"], os.environ)


def test_a_key_typed_while_the_guards_start_does_not_end_them(
    child_of: Callable[..., Child], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nkill -INT $$\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(child_module, "_python", lambda: str(python))

    child = child_of("sh", "-c", "kill -INT $$; exit 3")
    child.wait()

    # The signal is neither blocked nor pending in the command.
    assert child.ended_by == signal.SIGINT


def test_words_reach_the_program_as_they_are(
    child_of: Callable[..., Child], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["-c", "", "", "a  b", "$HOME", "\udcff", "--", "é", "x" * 100_000, ""]
    script = 'out=$0; printf "%s\\n" "$@" >"$out"'

    child_of("sh", "-c", script, str(out), *words).wait()

    assert out.read_bytes().split(b"\n")[:-1] == [os.fsencode(word) for word in words]


def test_inside_a_server_with_python_in_it_the_guards_are_a_python_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")

    assert child_module._python() == str(python)


def test_it_says_when_it_may_not_be_signalled(
    child_of: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of("sleep", "60")

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refused)

        assert child.send_to_all(signal.SIGTERM) is False
        assert not child.is_extinct()
