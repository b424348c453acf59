"""The rows of the contract: for which kinds of locks a behaviour holds, and in which driver."""

from __future__ import annotations

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
