"""The table of mutants is one of rules and of tests that there are."""

from __future__ import annotations

from collections import Counter

from tests.mutant_table import MUTANTS
from tests.mutants import PACKAGE, ROOT


def test_each_rule_that_a_mutant_takes_out_stands_once_in_the_code() -> None:
    sources = {mutant.file: (ROOT / PACKAGE / mutant.file).read_text() for mutant in MUTANTS}
    found = {mutant.name: sources[mutant.file].count(mutant.rule) for mutant in MUTANTS}
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_each_mutant_has_a_name_of_its_own() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []


def test_each_test_that_is_to_kill_a_mutant_exists() -> None:
    tests = sorted({mutant.killed_by for mutant in MUTANTS})
    assert [test for test in tests if not exists(*test.split("::"))] == []


def exists(file: str, test: str) -> bool:
    path = ROOT / file
    return path.is_file() and f"def {test}(" in path.read_text()
