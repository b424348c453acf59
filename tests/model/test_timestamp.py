"""The flaw of SETNX, GET, GETSET one after another, and that one script does not have it.

``-s`` prints the shortest traces; docs/how-it-works.md tells how long one that breaks exclusion is.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest

from .explorer import Found, explore
from .timestamp import Model, World

DOCS = Path(__file__).parents[2] / "docs" / "how-it-works.md"
ARTICLES = Model(("article", "article"))


@functools.cache
def search(model: Model) -> Found[World]:
    found = explore(model.start(), model.moves, model.wrong)
    sys.stdout.write(f"\n{model}: {found.told(str)}\n")
    return found


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (ARTICLES, 12),
        (Model(("article", "article"), only="moved backwards"), 7),
        (Model(("article", "article"), leases=(4, 2), only="moved forwards"), 6),
        # Who wins by a script of ours has it taken away all the same.
        (Model(("article", "ours"), only="moved backwards"), 5),
        (Model(("article", "ours")), 10),
        (Model(("article", "script")), 11),
    ],
)
def test_one_that_asks_step_by_step_moves_the_time_of_the_winner(model: Model, steps: int) -> None:
    found = search(model)

    assert found.wrong == model.only
    assert found.steps == steps


@pytest.mark.parametrize("only", ["two believers", "moved backwards", "moved forwards"])
@pytest.mark.parametrize(
    "kinds", [("ours", "ours", "ours"), ("ours", "ours", "script"), ("script", "script", "ours")]
)
@pytest.mark.parametrize("leases", [(2, 2, 2), (1, 3, 2)])
def test_with_one_script_nobody_does(
    kinds: tuple[str, ...], leases: tuple[int, ...], only: str
) -> None:
    found = search(Model(kinds, leases, only=only))

    assert found.complete
    assert not found.wrong
    assert {"b: lets go", "a: ACQUIRE: held" if kinds[0] == "ours" else "a: its script: held"} <= (
        found.steps_seen
    )


def test_the_docs_have_the_length_of_the_shortest_trace() -> None:
    told = re.findall(r"has (\d+) steps", DOCS.read_text())

    assert told == [str(search(ARTICLES).steps)]
