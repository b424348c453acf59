"""Runs the tests on all processors, then one by one those that would not be left in peace there.

``python -m tests [--coverage] [what pytest takes]``, in the checkout. ``--coverage`` reports it at
the end and fails below what setup.cfg asks for.

A few that fail side by side are run once more, by themselves, and named: most of them measure a
time that a neighbour has spoiled. What fails again has failed, and so has at once a test of what
must never happen, however rarely.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
# Many tests wait, so that three keep two processors busy.
PROCESSES = min(max((os.cpu_count() or 1) * 3 // 2, 2), 8)
SIDE_BY_SIDE = ("-n", str(PROCESSES), "--dist", "loadgroup")
USUAL = "not storm and not marathon"
# What pytest notes of the run side by side, and how many failures of it may be a neighbour's fault.
NOTES = ".pytest_cache/side-by-side"
FEW = 5
NEVER = (
    "tests/legacy/",
    "tests/model/",
    "tests/postgres/",
    "tests/redis/test_exclusion.py",
    "tests/redis/test_shared_storm.py",
    "tests/test_decorators_race.py",
)


def main(arguments: list[str]) -> int:
    """Run them all, also after a failure; return 0 if nothing has failed."""
    with_coverage = "--coverage" in arguments
    chosen = [one for one in arguments if one != "--coverage"]
    # The tests start hundreds of programs, each of which would compile the package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if with_coverage:
        coverage("erase")
        # Where it is set when Python starts, coverage does: in pytest and its workers.
        os.environ["COVERAGE_PROCESS_START"] = str(CHECKOUT / "setup.cfg")
        os.environ["COVERAGE_FILE"] = str(CHECKOUT / ".coverage")
    # Not in this process, which has imported the tests: of a package that brings a plugin, pytest
    # rewrites all that its folder holds, and warns of what it comes too late for.
    noting = ("--cache-clear", "-o", f"cache_dir={NOTES}")
    beside = f"{USUAL} and not alone"
    side_by_side = python("-m", "pytest", *SIDE_BY_SIDE, *noting, "-m", beside, *chosen)
    failed = failures() if side_by_side == pytest.ExitCode.TESTS_FAILED else []
    if 0 < len(failed) <= FEW and not any(one.startswith(NEVER) for one in failed):
        sys.stdout.write("\nFailed side by side, and run by themselves now:\n")
        sys.stdout.write("".join(f"    {one}\n" for one in failed))
        sys.stdout.flush()
        side_by_side = python("-m", "pytest", *failed)
    if side_by_side == pytest.ExitCode.INTERRUPTED:
        return side_by_side
    alone = python("-m", "pytest", "-m", f"{USUAL} and alone", *chosen, *those_alone(chosen))
    statuses = {side_by_side, alone}
    # Who names tests may name none of one kind.
    if 0 in statuses:
        statuses.discard(int(pytest.ExitCode.NO_TESTS_COLLECTED))
    if with_coverage:
        os.environ.pop("COVERAGE_PROCESS_START")
        statuses |= {coverage("combine", "--quiet"), coverage("report")}
    return max(statuses)


def failures() -> list[str]:
    """The tests that failed side by side; pytest-xdist adds the groups to their ids."""
    noted = CHECKOUT / NOTES / "v" / "cache" / "lastfailed"
    if not noted.exists():
        return []
    ids = json.loads(noted.read_text())
    return [one[: one.rindex("@")] if one.rfind("@") > one.rfind("]") else one for one in ids]


def those_alone(chosen: list[str]) -> list[str]:
    """The files of tests that are to run alone, unless others are named: to collect is slow."""
    if any(not one.startswith("-") and Path(one.partition("::")[0]).exists() for one in chosen):
        return []
    files = CHECKOUT.joinpath("tests").rglob("test_*.py")
    return sorted(str(one) for one in files if "mark.alone" in one.read_text())


def coverage(*arguments: str) -> int:
    return python("-m", "coverage", *arguments)


def python(*arguments: str) -> int:
    """Run this Python in the checkout; return its status."""
    return subprocess.run([sys.executable, *arguments], cwd=CHECKOUT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
