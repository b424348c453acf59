"""Each of many locks in one transaction costs the same. Counted, as times differ by machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_setnx_lock import lock
from tests.databases import state

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db(transaction=True)

FEW, MANY = 25, 200
PACKAGE = "django_setnx_lock"


def calls(do: Callable[[], None]) -> int:
    """Count the calls of and in this package while ``do`` runs, in this thread."""
    found = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal found
        if event in ("call", "c_call"):
            found += str(frame.f_globals.get("__name__")).startswith(PACKAGE)

    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(None)
    return found


def take(number: int, *, again: bool = False) -> None:
    """Take ``number`` locks in one transaction."""
    with transaction.atomic():
        for one in range(number):
            with lock(f"key:{one}"):
                pass
        if again:
            for one in range(number):
                with lock(f"key:{one}"):
                    pass


@pytest.mark.parametrize("again", [False, True])
def test_the_work_for_a_lock_does_not_grow_with_those_put_off(again: bool) -> None:
    # What is done once is done.
    take(1, again=again)

    few = calls(lambda: take(FEW, again=again)) / FEW
    many = calls(lambda: take(MANY, again=again)) / MANY

    assert many < few * 1.1


def test_one_of_many_that_were_put_off_is_found_again() -> None:
    with transaction.atomic():
        fences = []
        for one in range(FEW):
            with lock(f"key:{one}") as held:
                fences.append(held.fence)
        with lock("key:7") as again:
            fence = again.fence
        within = state("key:7")

    assert fence == fences[7]
    assert (within, state("key:7"), state("key:49")) == ("locked", "open", "open")
