"""Events of locks, and who listens to them. An event without listeners costs nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

logger = logging.getLogger("django_setnx_lock.events")


class Event:
    """One kind of event. An error that a listener raises is logged, not passed on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[Callable[..., object]] = []

    def tell(self, **about: Any) -> None:
        """Call every listener with ``about``.

        What is no Exception, such as SystemExit, is raised when all were called.
        """
        if not self.listeners:
            return
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
    """Log the errors of a block, whatever they are: whoever runs it has others to serve.

    An interrupt (Ctrl-C) of the main thread is raised all the same: a watchdog may run there.
    """
    try:
        yield
    except BaseException as error:
        # A handler of the log may raise, too.
        with suppress(BaseException):
            where.error(message, *about, exc_info=error)
        in_main_thread = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and in_main_thread:
            raise


# Told with key and holder, a Holder or None, whom the caller found there. Of several keys
# these are told of each that the caller has to wait for.
WAITING = Event("lock_waiting")
WAITED = Event("lock_waited")  # also waited and error, which is None when it waits no longer
# Told with key and fence, and besides:
ACQUIRED = Event("lock_acquired")  # waited
RELEASED = Event("lock_released")  # held_for
LOST = Event("lock_lost")  # held_for, error
STOP_REQUESTED = Event("lock_stop_requested")  # held_for, stop_request
RENEWED_LATE = Event("lock_renewed_late")  # late
# Told with key, target, held_for, waited, fence and error when a hold is lost, and when one ends or
# a caller gives up after so many seconds of waiting, or of holding.
ENDED = Event("lock_ended")
LONG_WAIT, LONG_HOLD = 5.0, 60.0
# Told with key, waited and error; there is no fence.
BUSY = Event("lock_busy")
UNAVAILABLE = Event("lock_unavailable")
