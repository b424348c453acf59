"""The kinds of locks: how one stands in Redis. The scripts tell them by the token."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """How a lock stands in Redis.

    ``prefix``: what its tokens begin with. ``is_shared``: whether others of the kind may be held
    at the same time.
    """

    prefix: str = ""
    is_shared: bool = False


EXCLUSIVE = Kind()
READERS = Kind("read:", is_shared=True)


def permits(limit: int) -> Kind:
    """Return the kind of which ``limit`` may be held at the same time."""
    return Kind(f"permit:{limit}:", is_shared=True)
