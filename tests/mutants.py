"""Named mutants: each takes one rule out of the code, and names the test that fails without it.

``python -m tests.mutants`` applies them one by one, each in a copy of the checkout, and runs the
test that is to kill it. ``python -m tests.mutants WORD ...`` does so for those with these words in
their names. It ends with status 1 if a mutant survives, or if its rule does not stand once in the
code. ``WORKERS=N`` in the environment: how many at a time (default: one more than there are
processors, as some tests wait).
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.mutant_table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "django_setnx_lock"
LONGEST = 180.0  # seconds that the test of one mutant may take, on a busy machine
FAILED = 1  # pytest's status where tests ran, and some failed
NONE_RUN = 5
# With what `make matrix` runs, too.
FURTHER = ("-m", "not storm and not marathon")
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "results")


def run(checkout: Path, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run pytest on the code in ``checkout``. Raises TimeoutExpired."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def problem_with(mutant: Mutant, checkout: Path) -> str:
    """Apply ``mutant`` in ``checkout``, run its test, and return why that did not fail, if so."""
    file = checkout / PACKAGE / mutant.file
    source = file.read_text()
    if source.count(mutant.rule) != 1:
        return f"its rule stands {source.count(mutant.rule)} times in {mutant.file}, not once"
    file.write_text(source.replace(mutant.rule, mutant.instead))
    try:
        # For each kind of locks and of servers, until one finds it.
        ran = run(checkout, "-x", *FURTHER, mutant.killed_by, seconds=LONGEST)
    except subprocess.TimeoutExpired:
        return f"{mutant.killed_by} did not end"
    finally:
        file.write_text(source)
    if ran.returncode == 0:
        return f"it survived {mutant.killed_by}"
    if ran.returncode != FAILED or not re.search("^FAILED ", ran.stdout, re.MULTILINE):
        return f"{mutant.killed_by} could not be run:\n{ran.stdout[-2000:]}"
    return ""


def main(words: list[str]) -> int:
    """Return the exit status: 0 if each mutant was killed."""
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.name for word in words)]
    if not chosen:
        print("No mutant has that name.", file=sys.stderr)
        return 2
    workers = int(os.environ.get("WORKERS", 0)) or (os.cpu_count() or 1) + 1
    survivors: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkouts: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            checkouts.put(shutil.copytree(ROOT, folder / str(number), ignore=NOT_COPIED))
        # A test that fails anyway would kill everything.
        side_by_side = ["-n", str(workers), "--dist", "loadgroup"]
        killers = sorted({one.killed_by for one in chosen})
        longest = LONGEST * len(killers)
        unchanged = run(folder / "0", *side_by_side, *killers, seconds=longest)
        if unchanged.returncode not in (0, NONE_RUN):
            said = unchanged.stdout[-4000:]
            print(f"Without a mutant, too, tests fail:\n{said}", file=sys.stderr)
            return 1

        def attempt(mutant: Mutant) -> tuple[str, float]:
            checkout, began = checkouts.get(), time.monotonic()
            try:
                return problem_with(mutant, checkout), time.monotonic() - began
            finally:
                checkouts.put(checkout)

        pool = stack.enter_context(ThreadPoolExecutor(workers))
        for mutant, (problem, seconds) in zip(chosen, pool.map(attempt, chosen), strict=True):
            if problem:
                survivors.append(mutant.name)
            print(f"{seconds:5.1f} s  {mutant.name}: {problem or 'killed'}", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    if survivors:
        print("Not killed: " + "; ".join(survivors), file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
