"""Signals about locks, for metrics and alarms.

All are sent with ``key``, as the caller wrote it, and ``template``, as in ``order:<pk>``, which
has few values and so suits as a label of a metric. It is the key template without types; a key that
no template made is matched with the templates that this process knows (the empty string where none
fits).
``waited``, ``held_for`` and ``late`` are seconds. Receivers run where the event happens, those of
``lock_lost``, ``lock_renewed_late`` and ``lock_stop_requested`` mostly in the thread that renews
all locks, so they must be quick. Their exceptions are logged. No token is ever sent.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

from .core import events
from .core.locks.layered import RedisLock
from .key_template import template_of


class LockSignal(Signal):
    """Sends an event of the core on; listens to it only while there are receivers."""

    def __init__(self, event: events.Event) -> None:
        super().__init__()
        self._event = event

    def connect(self, *args: Any, **kwargs: Any) -> None:
        super().connect(*args, **kwargs)
        if self._send not in self._event.listeners:
            self._event.listeners.append(self._send)

    def disconnect(self, *args: Any, **kwargs: Any) -> bool:
        disconnected = super().disconnect(*args, **kwargs)
        if not self.receivers and self._send in self._event.listeners:
            self._event.listeners.remove(self._send)
        return disconnected

    def _send(self, *, key: str, **about: Any) -> None:
        self.send_robust(sender=RedisLock, key=key, template=template_of(key), **about)


# Sent with holder, a Holder or None, when a caller begins to wait.
lock_waiting = LockSignal(events.WAITING)
# Sent with holder, waited and error, when it waits no longer; error is None if it got the lock.
lock_waited = LockSignal(events.WAITED)
# Sent with waited and fence.
lock_acquired = LockSignal(events.ACQUIRED)
# Sent with held_for and fence.
lock_released = LockSignal(events.RELEASED)
# Sent with late and fence, when a renewal came more than a third of the lease too late.
lock_renewed_late = LockSignal(events.RENEWED_LATE)
# Sent with held_for, fence and error, a LockLost.
lock_lost = LockSignal(events.LOST)
# Sent with held_for, fence and stop_request, once to a holder that an operator asks to stop.
lock_stop_requested = LockSignal(events.STOP_REQUESTED)
# Sent with waited and error, a LockBusy, when a caller gives up.
lock_busy = LockSignal(events.BUSY)
# Sent with waited and error, a LockUnavailable, when Redis does not say whether it is granted.
lock_unavailable = LockSignal(events.UNAVAILABLE)
