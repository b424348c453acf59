from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError

from django_setnx_lock import lock
from example_project.shop.importing import import_orders
from example_project.shop.models import Order

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.csv"


def run(file: Path) -> str:
    said = StringIO()
    call_command("import_orders", file, stdout=said)
    return said.getvalue()


def test_an_import_adds_the_orders_that_are_not_known(file: Path) -> None:
    Order(number="1", customer="Ada", amount=10).save()
    file.write_text("number,customer,amount\n1,Eve,99\n2,Grace,20.50\n")

    said = run(file)

    assert said == "1 added, 1 known before.\n"
    assert [f"{one.number} {one.customer} {one.amount}" for one in Order.objects.all()] == [
        "1 Ada 10.00",
        "2 Grace 20.50",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("number,customer\n1,Ada\n", "has no column amount in its first line"),
        ("", "has no column number, customer, amount"),
        ("number,customer,amount\n1,Ada,5\n2,Grace,much\n", "line 3: amount: .*decimal"),
        ("number,customer,amount\n1,Ada,-5\n", "line 2: amount: .*greater"),
        ("number,customer,amount\n1,Ada\n", "line 2: amount: "),
        ("number,customer,amount\n1,Ada,5\n1,Eve,6\n", "line 3: Order 1 is there twice"),
        ('number,customer,amount\n1,"Ada\n', "unexpected end of data"),
        ("number,customer,amount\n1,\N{LATIN SMALL LETTER E WITH ACUTE},5\n", "utf-8"),
    ],
)
def test_a_file_with_a_fault_is_not_imported_at_all(file: Path, text: str, problem: str) -> None:
    file.write_text(text, encoding="latin-1")

    with pytest.raises(CommandError, match=problem):
        run(file)

    assert not Order.objects.exists()


def test_a_missing_file_is_one_message(file: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        run(file)


def test_two_imports_at_once_collide_without_a_lock(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("number,customer,amount\n1,Ada,5\n")
    add = Order.objects.bulk_create

    def let_another_import_run_and_add(orders: list[Order]) -> None:
        monkeypatch.setattr(Order.objects, "bulk_create", add)
        import_orders(file)
        add(orders)

    monkeypatch.setattr(Order.objects, "bulk_create", let_another_import_run_and_add)

    with pytest.raises(IntegrityError):
        import_orders(file)


def test_an_import_while_another_runs_adds_nothing(file: Path) -> None:
    file.write_text("number,customer,amount\n1,Ada,5\n")

    with lock("orders:import"), pytest.raises(CommandError, match="held by") as caught:
        call_command("import_orders", file, no_wait=True)

    assert caught.value.returncode == 75
    assert not Order.objects.exists()
