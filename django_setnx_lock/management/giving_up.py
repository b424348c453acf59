"""When a lock that cannot be renewed is given up, and letting it go without getting stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_setnx_lock.core.errors import LockError
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lease import Lease

_LONGEST_CHANCE = 10.0


def gives_up_at(lease: Lease, now: float, notice: float, margin: float) -> float:
    """When a command must be asked to end unless the lease is renewed before; on ``clock``.

    ``notice`` seconds before the lease's end, as the command needs time to end; but not at the
    first attempt to renew after a pause of the whole machine, which has until ``margin``
    seconds before it.
    """
    since, latest = lease.tried_since, lease.end - margin
    early = lease.end - notice
    if since is None:
        return early if now < early else latest
    chance = min(lease.seconds / 6, _LONGEST_CHANCE)
    return min(max(early, since + chance), latest)


class Release(threading.Thread):
    """Lets ``held`` go, then calls ``changed``.

    In a thread of its own, so that a server which does not answer never keeps the main thread
    from signals. ``is_over`` is set when it was released, or could not be; ``error``: why not.
    """

    def __init__(self, held: Held, changed: Callable[[], object]) -> None:
        super().__init__(name="with_lock-release", daemon=True)
        self.is_over = threading.Event()
        self.error: LockError | None = None
        self._held = held
        self._changed = changed

    def run(self) -> None:
        try:
            self._held.release()
        except LockError as error:
            self.error = error
        finally:
            self.is_over.set()
            self._changed()
