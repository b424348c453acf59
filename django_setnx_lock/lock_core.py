"""Several locks that are taken and let go together, each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .core.connections.backend import BLOCKING, run
from .core.errors import LockBusy, LockError, LockUnavailable
from .core.locks import several

if TYPE_CHECKING:
    from .core.locks.layered import LockHandle, RedisLock


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking one of several locks: ``held``, or ``error`` telling why not."""

    lock: RedisLock
    held: LockHandle | None = None
    error: LockBusy | LockUnavailable | None = None


def release_each(held: Sequence[LockHandle]) -> Sequence[LockError]:
    """Release each of ``held`` that is not released, in one round trip; return the errors."""
    return run(several.release_each(BLOCKING, held)) if held else []


def take_each(locks: Sequence[RedisLock]) -> list[Taken]:
    """Take each of ``locks`` that is free, without waiting; return the results in that order.

    They are asked for in the order of their names, one after the other. Raises LockUnavailable,
    holding nothing, when their server cannot be reached or does not answer; of a cluster, the locks
    of that node are told to be unavailable, and are not asked for.
    """
    taken: dict[RedisLock, Taken] = {}
    down: dict[object, LockUnavailable] = {}
    try:
        for lock in sorted(locks, key=lambda each: each.name):
            session = lock.session_for(BLOCKING)
            node = session.at(lock.name)
            try:
                if node in down:
                    raise down[node]
                taken[lock] = Taken(lock, lock.take(0))
            except LockUnavailable as error:
                if error.cause in {"unreachable", "timeout", "replicas"}:
                    if node is session:
                        raise
                    down[node] = error
                taken[lock] = Taken(lock, error=error)
            except LockBusy as error:
                taken[lock] = Taken(lock, error=error)
        return [taken[lock] for lock in locks]
    except BaseException:
        release_each([one.held for one in taken.values() if one.held is not None])
        raise
