"""``rwlock(key)`` and ``semaphore(key, limit)``: locks that several hold at the same time."""

from __future__ import annotations

from functools import partial
from typing import Any

from .core.lock import RedisLock
from .core.rwlock import RWLock
from .locks import lock


def rwlock(key: str, **options: Any) -> RWLock:
    """Many readers or one writer: ``with rwlock("report").read(): ...``, or ``.write()``.

    ``options``: those of :func:`lock`, which is what ``.write()`` takes: whoever takes
    ``lock(key)`` is a writer. Raises as :func:`lock`.
    """
    return RWLock.made_by(partial(lock, key, **options))


def semaphore(key: str, limit: int, **options: Any) -> RedisLock:
    """One of ``limit`` permits: ``with semaphore("exports", 3): ...``.

    First come, first served. Each has a lease of its own and is renewed as any lock. All who take
    it are to give the same ``limit``, a number from 1 to 1,000,000. Who holds a permit and takes
    again gets another one. ``options``: those of :func:`lock`, which raises what this raises.
    """
    return lock(key, limit=limit, **options)
