"""Locks and the transactions of the database.

A lock that is let go in a transaction is released when that has ended. Django has a hook for
commits only. So the methods of a connection that end its transactions are wrapped, from the first
release on that waits for one.

A locked view under ATOMIC_REQUESTS begins and ends its transaction under the lock. Django's handler
opens a transaction of each database around a view and all its decorators, unless the view opts out.
A locked view opts out, and opens them itself.
"""

from __future__ import annotations

import logging
import threading
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from django.db import Error, connections
from django.db.backends.signals import connection_created

from .core.connections.backend import BLOCKING, run
from .core.locks import several
from .core.locks.layered import LockHandle, RedisLock, note
from .core.locks.redlock import Redlock, RedlockHandle

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.http import HttpRequest

    from .core.locks.grant import Grant
    from .core.locks.several import MultiLockHandle
    from .core.protocol.requests import Request

# The attribute of a connection with its Watch, and that of a view with the databases in which
# Django's handler begins no transaction.
_WATCH, _EXEMPT = "_setnx_lock_watch", "_non_atomic_requests"

logger = logging.getLogger("django_setnx_lock.lock")


class CommitHandle(LockHandle):
    """A handle whose release waits for the end of the transactions around it.

    It counts as released by then: another one keeps the lock, and ``waits_for`` so many of them.
    """

    waits_for: int | None = None

    def _begin_release(self) -> Request | None:
        grant = self.grant
        if not (self.released or self.waits_for is not None or _get_running_loop()):
            around = open_connections()
            if around and grant.is_here and not grant.is_over:
                later = type(self)(grant, self.target)
                later.waits_for = len(around)
                if grant.owner is not None:
                    # It is had again before that, reentrant or not.
                    note(grant, grant.owner)
                for connection in around:
                    watch: Watch = vars(connection).get(_WATCH) or Watch(connection)
                    watch.deferred.append(later)
                self.released = True
                return None
        return super()._begin_release()


class CommitLock(RedisLock):
    """A lock that is let go at the end of the transactions around its release."""

    _handle = CommitHandle

    def _is_had_again(self, grant: Grant) -> bool:
        waits = [getattr(held, "waits_for", None) is not None for held in grant.held_by()]
        # Reentrant or not where transactions alone keep it.
        return super()._is_had_again(grant) or (bool(waits) and all(waits))


class CommitRedlockHandle(CommitHandle, RedlockHandle):
    """The same of a lock on several masters."""


class CommitRedlock(CommitLock, Redlock):
    """The same on several masters."""

    _handle = CommitRedlockHandle


class _Here(threading.local):
    """The database connections of this thread; None where they are to be looked up anew."""

    connections: Sequence[BaseDatabaseWrapper] | None = None


_here = _Here()


def _look_up_again(**about: Any) -> None:
    # A connection that is new to this thread had no transaction before.
    _here.connections = None


connection_created.connect(_look_up_again)


def open_connections() -> list[BaseDatabaseWrapper]:
    """Return the connections of this thread that are in a transaction, a TestCase's excepted."""
    found = _here.connections
    if found is None:
        found = _here.connections = connections.all(initialized_only=True)
    # Mostly none is, and each release asks.
    return [one for one in found if (one.in_atomic_block or not one.autocommit) and _is_open(one)]


def is_rolled_back_by_an_error() -> bool:
    """Return whether an exception here rolls back a block that somebody around has begun."""
    return any(_is_open(one, slice(-1, None)) for one in connections.all(initialized_only=True))


def _is_open(connection: BaseDatabaseWrapper, blocks: slice = slice(1)) -> bool:
    if connection.in_atomic_block:
        found: list[Any] = connection.atomic_blocks[blocks]
        return any(not block._from_testcase for block in found)
    # In manual transaction management any query may have begun one.
    return connection.connection is not None and not connection.autocommit


