"""A lock as the pages show it."""

from __future__ import annotations

from dataclasses import dataclass

from ..words import Said


@dataclass(frozen=True, slots=True)
class Row(Said):
    """A lock and what is said of it; ``url`` is its page, ``release_url`` where it is released."""

    url: str
    release_url: str

    @property
    def state_class(self) -> str:
        """The state as a CSS class."""
        return "lock-" + self.info.state.name.lower().replace("_", "-")
