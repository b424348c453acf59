"""What befalls locks, told to whoever listens; nobody does, mostly, and then it costs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("django_setnx_lock.events")


class Event:
    """One kind of thing that befalls locks. What a listener raises is logged, not passed on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[Callable[..., object]] = []

    def tell(self, **about: Any) -> None:
        """Call every listener with ``about``."""
        for listener in tuple(self.listeners):
            try:
                listener(**about)
            except Exception:
                logger.exception("a listener to %s of %r failed", self.name, about.get("key"))


# Told with key, template and fence, and besides:
ACQUIRED = Event("lock_acquired")  # waited
RELEASED = Event("lock_released")  # held_for
LOST = Event("lock_lost")  # held_for, error
# Told with key, template, waited and error; there is no fence.
BUSY = Event("lock_busy")
