"""Keeps one lock while a child lives, and lets it go afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockLost, LockUnavailable
from django_setnx_lock.core.held import Held

_LONGEST_NOTICE = 10.0
_LONGEST_PAUSE = 1.0


class Renewal:
    """Renews ``held`` every third of its lease until :meth:`stop`, then releases it.

    It speaks to Redis from a thread of its own, so that a server which does not answer never
    keeps the main thread from the child. ``changed`` is called from there upon news.

    ``loss``: why the lock is no longer ours, once Redis has said so. ``error``: why the
    last attempt to renew or release failed, None when it did not. ``lease_end``: until when
    the lock is ours, on ``clock``. ``over``: set when it was released, or could not be.
    """

    def __init__(self, held: Held, changed: Callable[[], None]) -> None:
        self.loss: LockLost | None = None
        self.error: LockUnavailable | None = None
        self.lease_end = clock.now() + held.remaining()
        self.over = threading.Event()
        self._held = held
        self._changed = changed
        self._notice = min(held.timeout / 6, _LONGEST_NOTICE)
        self._trying_since: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="with_lock-renewal", daemon=True)

    def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing and start to release."""
        self._stopped.set()

    @property
    def gives_up_at(self) -> float:
        """When the lock must be given up unless it is renewed before; on ``clock``.

        Some time before the lease's end, as the child needs time to end; but not at the
        first attempt after a pause of the whole machine.
        """
        early = self.lease_end - self._notice
        if self._trying_since is None:
            return early if clock.now() < early else self.lease_end
        return min(max(early, self._trying_since + self._notice), self.lease_end)

    def _run(self) -> None:
        third = self._held.timeout / 3
        due = self.lease_end - 2 * third
        try:
            while self.loss is None and not self._stopped.wait(max(due - clock.now(), 0)):
                began = clock.now()
                renewed = self._renew(began)
                due = began + third if renewed else clock.now() + min(third / 3, _LONGEST_PAUSE)
            self._stopped.wait()
            if self.loss is None:
                self._release()
        finally:
            self.over.set()
            self._changed()

    def _renew(self, now: float) -> bool:
        if self._trying_since is None:
            self._trying_since = now
        try:
            self._held.reacquire()
        except LockUnavailable as error:
            self.error = error
        except LockLost as error:
            self.loss = error
        else:
            self.lease_end = clock.now() + self._held.remaining()
            self._trying_since = self.error = None
            return True
        self._changed()
        return False

    def _release(self) -> None:
        self.error = None
        try:
            self._held.release()
        except LockUnavailable as error:
            self.error = error
        except LockLost as error:
            self.loss = error
