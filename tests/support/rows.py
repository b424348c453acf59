"""The rows of the contract: which behaviour holds for which kinds, drivers and servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.support.kinds import ALL, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One behaviour.

    ``real``: whether it needs a process of a server, which the fake is not.
    """

    kinds: Sequence[Kind]
    drivers: Sequence[str]
    real: bool = False

    def holds_for(self, kind: Kind, driver: str, server: str) -> bool:
        # A lock on several masters has no asyncio.
        if kind.masters > 1 and driver == "asyncio":
            return False
        return server != "fake" or not (self.real or kind.masters > 1)

    def marks_of(self, kind: Kind, driver: str, server: str) -> list[Any]:
        # One process starts the masters.
        return [pytest.mark.xdist_group("contract masters")] if kind.masters > 1 else []


def on(
    kinds: Sequence[Kind] = ALL,
    *,
    drivers: Sequence[str] = ("blocking", "asyncio"),
    real: bool = False,
) -> Callable[[T], T]:
    """Have a behaviour hold for these."""

    def mark(behaviour: T) -> T:
        behaviour.row = Row(kinds, drivers, real)  # type: ignore[attr-defined]  # what pytest calls
        return behaviour

    return mark
