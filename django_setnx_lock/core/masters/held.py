"""The handle of a lock that is held on several masters."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from .. import protocol, scripts, tickets
from ..calling import Undo
from ..errors import LockUnsupported
from ..held import Held
from ..lease import Lease
from ..target import Target
from ..watchdog import Watchdog
from . import quorum
from .line import MastersLine

# One of its own: a master that hangs must not keep the renewal of the locks on other servers.
WATCHDOG = Watchdog(line=MastersLine)  # type: ignore[arg-type]  # what a courier needs of a Line


@dataclass(slots=True)
class MastersTarget(Target):
    """Which lock, and the :class:`~.masters.Masters` to ask for it, as ``client``."""

    def call(
        self,
        request: protocol.Request,
        *,
        repeated: Callable[[], None] | None = None,
        within: float | None = None,
        undo: Undo | None = None,
    ) -> Any:
        releases = request.script is scripts.RELEASE
        replies = self.client.ask(request, insists=releases, repeated=repeated)
        reply = quorum.read_kept(replies)
        if reply is None or isinstance(reply, Exception):
            raise self.client.unavailable(replies, self.key)
        return reply

    def locked(self) -> bool:
        """Whether so many masters have it that nobody could take it. Raises LockUnavailable."""
        replies = self.client.exist(self.keys.name)
        found = quorum.may_be_held(replies)
        if found is None:
            raise self.client.unavailable(replies, self.key)
        return found


class MastersLease(Lease):
    """A lease that ends earlier here than at the masters, by what their clocks may differ."""

    def to_ask(self, now: float) -> int:
        return max(round(quorum.lease_for(self.bounded(self.seconds, now)) * 1000), 1)


class MastersHeld(Held):
    """A lock that is held by a majority of its masters.

    As :class:`~..held.Held`, but without fencing number and asyncio.
    """

    @property
    def fence(self) -> int:
        """Refused. Raises LockUnsupported."""
        raise LockUnsupported(
            f"the lock {self.key!r} has no fencing number: it is held on several masters, which "
            "have no common order to number its holders by; take it on one server with using, "
            "where late writes are to be refused",
            key=self.key,
        )

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} {state}>"

    @property
    def watchdog(self) -> Watchdog:
        """What renews it."""
        return WATCHDOG

    def about(self) -> dict[str, Any]:
        return {**super().about(), "fence": None}

    def has_replaced(
        self, sent: float, seconds: float, before: float, *, may_come_again: bool
    ) -> None:
        believed = max(seconds - quorum.drift(seconds), 0)
        super().has_replaced(sent, believed, before, may_come_again=may_come_again)

    def giving_away(self, within: float | None) -> NoReturn:
        """Refused. Raises LockUnsupported."""
        tickets.refuse(self.key, "on several masters")

    async def acheck(self) -> NoReturn:
        refuse_asyncio(self.key)

    async def alocked(self) -> NoReturn:
        refuse_asyncio(self.key)

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        refuse_asyncio(self.key)

    async def areacquire(self) -> Literal[True]:
        refuse_asyncio(self.key)

    async def arelease(self) -> None:
        refuse_asyncio(self.key)


def refuse_asyncio(key: str) -> NoReturn:
    """Raise LockUnsupported: several masters are not asked in asyncio."""
    raise LockUnsupported(
        f"the lock {key!r} is one on several masters, which has no asyncio: write a function that "
        "does the work inside `with lock(...)` and call it by asyncio.to_thread() or "
        "sync_to_async(), or take the lock on one server",
        key=key,
    )


atexit.register(WATCHDOG.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=WATCHDOG.before_fork,
        after_in_parent=WATCHDOG.after_fork_in_parent,
        after_in_child=WATCHDOG.after_fork_in_child,
    )
