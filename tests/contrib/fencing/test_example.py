"""The first example of docs/fencing.md holds, wherever its holder stands still."""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.models.signals import post_save
from django.test import override_settings
from django.test.utils import isolate_apps

from django_setnx_lock import LockLost, lock
from tests.contrib.fencing.waiting import somebody_waits
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import FakeServer

PAGE = Path(__file__).parents[3] / "docs" / "fencing.md"
MODEL, EXAMPLE, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
CLAIM = "Order.objects.claim(held, pk=pk)"
WITHOUT_CLAIM = EXAMPLE.replace(CLAIM, "Order.objects.get(pk=pk)")
# Where the one who has the lock can stand still: before and after each statement, and between.
PLACES = [
    "before the claim",
    "after the claim",
    "before the row is read",
    "after the row was read",
    "while the carrier is asked",
    "before the save",
    "after the save",
]
ASKING = PLACES.index("while the carrier is asked")
NEVER = len(PLACES)

pytestmark = [
    pytest.mark.xdist_group("databases"),
    pytest.mark.parametrize("database", ["postgres"], indirect=True),
]


class Holder:
    """One who runs the example in a thread, and stands still once at ``place``."""

    def __init__(self, order: Any, code: str, price: int, place: int) -> None:
        self.read: list[int | None] = []
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.places = 0
        self._order, self._code, self._price, self._place = order, code, price, place
        self._thread = ThreadPoolExecutor(1)
        self._done: Future[None] = self._thread.submit(self._run)

    def _run(self) -> None:
        connection = connections[self._order._state.db]
        given = {
            "lock": lock,
            "Order": type(self._order),
            "pk": self._order.pk,
            "ask_carrier": self._ask,
        }
        try:
            # It does not know that it has lost the lock before it lets it go.
            with suppress(LockLost), connection.execute_wrapper(self._execute):
                exec(self._code, given)  # noqa: S102 - of the page
        finally:
            self.reached.set()
            connection.close()

    def _ask(self, order: Any) -> int:
        self.read.append(order.shipping)
        self._pass()
        return self._price

    def _execute(self, execute: Any, *statement: Any) -> Any:
        self._pass()
        result = execute(*statement)
        self._pass()
        return result

    def _pass(self) -> None:
        if self.places == self._place:
            self.reached.set()
            assert self.go_on.wait(20)
        self.places += 1

    def goes_on(self) -> None:
        self.go_on.set()
        self._done.result(20)
        self._thread.shutdown()


@pytest.fixture
def order(database: str) -> Iterator[Any]:
    """An order of the model of the page, in the table that Django makes for it."""

    class Router:
        def db_for_write(self, model: object, **hints: object) -> str:
            return database

        db_for_read = db_for_write

    with isolate_apps("tests.contrib.fencing"):
        given: dict[str, Any] = {"__name__": "tests.contrib.fencing.models"}
        exec(MODEL, given)  # noqa: S102 - of the page
    model = given["Order"]
    with connections[database].schema_editor() as editor:
        editor.create_model(model)
    try:
        with override_settings(DATABASE_ROUTERS=[Router()], SETNX_LOCK={"TIMEOUT": 300}):
            yield model.objects.create()
    finally:
        with connections[database].schema_editor() as editor:
            editor.delete_model(model)


@contextmanager
def noted(order: Any) -> Iterator[list[int]]:
    """Give what is saved, in this order."""
    prices = []

    def note(sender: object, instance: Any, **kwargs: object) -> None:
        prices.append(instance.shipping)

    post_save.connect(note, sender=type(order))
    try:
        yield prices
    finally:
        post_save.disconnect(note, sender=type(order))


def is_late(order: Any, server: FakeServer, code: str, earlier_at: int, later_at: int) -> bool:
    """Whether an earlier holder wrote what a later one, who had read the row, did not see.

    The earlier one stands still at its place until its lock has ended and the later one has come
    to its own; then it goes on to its end, and after that the later one.
    """
    alias = order._state.db
    with noted(order) as prices:
        earlier = Holder(order, code, 1, earlier_at)
        try:
            assert earlier.reached.wait(20)
            server.client().delete(f"lock:order:{order.pk}")
            later = Holder(order, code, 2, later_at)
            try:
                # It waits where the earlier one stands still in a transaction.
                eventually(lambda: later.reached.is_set() or somebody_waits(alias))
            finally:
                earlier.goes_on()
        finally:
            earlier.go_on.set()
        later.goes_on()
    order.refresh_from_db()
    assert order.shipping == 2
    assert later.read in ([None], [1])
    return 1 in prices and later.read == [None]


def test_a_holder_who_is_left_alone_passes_all_the_places(order: Any) -> None:
    holder = Holder(order, EXAMPLE, 1, NEVER)

    holder.goes_on()

    order.refresh_from_db()
    assert (holder.read, order.shipping) == ([None], 1)
    assert holder.places == len(PLACES)


@pytest.mark.parametrize("later_at", [ASKING, NEVER], ids=["in its middle", "at its end"])
@pytest.mark.parametrize("earlier_at", range(len(PLACES)), ids=PLACES)
def test_a_holder_who_stood_still_anywhere_writes_nothing_that_the_later_one_did_not_read(
    order: Any, fake_server: FakeServer, earlier_at: int, later_at: int
) -> None:
    assert not is_late(order, fake_server, EXAMPLE, earlier_at, later_at)


@pytest.mark.parametrize(
    "earlier_at", [2, 3], ids=["while the carrier is asked", "before the save"]
)
def test_without_the_claim_it_writes_between_the_read_and_the_write_of_the_later_one(
    order: Any, fake_server: FakeServer, earlier_at: int
) -> None:
    assert WITHOUT_CLAIM != EXAMPLE

    # Where the carrier is asked, with no statements of a claim before it.
    assert is_late(order, fake_server, WITHOUT_CLAIM, earlier_at, later_at=2)
