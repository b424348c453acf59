"""What pages of the docs say, beside what there is."""

from __future__ import annotations

import ast
import doctest
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_setnx_lock import LockUnavailable, lock
from django_setnx_lock.core import State
from django_setnx_lock.testing import LockTester
from tests.redis.sentinels import documented

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return DOCS.joinpath(f"{name}.md").read_text()


SETTINGS = page("settings")
ROWS = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| `([^`]+)` \|", SETTINGS, re.MULTILINE)
SECTIONS = re.findall(r"^### (\w+)$", SETTINGS, re.MULTILINE)


def defaults() -> dict[str, Any]:
    """Return all options with their defaults, as the checks tell them."""
    with override_settings(SETNX_LOCK={"none": 1}), pytest.raises(ImproperlyConfigured) as caught:
        lock("a")
    found: dict[str, Any] = {"CACHE": "default"}
    for option in str(caught.value).partition("known are: ")[2].split(", "):
        with override_settings(SETNX_LOCK={option: {"no": "such"}}):
            for one in run_checks(tags=["caches"]):
                said = re.search(r"The default is (.*?)\. See ", str(one.hint))
                if said and f"[{option!r}]" in one.msg:
                    found[option] = ast.literal_eval(said[1])
    return found


def test_the_settings_page_has_every_option_with_its_default() -> None:
    known = defaults()

    assert len(known) > 10
    assert {name: ast.literal_eval(default) for name, _, default in ROWS} == known
    assert [anchor for _, anchor, _ in ROWS] == [name.lower() for name in SECTIONS]


def test_the_settings_on_the_page_of_sentinels_pass_the_checks() -> None:
    with override_settings(CACHES=documented(), SETNX_LOCK={"CACHE": "locks", "REPLICAS": 1}):
        found = [f"{one.id} {one.msg}" for one in run_checks()]

    # Celery makes tasks of other tests, which name no cache of the page, when it likes.
    ours = [one for one in found if one.startswith("django_setnx_lock")]
    assert [one for one in ours if "The task tests." not in one] == []


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("kinds", ["code"]),
        ("redis", ["code", "settings"]),
    ],
)
def test_a_page_is_linked_from_the_others(name: str, others: list[str]) -> None:
    assert [other for other in others if f"{name}.md" not in page(other)] == []


@pytest.mark.parametrize("word", ["setnx", "timestamp-s", "timestamp-ms", "hosted"])
def test_every_protocol_is_told_of(word: str) -> None:
    assert f'"{word}"' in page("redis")


def test_every_cause_of_an_unavailable_lock_has_a_cure() -> None:
    causes = set(re.findall(r"``([a-z]+)``", str(LockUnavailable.__doc__)))

    assert len(causes) > 8
    assert causes == set(re.findall(r"^\| `([a-z]+)` \|", page("troubleshooting"), re.MULTILINE))


@pytest.mark.parametrize("name", ["fences", "check", "remaining", "lost", "extend", "reacquire"])
def test_what_the_handle_of_several_keys_has_is_told_of(name: str) -> None:
    assert re.search(rf"`held\.{name}\b", page("kinds"))


def test_the_page_of_the_kit_tells_of_every_helper_and_of_no_other() -> None:
    told = set(re.findall(r"^\| `(?:async |await )?(\w+)\(", page("testing"), re.MULTILINE))
    with LockTester() as locks:
        helpers = {name for name in dir(locks) if not name.startswith("_")}

    assert told == {name for name in helpers if callable(getattr(type(locks), name, None))}


def test_operators_read_what_to_do_in_every_state() -> None:
    cells = re.findall(r"^\| ([a-z, ]+) \| [^|]+ \| [^|]+ \|$", page("operations"), re.MULTILINE)
    told = {state for cell in cells for state in cell.split(", ")}

    assert {state.value for state in State} - told == {"free"}


@pytest.mark.needs("jq")
def test_the_line_for_a_monitor_finds_what_nobody_else_will() -> None:
    line = re.search(r"locks list --everything --json \| jq '(.*)'", page("operations"))
    assert line is not None
    locks = [
        {"key": "young", "state": "held", "held_for": 5.0},
        {"key": "old", "state": "held", "held_for": 601.0},
        {"key": "theirs", "state": "foreign", "held_for": None},
        {"key": "endless", "state": "never-expires", "held_for": None},
        {"key": "passing", "state": "changing-hands", "held_for": None},
    ]

    found = subprocess.run(
        ["jq", line[1]],
        input=json.dumps({"locks": locks}),
        capture_output=True,
        text=True,
        timeout=20,
    )

    assert found.stderr == ""
    assert json.loads(found.stdout) == ["old", "theirs", "endless"]


COST = page("comparison").partition("\n## The cost\n")[2]
RATES = re.findall(r"^\| (.+?) \| (\d+) µs \| ([\d,]+) \|", COST, re.MULTILINE)


def titles(part: str) -> set[str]:
    """Return what the columns of a part are called, also without what they are measured with."""
    # A source distribution does not have it.
    columns = pytest.importorskip("bench.report").TABLES[part][1]
    found = {re.sub(r"^(1 lock|a lock each): ", "", column.title) for column in columns}
    return found | {re.split("[:,]", title)[0] for title in found}


def test_each_figure_of_the_cost_is_a_column_of_the_bench() -> None:
    # Such as "`capacity`, *names: 100*".
    figures = re.findall(r"`(\w+)`,\s*\*([^*]+)\*", COST)

    assert len(figures) > 7
    assert {(part, column) for part, column in figures if column not in titles(part)} == set()


def test_the_cost_is_reckoned_right() -> None:
    failed, tried = doctest.testfile(
        str(DOCS / "comparison.md"), module_relative=False, encoding="utf-8"
    )

    assert (failed, tried >= 7, len(RATES)) == (0, True, 3)
    for _, us, rate in RATES:
        # What fits into half a core.
        assert 0.98 <= int(rate.replace(",", "")) * int(us) / 500_000 <= 1.0
