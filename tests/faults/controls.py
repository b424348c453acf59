"""Scripts with one of their rules taken out, to show what the rule is for."""

from __future__ import annotations

from typing import Any

from tests.support.seams import mutate as take_out
from tests.support.seams import send_nothing_behind

__all__ = ["nothing", "send_nothing_behind", "take_out"]


async def nothing(*args: Any, **options: Any) -> None:
    """Do nothing, in the place of a clean-up."""
