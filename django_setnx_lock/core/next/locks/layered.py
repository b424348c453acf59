"""The lock as users have it: the plain one, had again by its owner, and with scopes in asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .handle import LockHandle
from .lock import PlainLock
from .reentrancy import SharedHandle, again, note
from .scope import ScopedLock

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..owner import Owner


class RedisLock(ScopedLock[LockHandle], PlainLock):
    __doc__ = PlainLock.__doc__

    _handle = SharedHandle

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> LockHandle:
        if not self.options.reentrant:
            return await super()._take(io, limit, by, token)
        held = await again(io, self.target, by) if token is None and by.holds else None
        if held is None:
            held = await super()._take(io, limit, by, token)
            note(held.grant, by)
        return held
