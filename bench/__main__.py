"""Measures this project's locks beside those of other libraries, on one private server."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    capacity,
    contended,
    footprint,
    idle,
    many,
    plot,
    pool,
    report,
    solo,
    takeover,
    tasks,
    transaction,
)
from bench.address import PREFERRED, Observer, private_server
from bench.machine import describe
from bench.part import Bench, Outcome, say
from bench.peers import OURS, PEERS
from example_project.server import ServerError

if TYPE_CHECKING:
    from bench.report import Results

PARTS = {
    "solo": solo,
    "contended": contended,
    "idle": idle,
    "takeover": takeover,
    "many": many,
    "pool": pool,
    "transaction": transaction,
    "tasks": tasks,
    "footprint": footprint,
    "capacity": capacity,
}
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Return the exit status: 0, 1 if a finding makes the run void, 130 at Ctrl-C."""
    options = parse()
    # The control is always among those measured: without it a count of no overlaps says nothing.
    chosen = [name for name in PEERS if not options.peers or name in options.peers]
    peers = tuple(dict.fromkeys([*chosen, "nothing"]))
    try:
        with private_server(options.server, tcp=options.tcp) as socket:
            observer = Observer(socket)
            results = describe(observer, tcp=options.tcp, quick=options.quick)
            outcomes = measure(Bench(observer, peers, options.quick), options.only or list(PARTS))
            observer.close()
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one finds us leaving already
        say("\nEnded by Ctrl-C; nothing was written.")
        return 130
    results["parts"] = {name: outcome.summary() for name, outcome in outcomes.items()}
    write(results, options.out)
    return conclude(results)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes, less exact")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--server", choices=PREFERRED, help="default: the first of these found")
    parser.add_argument("--tcp", action="store_true", help="over TCP rather than a unix socket")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="where to write (default: bench/results)"
    )
    return parser.parse_args()


def measure(bench: Bench, parts: list[str]) -> dict[str, Outcome]:
    outcomes = {}
    for name in parts:
        began = time.monotonic()
        say(PARTS[name].TITLE)
        outcomes[name] = PARTS[name].run(bench)
        say(f"  took {time.monotonic() - began:.0f} s")
    return outcomes


def write(results: Results, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    report.write_json(results, directory / "figures.json")
    (directory / "table.md").write_text(report.markdown(results))
    plot.draw(results, directory / "plot.png")
    say(f"\n{report.markdown(results)}")
    say(f"Written: table.md, figures.json and plot.png in {os.path.relpath(directory)}")


def conclude(results: Results) -> int:
    """Say what makes the run void: overlaps of our own, or a control that found nothing."""
    problems = report.problems(results, OURS)
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    sys.exit(main())
