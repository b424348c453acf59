"""The lock for servers that let a script touch none but the keys that it was told of.

What stands at the name, fence and record are as ever, so it excludes those who queue and is
excluded by them. Nobody queues for it here and nobody is woken, as whoever is to be woken has a
mailbox that is known only at run time: a holder counts as foreign for all who wait.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from . import protocol, scripts
from .dialect_base import DialectBase
from .keys import LockKeys
from .protocol import Request


@dataclass(frozen=True, slots=True)
class Polling(DialectBase):
    """The dialect of such a lock. Every key that a request touches is one of its ``keys``."""

    def acquire(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        record: str,
        wait_ms: int,
    ) -> Request:
        args = (token, str(lease_ms), record, str(wait_ms))
        return Request(scripts.POLLING_ACQUIRE, _keys(keys, token, index), args)

    def release(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.POLLING_RELEASE, _keys(keys, token, index), (token,))

    def leave(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.POLLING_LEAVE, _keys(keys, token, index), (token,))

    def renew(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        how: Literal["replace", "add", "least"],
    ) -> Request:
        args = (token, str(lease_ms), protocol.to_lease(how))
        return Request(scripts.POLLING_RENEW, _keys(keys, token, index), args)

    def check(self, keys: LockKeys, token: str) -> Request:
        return protocol.check(keys, token)

    def force(
        self, keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str
    ) -> Request:
        return Request(
            scripts.POLLING_FORCE,
            _keys(keys, seen.decode("utf-8", "backslashreplace"), index),
            (seen, json.dumps({"by": by, "reason": reason})),
        )

    def locked(self, keys: LockKeys) -> None:
        """Nothing is to be asked: it is held as long as its name exists."""

    def wakes(self) -> bool:
        return False

    def __str__(self) -> str:
        return "polling=True"


POLLING = Polling()


def inspect(keys: LockKeys, index: str | None) -> Request:
    """As :func:`protocol.inspect`."""
    own = (keys.name, keys.meta)
    return Request(scripts.POLLING_INSPECT, own if index is None else (*own, index), ())


def _keys(keys: LockKeys, token: str, index: str | None) -> tuple[str, ...]:
    own = (keys.name, keys.meta, keys.gone(token))
    return own if index is None else (*own, index)
