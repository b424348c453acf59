from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from example_project.tour.jobs import Job

DIES_WITH_IT = "exec cat"
OUTLIVES_IT = "exec 3<&0; cat <&3 & wait"


@pytest.mark.parametrize(("script", "is_gone"), [(DIES_WITH_IT, True), (OUTLIVES_IT, False)])
def test_it_is_seen_whether_the_command_of_a_killed_job_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, is_gone: bool
) -> None:
    # In place of Python, which would run with_lock.
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    with Job("k") as job:
        job.wait_until_it_runs()
        took = job.kill()

    assert math.isfinite(took) is is_gone
