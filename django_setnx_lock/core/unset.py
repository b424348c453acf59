"""What a parameter has when nothing was given for it and None has a meaning of its own."""

from __future__ import annotations

from typing import Final


class Unset:
    """The type of :data:`UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
