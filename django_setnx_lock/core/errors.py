"""Everything this package raises about a lock.

::

    redis.exceptions.LockError
    └── LockError
        ├── LockBusy           somebody else has it
        │   └── LockDeadlock   and waits, perhaps by way of others, for what the caller holds
        ├── LockLost           we had it and no longer do  (also redis' LockNotOwnedError)
        │   └── StaleFence     the database has heard of a later holder, and wrote nothing
        ├── LockUnavailable    Redis could not say
        └── LockUnsupported    this kind of lock cannot do that
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from .holder import plain

if TYPE_CHECKING:
    from .holder import Holder


#: Where the documentation is published: it is not in the wheel.
DOCS = "https://django-setnx-lock.readthedocs.io/en/stable/"


def docs_url(page: str, anchor: str = "") -> str:
    """Return where ``page`` of ``docs`` is to be read, from the heading of ``anchor`` on."""
    return f"{DOCS}{page}.html" + (f"#{anchor.lower()}" if anchor else "")


def subject(key: str) -> str:
    """Return the subject of an error's message: ``key``, or several locks when it is empty."""
    return f"the lock {key!r} is" if key else "the locks are"


class LockError(redis_exceptions.LockError):
    """Base of all errors here; ``except redis.exceptions.LockError`` catches it too.

    ``key`` is the key as the caller wrote it.
    """

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.lock_name = key


class LockBusy(LockError):
    """Somebody else holds the lock.

    ``holder`` is their :class:`~django_setnx_lock.core.holder.Holder` record, or None
    when the holder is not one of ours; ``remaining`` is what was left of their lease in
    seconds when Redis answered, or None when it never expires.
    """

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        holder: Holder | None = None,
        remaining: float | None = None,
    ) -> None:
        super().__init__(message, key=key)
        self.holder = holder
        self.remaining = remaining


@dataclass(frozen=True, slots=True)
class WaitStep:
    """A caller of a deadlock: ``holder`` has the lock ``holds`` and waits for ``waits_for``.

    ``holder`` is None where its record cannot be read. Both locks are keys, without the prefix.
    """

    holder: Holder | None
    holds: str
    waits_for: str

    def __str__(self) -> str:
        who = self.holder or "somebody"
        return f"{who} holds {plain(self.holds)!r} and waits for {plain(self.waits_for)!r}"


class LockDeadlock(LockBusy):
    """Somebody else holds the lock, and waits for what the caller holds: neither would go on.

    Of the callers that wait for each other one is refused. Once it has released its lock, the
    others go on.
    ``cycle``: a :class:`WaitStep` for each of them, the refused caller first, and each before the
    one that it waits for; the last waits for the first. Else as :class:`LockBusy`.
    """

    def __init__(self, message: str, *, cycle: tuple[WaitStep, ...] = (), **busy: Any) -> None:
        super().__init__(message, **busy)
        self.cycle = cycle


class LockLost(LockError, redis_exceptions.LockNotOwnedError):
    """We held the lock and no longer do.

    ``forced_by`` and ``reason`` say who force-released it and why; both are empty when
    its lease ran out or somebody overwrote it.
    """

    def __init__(
        self, message: str, *, key: str = "", forced_by: str = "", reason: str = ""
    ) -> None:
        super().__init__(message, key=key)
        self.forced_by = forced_by
        self.reason = reason

    def again(self) -> LockLost:
        """Return a copy: an error that several threads raise would collect all their frames."""
        other = copy(self)
        other.__dict__.pop("__notes__", None)
        other.__cause__ = self.__cause__
        other.__suppress_context__ = self.__suppress_context__
        return other


class StaleFence(LockLost):
    """A write was refused, as somebody who held the lock later has written before it.

    ``fence`` is the fencing number of the write, ``stored`` the larger one that was found;
    ``stored`` is None where the row is there no longer. See :doc:`fencing`.
    """

    def __init__(
        self, message: str, *, key: str = "", fence: int = 0, stored: int | None = None
    ) -> None:
        super().__init__(message, key=key)
        self.fence = fence
        self.stored = stored


class LockUnavailable(LockError):
    """Redis could not say whether the lock was taken, renewed or released.

    ``cause`` is one word: ``unreachable``, ``timeout``, ``pool`` (no free connection),
    ``readonly``, ``memory``, ``wrongtype`` (the name holds something that is no lock),
    ``denied`` (credentials or ACL), ``replicas`` (too few have acknowledged it, or are there),
    ``moving`` (its slot of a cluster is on its way to another node), ``undeclared`` (scripts may
    touch none but declared keys: set ``PROTOCOL``), or ``server`` (any other error reply).
    """

    def __init__(self, message: str, *, key: str = "", cause: str = "server") -> None:
        super().__init__(message, key=key)
        self.cause = cause
        # Whether it may be carried out yet, unless it is undone; and the seconds left for that.
        self.in_doubt = True
        self.time_left = 0.0


class LockUnsupported(LockError):
    """This kind of lock cannot do what was asked for, whatever Redis says; nothing was done."""
