"""The table of mutants is one of rules and of tests that there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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
    files = {file: Path(ROOT, file).read_text() for file in map(file_of, MUTANT_TESTS)}
    assert [
        test for test in MUTANT_TESTS if f"def {name_of(test)}(" not in files[file_of(test)]
    ] == []


MUTANT_TESTS = sorted({mutant.killed_by for mutant in MUTANTS})


def file_of(test: str) -> str:
    return test.partition("::")[0]


def name_of(test: str) -> str:
    return test.partition("::")[2]
