"""Try all promises of the docs, and write what was found to docs/proof.md; some 30 minutes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.address import URL_VARIABLE, Observer
from bench.machine import describe
from bench.part import say
from bench.proof import evidence, page, storms
from tests.model.runs import MUTANTS, RUNS
from tests.servers import RealServer, any_binary

PAGE = evidence.ROOT / "docs" / "proof.md"
PACKAGES = ("redis", "python-redis-lock", "pottery", "sherlock")
# What --quick runs of the tests' storms and of the mutants.
FEW_STORMS, FEW_MUTANTS = "thousands", ["release", "token"]


def main() -> int:
    """Return the exit status: 0, 1 if a promise was broken or the harness finds nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.proof", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, a page of its own")
    parser.add_argument("--out", type=Path, help="where to write (default: docs/proof.md)")
    options = parser.parse_args()
    out = options.out or (evidence.ROOT / "build/proof.md" if options.quick else PAGE)
    found = collect(quick=options.quick)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page.write(found))
    say(f"Written: {os.path.relpath(out)}")
    for violation in found.violations():
        sys.stderr.write(f"{violation}\n")
    return 1 if found.violations() else 0


def collect(*, quick: bool) -> page.Evidence:
    began = time.monotonic()
    chosen = [name for name, run in RUNS.items() if not quick or run.size == "default"]
    model = evidence.Model(chosen, [] if quick else list(MUTANTS))
    seconds = 2.0 if quick else 8.0
    with RealServer(any_binary()) as server:
        os.environ[URL_VARIABLE] = server.url
        observer = Observer(server.directory / "redis.sock")
        about: dict[str, Any] = describe(observer, tcp=True, quick=quick)
        observer.close()
        about["packages"] = {name: version(name) for name in PACKAGES}
        say("The same storms on this lock, on others and on none")
        peers = storms.run_all(server, seconds)
        late = storms.late_releases(server)
    say("The storms of the tests")
    stormed = evidence.storms(FEW_STORMS if quick else "")
    say("The mutants")
    mutants = evidence.mutants(FEW_MUTANTS if quick else [])
    say("The rest of the model")
    runs, rules = model.found()
    minutes = (time.monotonic() - began) / 60
    return page.Evidence(about, minutes, seconds, runs, rules, stormed, peers, late, mutants)


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    sys.exit(main())
