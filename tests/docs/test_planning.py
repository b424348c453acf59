"""docs/planning.md beside the parts of the bench, and its arithmetic."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from bench.report import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "planning.md"
TEXT = PAGE.read_text()
RATES = re.findall(r"^\| (.+?) \| (\d+) µs \| ([\d,]+) \|", TEXT, re.MULTILINE)
# Such as "`capacity`, *names: 100*".
FIGURES = re.findall(r"`(\w+)`,\s\*([^*]+)\*", TEXT)


def titles(part: str) -> set[str]:
    """Return what the columns of a part are called, also without what they are measured with."""
    found = {re.sub(r"^(1 lock|a lock each): ", "", column.title) for column in TABLES[part][1]}
    return found | {re.split("[:,]", title)[0] for title in found}


def test_each_figure_is_a_column_of_the_bench() -> None:
    assert len(FIGURES) > 10
    assert {(part, column) for part, column in FIGURES if column not in titles(part)} == set()


@pytest.mark.parametrize(("what", "us", "rate"), RATES)
def test_a_rate_is_what_fits_into_half_a_core(what: str, us: str, rate: str) -> None:
    given = int(rate.replace(",", ""))

    assert 0.98 <= given * int(us) / 500_000 <= 1.0, what


def test_each_kind_of_request_has_a_rate() -> None:
    assert len(RATES) == 3


def test_the_fleet_takes_what_the_page_says() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")

    assert tried >= 7
    assert failed == 0


def test_the_fleet_is_reckoned_with_the_figures_of_the_page() -> None:
    (fleet,) = re.findall(r"```pycon\n(.*?)```", TEXT, re.DOTALL)
    of_locks = re.findall(r"^\| a (?:lock|name|connection)\b[^|]* \| ([\d,]+)", TEXT, re.MULTILINE)

    for us in (us for _, us, _ in RATES):
        assert f"* {us}" in fleet
    for size in of_locks:
        assert f"* {size.replace(',', '_')}" in fleet or f"* {size.replace(',', '')}" in fleet


def test_the_factor_of_a_cluster_is_that_of_its_figures() -> None:
    here, there = re.search(r"(\d+) µs in place of (\d+)", TEXT), re.search(r"some ([\d.]+)", TEXT)
    assert here is not None
    assert there is not None

    assert f"{3 * int(here[2]) / int(here[1]):.1f}" == there[1]
