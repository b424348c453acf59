"""Callers in threads that are known to wait for a lock."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django_setnx_lock import inspector, lock
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def waiting_for(*keys: str, **options: Any) -> Iterator[None]:
    """Have a thread wait for each of these locks, in this order; at the end each is taken away.

    ``options`` are those of the locks that are waited for.
    """

    def wait(key: str) -> None:
        with lock(key, blocking_timeout=30, **options):
            pass

    threads: list[threading.Thread] = []
    look = inspector()
    try:
        for number, key in enumerate(keys):
            threads.append(threading.Thread(target=wait, args=(key,), daemon=True))
            threads[-1].start()
            queued = keys[: number + 1].count(key)
            eventually(lambda key=key, queued=queued: look.get(f"lock:{key}").waiting == queued)  # type: ignore[misc]
        yield
    finally:
        for key in set(keys):
            look.force_release(f"lock:{key}", look.get(f"lock:{key}").fingerprint)
        for thread in threads:
            thread.join(40)
        assert not any(thread.is_alive() for thread in threads)
