"""The lock as users have it: the plain one, had again by its owner, and with scopes in asyncio."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .handle import LockHandle
from .lock import PlainLock
from .reentrancy import SharedHandle, again, note
from .scope import CancelScope

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..connections.backend import Backend
    from ..owner import Owner


class RedisLock(PlainLock):
    __doc__ = PlainLock.__doc__

    _handle = SharedHandle
    _scope = CancelScope

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> LockHandle:
        held = await self._again(io, by) if token is None and by.holds else None
        if held is None:
            held = await super()._take(io, limit, by, token)
            if self.options.reentrant:
                note(held.grant, by)
        return held

    async def _again(self, io: Backend, by: Owner) -> LockHandle | None:
        """Return one more handle if ``by`` holds the lock and is to have it again, else None."""
        return await again(io, self.target, by) if self.options.reentrant else None


class RWLock:
    """A lock that any number of readers hold at the same time, or one writer.

    First come, first served: a reader waits behind a writer that came before it, so that neither
    starves. Each reader has a lease of its own. With ``reentrant``, a writer may read within, and
    holds the lock alone until it has let both go; a reader that wants to write would wait for
    itself: that raises LockError.

    ``client``, ``name`` and ``options``: those of :class:`RedisLock`, which is what a writer
    takes; it raises what this raises.
    """

    def __init__(self, client: Any, name: str, **options: Any) -> None:
        self._begin(functools.partial(RedisLock, client, name, **options))

    def _begin(self, make: Callable[..., RedisLock]) -> None:
        self._make = make
        # Refuses wrong options at once.
        self._key = self.read().key

    @classmethod
    def made_by(cls, make: Callable[..., RedisLock]) -> Self:
        """Return the lock of which ``make(shared=...)`` makes that of a reader or a writer."""
        made = cls.__new__(cls)
        made._begin(make)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self._key

    def read(self) -> RedisLock:
        """Return the lock of one reader."""
        return self._make(shared=True)

    def write(self) -> RedisLock:
        """Return the lock of one writer."""
        return self._make(shared=False)
