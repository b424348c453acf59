"""What the ways in which a lock can stand in Redis have in common, but for the ordinary one."""

from __future__ import annotations

from . import protocol
from .keys import LockKeys
from .protocol import Request


class DialectBase:
    """The answers of a :class:`~.dialects.Dialect` that has nothing of its own to say."""

    __slots__ = ()

    def look(self, keys: LockKeys, head: str, *, is_last: bool = False) -> Request:
        return protocol.look(keys, head, is_last=is_last)

    def new_token(self) -> str:
        return protocol.new_token()

    def takes_tokens(self) -> bool:
        return False

    def keeps(self) -> bool:
        return False

    def wakes(self) -> bool:
        return True

    def is_shared(self) -> bool:
        return False
