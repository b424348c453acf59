"""A job that several machines start at about the same time runs once: ``--min-hold``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_setnx_lock import inspector
from django_setnx_lock.core import State
from tests.servers import RealServer


def runs_of_a_tick(log: Path, **options: float) -> tuple[int, int]:
    """Start a job, and once more when it has ended; return how often it ran and was busy."""
    busy, append = 0, f"echo >> {log}"
    for _ in range(2):
        try:
            call_command("with_lock", "tick", "sh", "-c", append, nonblock=True, **options)
        except CommandError as error:
            busy += error.returncode == 75
    return log.read_text().count("\n"), busy


@pytest.mark.usefixtures("real_cache")
def test_a_start_when_the_job_has_ended_finds_the_tick_used(tmp_path: Path) -> None:
    assert runs_of_a_tick(tmp_path / "log", min_hold=20) == (1, 1)


@pytest.mark.usefixtures("real_cache")
def test_without_min_hold_the_job_runs_twice(tmp_path: Path) -> None:
    assert runs_of_a_tick(tmp_path / "log") == (2, 0)


def test_the_command_ends_at_once_and_the_lock_stays(real_cache: RealServer) -> None:
    began = time.monotonic()

    call_command("with_lock", "tick", "true", min_hold=3600)

    info = inspector().get("lock:tick")
    assert time.monotonic() - began < 20
    assert info.state is State.KEPT
    assert info.remaining == pytest.approx(3600, abs=30)


@pytest.mark.usefixtures("real_cache")
def test_a_job_that_failed_has_used_the_tick_too() -> None:
    with pytest.raises(CommandError, match="ended with status 1"):
        call_command("with_lock", "tick", "false", min_hold=20)

    assert inspector().get("lock:tick").state is State.KEPT


@pytest.mark.usefixtures("real_cache")
def test_a_command_that_could_not_be_started_has_not(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)

    with pytest.raises(CommandError, match="ended with status 126"):
        call_command("with_lock", "tick", str(broken), min_hold=20)

    assert inspector().get("lock:tick").state is State.FREE


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_bad_time_is_wrong_usage(seconds: str) -> None:
    with pytest.raises(CommandError, match="--min-hold is None or a number") as refused:
        call_command("with_lock", f"--min-hold={seconds}", "tick", "true")

    assert refused.value.returncode == 64
