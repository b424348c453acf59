"""Which lock, and whom to ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import protocol
from .calling import call, persistently
from .keys import LockKeys


@dataclass(frozen=True, slots=True)
class Target:
    """Which lock: the client to ask, the keys in Redis, what the caller calls it and its kind."""

    client: Any
    keys: LockKeys
    key: str
    index: str | None
    template: str = ""

    def call(self, request: protocol.Request, *, repeated: Callable[[], None] | None = None) -> Any:
        return call(self.client, request, self.key, repeated=repeated)

    def locked(self) -> bool:
        return bool(persistently(self.client, lambda: self.client.exists(self.keys.name), self.key))
