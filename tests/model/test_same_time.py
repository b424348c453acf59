"""Whose a time is that two programs write: two rules, each left out in turn.

``-s`` prints the shortest traces.
"""

from __future__ import annotations

import functools
import sys

import pytest

from .explorer import Found, explore
from .same_time import REMOVED, RENEWED, TWO, Model, World


@functools.cache
def search(model: Model) -> Found[World]:
    found = explore(model.start(), model.moves, model.wrong)
    sys.stdout.write(f"\n{model}: {found.told(str)}\n")
    return found


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (Model(asks=False, forgets=False, only=(RENEWED,)), 4),
        (Model(asks=False, forgets=False, only=(REMOVED,)), 4),
        # To ask for the token is not enough: a third finds the end of the first.
        (Model(forgets=False, only=(TWO,)), 7),
        # To forget the end is not enough where an older program removes and forgets nothing.
        (Model(asks=False, older=True, only=(RENEWED,)), 4),
        (Model(asks=False, older=True, only=(REMOVED,)), 4),
    ],
    ids=str,
)
def test_with_a_rule_left_out_the_time_of_another_is_taken_for_ours(
    model: Model, steps: int
) -> None:
    found = search(model)

    assert (found.wrong,) == model.only
    assert found.steps == steps


@pytest.mark.parametrize(
    "model",
    [
        Model(),
        pytest.param(Model(older=True, only=(RENEWED, REMOVED)), marks=pytest.mark.matrix),
    ],
    ids=str,
)
def test_with_both_it_is_not(model: Model) -> None:
    found = search(model)

    assert found.complete
    assert not found.wrong
    assert {"a late copy of a", "force-release of a", "a: RENEW: OK", "a: RENEW: LOST"} <= (
        found.steps_seen
    )
