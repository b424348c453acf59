from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from django_setnx_lock.management import launcher
from django_setnx_lock.management.launcher import Launcher


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_program_runs_when_it_is_told_to_go_on(tmp_path: Path) -> None:
    made = tmp_path / "made"
    started = Launcher("/bin/sh", ["sh", "-c", 'echo >"$0"; exit 5', str(made)], os.environ)
    before = made.exists()

    started.go()

    assert (status_of(started.pid), before, made.exists()) == (5, False, True)


def test_it_ends_without_having_run_when_nobody_is_left_to_tell_it(tmp_path: Path) -> None:
    made = tmp_path / "made"
    started = Launcher("/bin/sh", ["sh", "-c", 'echo >"$0"', str(made)], os.environ)

    started._control.close()

    assert (status_of(started.pid), made.exists()) == (0, False)


def test_what_keeps_the_program_from_running_is_raised(tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    unknown.write_text("\0")
    unknown.chmod(0o755)
    started = Launcher(str(unknown), ["unknown"], os.environ)

    with pytest.raises(OSError, match="Exec format error"):
        started.go()
    with pytest.raises(ChildProcessError):
        os.waitpid(started.pid, 0)


def test_one_that_was_killed_before_is_seen_by_its_status() -> None:
    started = Launcher("/bin/true", ["true"], os.environ)
    os.kill(started.pid, signal.SIGKILL)

    started.go()

    assert status_of(started.pid) == -signal.SIGKILL


def test_words_reach_the_program_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["-c", "", "a  b", "$HOME", "\udcff", "--", "é"]
    script = 'out=$0; printf "%s\\n" "$@" >"$out"'
    started = Launcher("/bin/sh", ["sh", "-c", script, str(out), *words], os.environ)

    started.go()

    assert status_of(started.pid) == 0
    assert out.read_bytes().split(b"\n")[:-1] == [os.fsencode(word) for word in words]


def test_inside_a_server_with_python_in_it_the_launcher_is_a_python_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")

    assert launcher._python() == str(python)
