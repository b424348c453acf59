"""Whose a time is that two programs write: with what is let go its end is forgotten.

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


@pytest.mark.parametrize(("wrong", "steps"), [(RENEWED, 4), (REMOVED, 4), (TWO, 5)])
def test_where_the_end_is_remembered_the_time_of_another_is_taken_for_ours(
    wrong: str, steps: int
) -> None:
    found = search(Model(forgets=False, only=(wrong,)))

    assert (found.wrong, found.steps) == (wrong, steps)


def test_where_it_is_forgotten_it_is_not() -> None:
    found = search(Model())

    assert found.complete
    assert not found.wrong
    assert {"a late copy of a", "force-release of a", "a: RENEW: OK", "a: RENEW: LOST"} <= (
        found.steps_seen
    )
