"""The rows of the contract: for which kinds of locks a behaviour holds, and in which driver."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.support.kinds import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.kinds import Kind

T = TypeVar("T", bound="Callable[..., object]")


@dataclass(frozen=True)
class Row:
    """For what one behaviour holds."""

    kinds: Sequence[Kind]
    drivers: Sequence[str]

    def drivers_of(self, kind: Kind) -> Sequence[str]:
        """Return the drivers of a kind."""
        return self.drivers

    def always(self, behaviour: str) -> set[tuple[str, str]]:
        """Return the kinds, each with a driver, that `make test` runs ``behaviour`` for.

        The first kind has each driver. Every third of the rest has one, in turns: the name of the
        behaviour says with which they begin. `make matrix` has the others, and all that need a
        deployment of their own.
        """
        begin = zlib.crc32(behaviour.encode())
        return {
            (kind.name, driver)
            for place, kind in enumerate(self.kinds)
            if not kind.served_by
            for drivers in [self.drivers_of(kind)]
            for turn, driver in enumerate(drivers)
            if place == 0
            or ((begin // 2 + place) % 3 == 0 and (begin + place // 3) % len(drivers) == turn)
        }


def on(
    kinds: Sequence[Kind] = ALL,
    *,
    drivers: Sequence[str] = ("blocking", "asyncio"),
    real: bool = False,
) -> Callable[[T], T]:
    """Have a behaviour hold for these.

    ``real``: it needs the process of a server, which the fake is not.
    """

    def mark(behaviour: T) -> T:
        behaviour.row = Row(kinds, drivers)  # type: ignore[attr-defined]  # of a function
        if real:
            pytest.mark.real(behaviour)
        return behaviour

    return mark
