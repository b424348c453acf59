"""What befalls locks, told to whoever listens; nobody does, mostly, and then it costs nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

logger = logging.getLogger("django_setnx_lock.events")


class Event:
    """One kind of thing that befalls locks. What a listener raises is logged, not passed on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[Callable[..., object]] = []

    def tell(self, **about: Any) -> None:
        """Call every listener with ``about``.

        What is no Exception, such as SystemExit, is raised when all were called.
        """
        with ExitStack() as rest:
            for listener in reversed(self.listeners):
                rest.callback(self._tell, listener, about)

    def _tell(self, listener: Callable[..., object], about: dict[str, Any]) -> None:
        try:
            listener(**about)
        except Exception:
            logger.exception("a listener to %s of %r failed", self.name, about.get("key"))


@contextmanager
def apart(where: logging.Logger, message: str, *about: object) -> Iterator[None]:
    """Log what the block raises, whatever it is, for whoever has others to serve as well.

    An interrupt (Ctrl-C) of the main thread is raised all the same: a watchdog may run there.
    """
    try:
        yield
    except BaseException as error:
        # A handler of the log may raise, too.
        with suppress(BaseException):
            where.exception(message, *about)
        in_main_thread = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and in_main_thread:
            raise


# Told with key, template and fence, and besides:
ACQUIRED = Event("lock_acquired")  # waited
RELEASED = Event("lock_released")  # held_for
LOST = Event("lock_lost")  # held_for, error
# Told with key, template, waited and error; there is no fence.
BUSY = Event("lock_busy")
