"""The model on the command line.

python -m tests.model run NAME ...     search those runs and mutants, as far as it takes
python -m tests.model trace NAME ...   the same, and the steps to what goes wrong
python -m tests.model long             every run and every mutant; some 40 minutes
python -m tests.model list             what there is

A mutant that is called like a run is mutant:NAME.
"""

from __future__ import annotations

import argparse
import sys

from .runs import MUTANTS, RUNS, explore, is_caught


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=["run", "trace", "long", "list"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    if args.what == "list":
        for name, run in RUNS.items():
            print(f"{name:15} {run.size:9} {run.about}")
        for name, mutant in MUTANTS.items():
            print(f"mutant:{name:15} {mutant.run:12} {mutant.breaks:10} {mutant.rule}")
        return 0
    names = [*RUNS, *(f"mutant:{name}" for name in MUTANTS)] if args.what == "long" else args.names
    failed = [name for name in names if not _search(name, is_told=args.what == "trace")]
    print(f"not as it should be: {', '.join(failed)}" if failed else "all as it should be")
    return bool(failed)


def _search(name: str, *, is_told: bool) -> bool:
    """Return whether a run holds, or a mutant is caught."""
    prefix, _, bare = name.rpartition(":")
    if prefix or bare not in RUNS:
        mutant = MUTANTS[bare]
        found = explore(mutant.run, mutant.change)
        is_right = is_caught(mutant, found)
        print(f"mutant:{bare:12} {'caught' if is_right else 'NOT CAUGHT'} {found}", flush=True)
    else:
        found = explore(bare)
        is_right = not found.wrong
        print(f"{bare:19} {found}", flush=True)
    if is_told:
        for number, step in enumerate(found.trace, 1):
            print(f"{number:4}  {step}")
    return is_right


if __name__ == "__main__":
    sys.exit(main())
