"""Reads orders from a CSV file."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError

from .models import Order

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("number", "customer", "amount")


class ImportProblem(Exception):
    """Nothing was imported; the message says what is wrong, and in which line."""


def import_orders(path: Path) -> tuple[int, int]:
    """Add the orders in the file that are not known yet; return how many, and how many were known.

    Two at once would both look before either adds, and the second would fail: so the command
    ``import_orders`` runs it under a lock. Raises ImportProblem, OSError.
    """
    found = read(path)
    known = set(Order.objects.filter(number__in=found).values_list("number", flat=True))
    new = [order for number, order in found.items() if number not in known]
    Order.objects.bulk_create(new)
    return len(new), len(known)


def read(path: Path) -> dict[str, Order]:
    """Return the orders in the file by number, unsaved. Raises ImportProblem, OSError."""
    orders: dict[str, Order] = {}
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise ImportProblem(f"{path} has no column {', '.join(missing)} in its first line.")
            for row in rows:
                order = Order(**{name: (row[name] or "").strip() for name in COLUMNS})
                order.clean_fields()
                if orders.setdefault(order.number, order) is not order:
                    raise ImportProblem(f"{path}, line {rows.line_num}: {order} is there twice.")
        except ValidationError as error:
            problems = "; ".join(
                f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items()
            )
            raise ImportProblem(f"{path}, line {rows.line_num}: {problems}") from error
        except (csv.Error, UnicodeDecodeError) as error:
            raise ImportProblem(f"{path}, line {rows.line_num + 1}: {error}") from error
    return orders
