"""Two and three people at one form in any order: no edit that was saved is lost.

Each adds a word of its own to what the form shows. A word of a save that was answered with success
and that is not there at the end is a lost edit. The control is the same without the mixin.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.testing import LockTester
from example_project.shop.models import Order
from tests.admin.orders import Page, Person

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.admin.orders"),
    # Each is some dozen pages.
    pytest.mark.timeout(300),
]
STEPS = 9
STEPS_OF = {"open": 5, "save": 4, "leave": 1, "expire": 1}


@pytest.fixture
def redis() -> Iterator[LockTester]:
    with LockTester("ignore") as tester:
        yield tester


def lost_edits(redis: LockTester, seed: int, people: list[Person]) -> tuple[list[str], int]:
    """Have people edit one order in a random order; give the words that were lost, and saved."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    order = Order.objects.create(number=str(seed), customer="-", amount="1.00")
    people = people[: chance.choice((2, 3))]
    pages: list[Page] = []
    saved: list[str] = []
    for number in range(STEPS):
        (step,) = chance.choices(list(STEPS_OF), weights=list(STEPS_OF.values()))
        if step == "open":
            page = chance.choice(people).open(order)
            pages += [page] if page.is_editable else []
        elif step == "expire":
            redis.advance(61)
        elif pages:
            page = pages.pop(chance.randrange(len(pages)))
            if step == "leave":
                page.leave()
                continue
            word = f"w{number}"
            answer = page.send(customer=f"{page.fields['customer']} {word}")
            if isinstance(answer, list):
                saved.append(word)
    order.refresh_from_db()
    return [word for word in saved if word not in order.customer.split()], len(saved)


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.matrix) for first in range(4, 200, 4))]
)
def test_no_edit_is_lost_whatever_the_order(redis: LockTester, first: int) -> None:
    people = [Person(name) for name in ("ann", "bob", "cyd")]
    found = [lost_edits(redis, seed, people) for seed in range(first, first + 4)]

    assert [lost for lost, _ in found if lost] == []
    assert any(saved for _, saved in found)


@pytest.mark.matrix
def test_without_the_lock_edits_are_lost(redis: LockTester) -> None:
    people = [Person(name, site="plain") for name in ("ann", "bob", "cyd")]

    assert any(lost_edits(redis, seed, people)[0] for seed in range(20))
