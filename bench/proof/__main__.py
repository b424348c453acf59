"""Try all promises of the docs, and write what was found to docs/proof.md; some 30 minutes."""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.address import URL_VARIABLE, Observer
from bench.machine import describe
from bench.part import say
from bench.proof import evidence, page, storms
from bench.proof.store import Findings
from tests.model.runs import MUTANTS, RUNS
from tests.servers import RealServer, any_binary

if TYPE_CHECKING:
    from collections.abc import Callable

    Peers = dict[str, dict[str, Findings]]
    LateReleases = dict[str, storms.LateRelease]

T = TypeVar("T")
PAGE = evidence.ROOT / "docs" / "proof.md"
PACKAGES = ("redis", "python-redis-lock", "pottery", "sherlock")
# What --quick runs of the tests' storms and of the mutants.
FEW_STORMS, FEW_MUTANTS = "thousands", ["release", "token"]


def main() -> int:
    """Return the exit status: 0, 1 if a promise was broken or the harness finds nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.proof", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, a page of its own")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what a run that was cut off has found"
    )
    parser.add_argument(
        "--model-seconds", type=float, default=40, help="for each run of the model (default: 40)"
    )
    parser.add_argument("--out", type=Path, help="where to write (default: docs/proof.md)")
    options = parser.parse_args()
    out = options.out or (evidence.ROOT / "build/proof.md" if options.quick else PAGE)
    found = collect(options.model_seconds, quick=options.quick, is_resumed=options.resume)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page.write(found))
    say(f"Written: {os.path.relpath(out)}")
    for violation in found.violations():
        sys.stderr.write(f"{violation}\n")
    return 1 if found.violations() else 0


class Parts:
    """What was found so far is in ``folder``, so that a run that was cut off can be resumed."""

    def __init__(self, folder: Path, *, is_resumed: bool) -> None:
        self.folder, self.is_resumed = folder, is_resumed
        self.minutes = 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, name: str) -> bool:
        return self.is_resumed and (self.folder / f"{name}.pickle").exists()

    def find(self, name: str, work: Callable[[], T]) -> T:
        """Return what ``work`` finds, or found in the run that is resumed."""
        say(name)
        file, began = self.folder / f"{name}.pickle", time.monotonic()
        found: T
        if self.has(name):
            found, minutes = pickle.loads(file.read_bytes())  # noqa: S301 - written below
        else:
            found = work()
            minutes = (time.monotonic() - began) / 60
            file.write_bytes(pickle.dumps((found, minutes)))
        say(f"  took {minutes:.1f} minutes")
        self.minutes += minutes
        return found


def collect(model_seconds: float, *, quick: bool, is_resumed: bool) -> page.Evidence:
    folder = evidence.ROOT / "build" / ("proof-quick" if quick else "proof")
    parts = Parts(folder, is_resumed=is_resumed)
    chosen = [name for name, run in RUNS.items() if not quick or run.size == "default"]
    # Its searches go on beside the other parts.
    has_model = parts.has("model")
    rules = [] if quick else list(MUTANTS)
    searched = ([], []) if has_model else (chosen, rules)
    # A run that is resumed has little else to do.
    workers = (os.cpu_count() or 1) if is_resumed else 1
    model = evidence.Model(*searched, model_seconds, workers)
    seconds = 2.0 if quick else 8.0
    about, peers, late = parts.find("other locks", partial(other_locks, seconds, quick=quick))
    stormed = parts.find("storms", partial(evidence.storms, FEW_STORMS if quick else ""))
    mutants = parts.find("mutants", partial(evidence.mutants, FEW_MUTANTS if quick else []))
    if is_resumed:
        # What was not killed is tried on the code as it is now.
        for name in [name for name, is_killed in mutants.items() if not is_killed]:
            mutants |= evidence.mutants([name])
    about["resumed"] = is_resumed
    runs, left_out = parts.find("model", model.found)
    return page.Evidence(
        about, parts.minutes, seconds, runs, left_out, stormed, peers, late, mutants
    )


def other_locks(seconds: float, *, quick: bool) -> tuple[dict[str, Any], Peers, LateReleases]:
    """Run the same storms on all locks; tell on what they ran, too."""
    with RealServer(any_binary()) as server:
        os.environ[URL_VARIABLE] = server.url
        observer = Observer(server.directory / "redis.sock")
        about: dict[str, Any] = describe(observer, tcp=True, quick=quick)
        observer.close()
        about["packages"] = {name: version(name) for name in PACKAGES}
        return about, storms.run_all(server, seconds), storms.late_releases(server)


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    sys.exit(main())
