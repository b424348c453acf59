"""Many readers or one writer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .lock import RedisLock


class RWLock:
    """A lock that any number of readers hold at the same time, or one writer.

    First come, first served: who reads waits behind a writer that came before, so that neither
    starves. Each reader has a lease of its own. With ``reentrant``, whoever writes may read within,
    and go on reading when he has let the writing go; who reads and wants to write would wait for
    himself: that raises LockError.

    ``client``, ``name`` and ``options``: those of :class:`RedisLock`, which is what a writer
    takes; it raises what this raises.
    """

    def __init__(self, client: Any, name: str, **options: Any) -> None:
        self._begin(partial(RedisLock, client, name, **options))

    @classmethod
    def made_by(cls, make: Callable[..., RedisLock]) -> RWLock:
        """One whose locks ``make(shared=..., **options)`` makes."""
        made = cls.__new__(cls)
        made._begin(make)
        return made

    def _begin(self, make: Callable[..., RedisLock]) -> None:
        self._make = make
        # What is wrong is told at once.
        self._key = make(shared=True).key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self._key

    def read(self, **options: Any) -> RedisLock:
        """The lock of one reader, with ``options`` in the place of those given before."""
        return self._make(shared=True, **options)

    def write(self, **options: Any) -> RedisLock:
        """The lock of one writer, with ``options`` in the place of those given before."""
        return self._make(shared=False, **options)
