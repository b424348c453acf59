"""Which lock, and whom to ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import blocking, protocol
from .calling import Undo, call, exists
from .dialects import Dialect
from .errors import LockUnavailable
from .keys import LockKeys


# Not frozen: one is made for each lock, and that would take thrice as long.
@dataclass(slots=True)
class Target:
    """Which lock: the client to ask, the keys in Redis, what the caller calls it and its kind.

    ``dialect``: what to send for it.
    """

    client: Any
    keys: LockKeys
    key: str
    index: str | None
    template: str = ""
    dialect: Dialect = protocol

    def may_block(self) -> None:
        """Return where a call may wait for Redis. Raises as :func:`blocking.check`."""
        blocking.check()

    def call(
        self,
        request: protocol.Request,
        *,
        repeated: Callable[[], None] | None = None,
        within: float | None = None,
        undo: Undo | None = None,
    ) -> Any:
        """The reply to ``request``; see :func:`call`."""
        return call(self.client, request, self.key, repeated=repeated, within=within, undo=undo)

    def ask(
        self,
        request: protocol.Request,
        *,
        waits: bool,
        within: float | None = None,
        undo: Undo | None = None,
    ) -> Any:
        """As :meth:`call`, for what takes the lock; ``waits``: or else asks again soon."""
        return self.call(request, within=within, undo=undo)

    def home(self) -> Any:
        """The client of the one server where its mailboxes are."""
        return self.client

    def route(self) -> Any:
        """What the watchdog is to ask."""
        return self.client

    def longest_sleep(self, seconds: float) -> float:
        """For how many of ``seconds`` a waiter may sleep before it asks again."""
        return seconds

    def learn(self, error: Exception) -> None:
        """Take note of what the server answered, or that it did not."""

    def patience(self, *, waits: bool) -> float | None:
        """For how many seconds :meth:`ask` may try; None: as for every request."""
        return None

    def instead(self, error: LockUnavailable, *, waits: bool) -> Any:
        """What takes the place of the answer when :meth:`ask` ended in ``error``, or raises it."""
        raise error

    def moved(self, error: LockUnavailable) -> float | None:
        """After how many seconds to ask again if ``error`` only says that it is elsewhere now."""
        return None

    def alone(self, token: str, lease_ms: int, error: Exception | None) -> protocol.Request | None:
        """What else to renew it with after ``error``, which renewing it ended in; None: nothing."""
        return None

    def locked(self) -> bool:
        """Whether anybody holds it. Raises LockUnavailable."""
        self.may_block()
        request = self.dialect.locked(self.keys)
        if request is not None:
            return bool(self.call(request))
        return exists(self.client, self.keys.name, self.key)


@dataclass(slots=True)
class AsyncOnly(Target):
    """One that is asked through a client of ``redis.asyncio``."""

    def may_block(self) -> None:
        raise TypeError(
            f"the lock {self.key!r} was made with a client of redis.asyncio: use async with and "
            "the methods with the prefix a, or make it with a synchronous client, redis.Redis"
        )

    def call(
        self,
        request: protocol.Request,
        *,
        repeated: Callable[[], None] | None = None,
        within: float | None = None,
        undo: Undo | None = None,
    ) -> Any:
        self.may_block()

    def locked(self) -> bool:
        self.may_block()
        return False