class Watch:
    """Sees the transactions of a connection end, and releases the ``deferred`` handles then.

    Its public methods are what the connection has in the place of its own.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.deferred: list[CommitHandle] = []
        self._connection = connection
        self._commit, self._rollback = connection.commit, connection.rollback
        self._close, self._set_autocommit = connection.close, connection.set_autocommit
        own: dict[str, Any] = {_WATCH: self, "commit": self.commit, "rollback": self.rollback}
        # All at once: an interrupt must not leave it known but not watched.
        vars(connection).update(own, close=self.close, set_autocommit=self.set_autocommit)

    def commit(self) -> None:
        """Commit, unless a lock was lost, and release."""
        self._connection.validate_no_atomic_block()
        self._check()
        self._commit()
        self._release()

    def rollback(self) -> None:
        """Roll back and release."""
        self._rollback()
        self._release()

    def close(self) -> None:
        """Close, and release if the connection is closed by then."""
        try:
            self._close()
        finally:
            connection = self._connection
            # SQLite's is not closed when it is in memory.
            if connection.connection is None or connection.closed_in_transaction:
                self._release()

    def set_autocommit(self, autocommit: bool, *args: Any, **kwargs: Any) -> None:
        """Turn autocommit on, which commits, or off."""
        if autocommit and not self._connection.in_atomic_block:
            self._check()
        self._set_autocommit(autocommit, *args, **kwargs)
        if autocommit:
            self._release()

    def _check(self) -> None:
        """Raise LockLost, and roll back, if one of the locks is lost before the commit."""
        try:
            check_all(self.deferred)
        except BaseException:
            # For interrupts, too: Django would not roll back, and some databases then commit.
            try:
                self._connection.rollback()
            except Error:
                self._connection.close()
            raise

    def _release(self) -> None:
        """Release what waits for nothing else. Raises nothing, unless it is interrupted."""
        deferred, self.deferred = self.deferred, []
        for held in deferred:
            held.waits_for = (held.waits_for or 1) - 1
        due = [held for held in reversed(deferred) if not held.waits_for]
        for error in run(several.release_each(BLOCKING, due)):
            logger.warning("%s", error)


def check_all(held: Iterable[LockHandle | MultiLockHandle]) -> None:
    """Raise LockLost if one of ``held`` is no longer ours, as before a commit."""
    parts = [part for handle in held for part in getattr(handle, "parts", [handle])]
    run(several.check_each(BLOCKING, parts))


class LeftToLock(Set[str]):
    """All databases: Django's handler begins no transaction of theirs for a view, its lock does.

    ``exempt``: those of which the lock begins none either.
    """

    def __init__(self, exempt: Iterable[str]) -> None:
        self.exempt = set(exempt)

    def __contains__(self, alias: object) -> bool:
        return alias in connections.settings

    def __iter__(self) -> Iterator[str]:
        return iter(connections)

    def __len__(self) -> int:
        return len(connections.settings)

    def add(self, alias: str) -> None:
        """Have ``alias`` exempt, as ``non_atomic_requests`` above the lock wants it."""
        self.exempt.add(alias)


def leave_to_lock(view: Callable[..., Any]) -> None:
    """Have Django leave the transactions of ``view`` under ATOMIC_REQUESTS to its lock."""
    if not is_left_to_lock(view):
        setattr(view, _EXEMPT, LeftToLock(getattr(view, _EXEMPT, ())))


def is_left_to_lock(view: object) -> bool:
    """Return whether a lock begins the transactions of ``view``."""
    return isinstance(getattr(view, _EXEMPT, None), LeftToLock)


def left_databases(request: HttpRequest | None, view: Any) -> list[str]:
    """Return the databases whose transactions Django has left to the locks of this request.

    ``view``: what is locked. It may be exempt where the view that Django has called is not.
    """
    # None in a unit test.
    callback: Any = getattr(getattr(request, "resolver_match", None), "func", None)
    if not is_left_to_lock(callback):
        return []
    exempt = getattr(callback, _EXEMPT).exempt | getattr(view, _EXEMPT).exempt
    return [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in exempt
    ]
