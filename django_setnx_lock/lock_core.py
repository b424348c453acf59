"""The core that the locks of the app are of: what differs from one to another, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .core.connections import execute
from .core.connections.backends import BLOCKING, run
from .core.inspection import Inspector
from .core.locks import parent_process
from .core.locks.batch import check_each, release_each, take_each
from .core.locks.cancel_scope import CancelScope
from .core.locks.handle import LockHandle
from .core.locks.lock import RedisLock, RWLock
from .core.locks.multi_handle import LossRelay, MultiLockHandle
from .core.locks.multi_lock import MultiLock
from .core.locks.redlock import Redlock
from .core.protocol.commands import PlainRequest
from .core.protocol.keys import heartbeat_prefix_for

# What has another meaning with another core. lock_core_coming.py has the same names.
__all__ = [
    "CancelScope",
    "Inspector",
    "Redlock",
    "ask",
    "check_each",
    "environment_under",
    "finish",
    "is_of_app",
    "kind_of",
    "lease_of",
    "read_and_write",
    "release_each",
    "release_now",
    "take_each",
    "together",
    "waive_min_hold",
]

Maker = Callable[..., RedisLock]


class Lease(Protocol):
    """How far a lease is, and its renewal. Times are those of ``clock``.

    ``due``: when to renew it. ``trouble``: why that fails. ``tried_since``: since when it is tried
    in vain, or under way; None while it is not due.
    """

    @property
    def end(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def due(self) -> float: ...
    @property
    def trouble(self) -> Exception | None: ...
    @property
    def tried_since(self) -> float | None: ...


def kind_of(options: dict[str, Any], *, is_redlock: bool) -> tuple[Maker, dict[str, Any]]:
    """Return what makes a lock with ``options``, and which of them it is given."""
    return Redlock if is_redlock else RedisLock, options


def together(
    keys: Sequence[str], make: Maker, on_lost: Callable[[Any], object] | None
) -> MultiLock:
    """Return the lock over ``keys``, each made by ``make(key, on_lost=...)``."""
    relay = None if on_lost is None else LossRelay(on_lost)
    return MultiLock.of([make(key, on_lost=relay) for key in keys], relay)


def is_of_app(target: Any, prefix: str) -> bool:
    """Whether ``target`` is a lock of ``lock()``, whose names in Redis begin with ``prefix``."""
    return bool(target.heartbeat_prefix == heartbeat_prefix_for(prefix))


def ask(client: Any, words: tuple[str, ...]) -> Any:
    """Return the answer to a command, the second word of which is a key. Raises LockUnavailable."""
    return run(execute.call(BLOCKING, client, PlainRequest(words), ""))


def read_and_write(make: Maker) -> RWLock:
    """Return the lock of readers and writers that ``make(shared=...)`` makes."""
    return RWLock.made_by(make)


def release_now(held: Sequence[LockHandle]) -> Sequence[Exception]:
    """Release each of ``held``, of one client; return the errors of those that could not be."""
    return release_each(held, now=True)


def waive_min_hold(held: LockHandle) -> None:
    """Have ``held`` released at once, whatever its ``min_hold``: nothing was done under it."""
    held.waive_min_hold()


def environment_under(held: LockHandle, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of a process that is started under ``held`` says of that.

    ``variables``: the rest of it.
    """
    return {parent_process.VARIABLE: parent_process.described(held.grant, variables)}


def lease_of(held: LockHandle) -> Lease:
    """Return what tells how far the lease of ``held`` is, and its renewal."""
    return held.lease


def finish(held: LockHandle | MultiLockHandle, error: BaseException | None) -> None:
    """Release ``held`` at the end of a block that raised ``error``, which is never hidden."""
    held.finish(error)
