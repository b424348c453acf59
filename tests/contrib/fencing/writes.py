"""Each way to write a seat with a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contrib.fencing.models import Seat

if TYPE_CHECKING:
    from collections.abc import Callable

STALE, NEWER = 5, 7

WRITES: dict[str, Callable[[Any, Seat, Any], Any]] = {
    "save": lambda rows, seat, fence: seat.save(fence=fence),
    "save of a field": lambda rows, seat, fence: seat.save(update_fields=["price"], fence=fence),
    "delete": lambda rows, seat, fence: seat.delete(fence=fence),
    "claim": lambda rows, seat, fence: rows.claim(fence, pk=seat.pk),
    "claim by a filter": lambda rows, seat, fence: rows.claim(fence, row=seat.row),
    "claim rows": lambda rows, seat, fence: rows.claim_all(fence),
    "update rows": lambda rows, seat, fence: rows.update(fence=fence, price=9),
    "delete rows": lambda rows, seat, fence: rows.delete(fence=fence),
}
