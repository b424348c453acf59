"""Programs that some tests need: those without are skipped and named at the end of the run.

With ``CI`` set they fail.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

# Each with the package of Debian that has it.
PACKAGES = {
    "bash": "bash",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "initdb": "postgresql",
    "jq": "jq",
    "mariadb-install-db": "mariadb-server",
    "mariadbd": "mariadb-server",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "ps": "procps",
    "redis-server": "redis-server",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "su": "util-linux",
    "timeout": "coreutils",
    "unshare": "util-linux",
}
MISSING = "not on this machine: "


def find(program: str) -> str | None:
    """Return where ``program`` is, also where PATH does not lead to."""
    # Debian keeps servers from PATH.
    newest = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parts[-2])
    )
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", *map(str, newest)]
    return shutil.which(program, path=os.pathsep.join(places))


def need(*programs: str) -> list[str]:
    """Return where they are; skip the test if one is missing, or fail it where ``CI`` is set."""
    found = {program: find(program) for program in programs}
    missing = [program for program, path in found.items() if path is None]
    if missing and "CI" in os.environ:
        pytest.fail(f"{MISSING}{', '.join(missing)} ({how_to_get(missing)})")
    if missing:
        pytest.skip(MISSING + ", ".join(missing))
    return [path for path in found.values() if path is not None]


def how_to_get(programs: Iterable[str]) -> str:
    return f"apt-get install {' '.join(sorted({PACKAGES[program] for program in programs}))}"


def not_run(reasons: Iterable[str]) -> str:
    """Say in one line what the tests that were skipped for ``reasons`` wanted; may be empty."""
    programs: dict[str, int] = {}
    others = 0
    for reason in reasons:
        wanted = reason.rpartition(MISSING)[2] if MISSING in reason else None
        if wanted is None:
            others += 1
        else:
            programs[wanted] = programs.get(wanted, 0) + 1
    said = [f"{count} without {wanted}" for wanted, count in sorted(programs.items())]
    if find("redis-server") is None:
        programs["redis-server"] = 0
        said.append("all of them on redis-server")
    if programs:
        said[-1] += f" ({how_to_get(name for names in programs for name in names.split(', '))})"
    if others:
        said.append(f"{others} for other reasons (-rs shows them)")
    return f"Tests not run: {'; '.join(said)}." if said else ""
