"""The shipped scripts, and clients as they are, in every state that a few callers can reach.

The runs and the rules stand in runs.py; ``python -m tests.model`` tells more of each.
"""

from __future__ import annotations

import sys

import pytest

from .runs import MUTANTS, RUNS, explore, is_caught

MARKS = {
    "default": (pytest.mark.timeout(300),),
    "further": (pytest.mark.matrix, pytest.mark.timeout(300)),
    # Together they take more minutes than the rest of `make matrix`.
    "matrix": (pytest.mark.marathon, pytest.mark.timeout(600)),
    "marathon": (pytest.mark.marathon, pytest.mark.timeout(3600)),
}
# States within which a rule that is left out is found.
FEW = 60_000


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS[run.size]) for name, run in RUNS.items()]
)
def test_no_order_of_events_breaks_what_holds(name: str) -> None:
    found = explore(name, most=RUNS[name].states)
    sys.stdout.write(f"\n{name}: {found}\n")

    assert not found.wrong, "\n".join(found.trace)
    assert found.is_complete or found.states > RUNS[name].states


@pytest.mark.matrix
@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_left_out_breaks_what_holds(name: str) -> None:
    mutant = MUTANTS[name]
    found = explore(mutant.run, mutant.change, most=FEW)

    assert is_caught(mutant, found), str(found)
