"""What the model, the storms of the tests and the mutants say, as figures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from bench.part import say
from tests import mutant_table
from tests.model import explorer, same_time, timestamp
from tests.model.runs import MUTANTS, RUNS, explore, is_caught
from tests.servers import server_kinds

ROOT = Path(__file__).resolve().parents[2]
# How many states of a run of the model are searched at the most, and of one without a rule.
STATES, FEW = 200_000, 60_000
OLD = "beside timestamps of older programs"
SAME = "two that write the same time"
# The storms of the tests, and what they are called on the page.
STORMS = {
    "test_no_stale_write_gets_through": "PostgreSQL, stopped past the lease, with a fence",
    "test_without_fences_stale_writes_get_through": "control: PostgreSQL, without one",
    # What these are called, they say themselves.
    "test_nobody_is_under_the_lock_together_with_somebody_else": "",
    "test_callers_for_some_of_a_few_keys_in_any_order_all_come_through": "",
    "test_those_who_share_a_lock_are_in_it_with_their_like_only_and_each_gets_in": "",
    "test_nobody_is_in_together_and_nobody_is_forgotten": "",
    "test_older_programs_and_ours_exclude_each_other": "",
    "test_one_server": "",
    "test_a_cluster": "",
    "test_five_masters": "",
}
FILES = ("tests/faults/test_storms.py", "tests/contrib/fencing/test_storm.py")
_KILLED = re.compile(r"^ *[\d.]+ s  (.*?): (killed|its rule|it survived|tests/)", re.MULTILINE)


class Searched(NamedTuple):
    """A run of the model; ``wrong`` is what broke, '' if nothing did."""

    name: str
    about: str
    states: int
    depth: str
    wrong: str


class LeftOut(NamedTuple):
    """A rule that the model is searched without."""

    breaks: str
    is_caught: bool


class Stormed(NamedTuple):
    name: str
    found: str
    outcome: str


class Model:
    """Searches beside whatever else runs, each run for so many ``seconds`` at the most."""

    def __init__(self, names: list[str], rules: list[str], seconds: float, workers: int) -> None:
        # The bench's own processes are copies of one that does not begin here.
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))
        self._rules = [self._pool.submit(leave_out, name) for name in rules]
        self._runs: list[Future[Searched]] = [
            self._pool.submit(search, name, seconds) for name in names
        ]
        self._runs += [self._pool.submit(search_old), self._pool.submit(search_same)]

    def found(self) -> tuple[list[Searched], list[LeftOut]]:
        """Wait for the searches that are left."""
        with self._pool:
            runs = [future.result() for future in self._runs]
            rules = [future.result() for future in self._rules]
        for each in (*runs, *rules):
            say(f"  {each}")
        return runs, rules


def search(name: str, seconds: float) -> Searched:
    found = explore(name, most=STATES, seconds=seconds)
    depth = "all" if found.is_complete else f"to depth {found.depth}"
    return Searched(name, RUNS[name].about, found.states, depth, found.wrong)


def leave_out(name: str) -> LeftOut:
    mutant = MUTANTS[name]
    return LeftOut(mutant.breaks, is_caught(mutant, explore(mutant.run, mutant.change, most=FEW)))


def search_old() -> Searched:
    model = timestamp.Model(("ours", "ours", "script"))
    found = explorer.explore(model.start(), model.moves, model.wrong)
    depth = "all" if found.complete else "in part"
    return Searched("timestamp", OLD, found.states, depth, found.wrong)


def search_same() -> Searched:
    model = same_time.Model()
    found = explorer.explore(model.start(), model.moves, model.wrong)
    depth = "all" if found.complete else "in part"
    return Searched("same time", SAME, found.states, depth, found.wrong)


def storms(words: str = "") -> list[Stormed]:
    """Run the storms of the tests, those that fit ``words`` of pytest's -k."""
    chosen = " or ".join(STORMS)
    others = " and ".join(f"not {kind}" for kind in [*server_kinds()[1:], "fake"])
    expression = f"({chosen}) and {others}" + (f" and ({words})" if words else "")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "storms.xml")
        options = ["-o", "junit_logging=system-out", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "storm", "-k", expression]
        subprocess.run([*command, *options, *FILES], cwd=ROOT, env=environment(), check=False)
        return stormed(report.read_text())


def environment() -> dict[str, str]:
    """Return this process's, without the settings of the bench: tests have their own."""
    return {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}


def stormed(report: str) -> list[Stormed]:
    """Read pytest's report."""
    found = []
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314 - our own report
        function = case.get("name", "").partition("[")[0]
        lines = (case.findtext("system-out") or "").splitlines()
        figures = "; ".join(line for line in lines if line and not line.startswith("-----"))
        name = STORMS.get(function, "")
        if not name:
            name, _, figures = figures.partition(": ")
        bad = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
        found.append(Stormed(name or function, figures.strip(), bad[0] if bad else "passed"))
        say(f"  {found[-1]}")
    return found


def mutants(words: list[str]) -> dict[str, bool]:
    """Run the mutants, those with ``words`` in their names; tell of each whether it was killed.

    Raises RuntimeError if their tests fail without a mutant.
    """
    command = [sys.executable, "-u", "-m", "tests.mutants", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=pipe, text=True) as process:
        said = []
        for line in process.stdout or ():
            say(f"  {line.rstrip()}")
            said.append(line)
    killed = read_mutants("".join(said))
    if not killed:
        raise RuntimeError("no mutant could be tried")
    chosen = [one.name for one in mutant_table.MUTANTS if all(word in one.name for word in words)]
    return {name: killed.get(name, False) for name in chosen}


def read_mutants(said: str) -> dict[str, bool]:
    return {name: what == "killed" for name, what in _KILLED.findall(said)}
