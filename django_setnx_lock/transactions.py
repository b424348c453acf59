"""Locks and the transactions of the database.

A lock that is let go in a transaction is released when that has ended. Django has a hook for
commits only. So while a release is deferred, the methods of that connection which end transactions
are wrapped.

A locked view under ATOMIC_REQUESTS begins and ends its transaction under the lock. Django's handler
opens a transaction of each database around a view and all its decorators, unless the view opts out.
A locked view opts out, and opens them itself.
"""

from __future__ import annotations

import logging
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.db import Error, connections
from django.db.transaction import atomic
from redis import Redis

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

_WATCHED = ("commit", "rollback", "close", "set_autocommit")
_MARK = "_setnx_lock_transaction"
# The attribute that Django's handler looks at and non_atomic_requests adds to.
_ATTRIBUTE = "_non_atomic_requests"

logger = logging.getLogger("django_setnx_lock.lock")


class CommitHandle(LockHandle):
    """A handle whose release waits for the end of the transactions around it.

    It counts as released by then: another one, which ``is_put_off``, keeps the lock.
    """

    is_put_off = False

    def _begin_release(self) -> Request | None:
        grant = self.grant
        if not (self.released or self.is_put_off or _get_running_loop()):
            around = open_transactions()
            if around and grant.is_here and not grant.is_over:
                later = type(self)(grant, self.target)
                later.is_put_off = True
                if grant.owner is not None:
                    # It is had again before that, reentrant or not.
                    note(grant, grant.owner)
                waits_for = set(around)
                for transaction in around:
                    transaction.deferred.append((later, waits_for))
                self.released = True
                return None
        return super()._begin_release()


class CommitLock(RedisLock):
    """A lock that is let go at the end of the transactions around its release."""

    _handle = CommitHandle

    def _is_had_again(self, grant: Grant) -> bool:
        handles = grant.held_by()
        # Reentrant or not where a transaction alone keeps it.
        is_put_off = handles and all(getattr(one, "is_put_off", False) for one in handles)
        return super()._is_had_again(grant) or bool(is_put_off)


class CommitRedlockHandle(CommitHandle, RedlockHandle):
    """The same of a lock on several masters."""


class CommitRedlock(CommitLock, Redlock):
    """The same on several masters."""

    _handle = CommitRedlockHandle


def open_transactions() -> list[OpenTransaction]:
    """Return the transactions of this thread's connections, but for those within a TestCase."""
    return [
        vars(one).get(_MARK) or OpenTransaction(one)
        for one in connections.all(initialized_only=True)
        # Mostly none is open, and each release asks.
        if (one.in_atomic_block or not one.autocommit) and _is_open(one, slice(1))
    ]


def is_rolled_back_by_an_error() -> bool:
    """Return whether an exception here rolls back a block that somebody around has begun."""
    opened = connections.all(initialized_only=True)
    return any(_is_open(connection, slice(-1, None)) for connection in opened)


def _is_open(connection: BaseDatabaseWrapper, blocks: slice) -> bool:
    if connection.in_atomic_block:
        found: list[Any] = connection.atomic_blocks[blocks]
        return any(not block._from_testcase for block in found)
    # In manual transaction management any query may have begun one.
    return connection.connection is not None and not connection.autocommit


class OpenTransaction:
    """A transaction of one connection, watched until it has ended."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        # The handles whose release is deferred, and all that the release of each waits for.
        self.deferred: list[tuple[LockHandle, set[OpenTransaction]]] = []
        self._connection = connection
        own = vars(connection)
        self._watched: dict[str, tuple[Callable[..., Any], bool]] = {
            name: (getattr(connection, name), name in own) for name in _WATCHED
        }
        wrapped = {name: getattr(self, f"_{name}") for name in _WATCHED}
        # All at once: an interrupt must not leave it known but not watched.
        own.update(wrapped, **{_MARK: self})

    def has_ended(self) -> None:
        """Release what waits for nothing else. Raises nothing, unless it is interrupted."""
        self._watch_no_longer()
        deferred, self.deferred = self.deferred, []
        due = []
        for held, waits_for in reversed(deferred):
            waits_for.discard(self)
            if not waits_for:
                due.append(held)
        with ExitStack() as stack:
            # An interrupt keeps nothing at another server.
            for some in by_client(due)[::-1]:
                stack.callback(_release, some)

    def _watch_no_longer(self) -> None:
        own = vars(self._connection)
        if own.get(_MARK) is not self:
            return
        del own[_MARK]
        for name, (original, was_own) in self._watched.items():
            # A later wrapper goes on calling ours, which does nothing any more.
            if own.get(name) == getattr(self, f"_{name}"):
                del own[name]
                if was_own:
                    own[name] = original

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._watched[name][0](*args, **kwargs)

    def _check(self) -> None:
        """Raise LockLost, and roll back, if one of the locks is lost before the commit."""
        try:
            check_all(held for held, _waits_for in self.deferred)
        except BaseException:
            # For interrupts, too: Django would not roll back, and some databases then commit.
            try:
                self._connection.rollback()
            except Error:
                self._connection.close()
            raise

    def _commit(self) -> None:
        self._connection.validate_no_atomic_block()
        self._check()
        self._call("commit")
        self.has_ended()

    def _rollback(self) -> None:
        self._call("rollback")
        self.has_ended()

    def _close(self) -> None:
        try:
            self._call("close")
        finally:
            connection = self._connection
            # SQLite's is not closed when it is in memory.
            if connection.connection is None or connection.closed_in_transaction:
                self.has_ended()

    def _set_autocommit(self, autocommit: bool, *args: Any, **kwargs: Any) -> None:
        if autocommit and not self._connection.in_atomic_block:
            # It commits where it does not fail.
            self._check()
        self._call("set_autocommit", autocommit, *args, **kwargs)
        if autocommit:
            self.has_ended()


def _release(held: Sequence[LockHandle]) -> None:
    for error in run(several.release_each(BLOCKING, held)):
        logger.warning("%s", error)


def by_client(held: Iterable[LockHandle]) -> list[list[LockHandle]]:
    """Return ``held`` in order, grouped by what one round trip can release."""
    groups: list[list[LockHandle]] = []
    for client, some in groupby(held, lambda one: one.client):
        # Locks on several servers are not asked for together.
        same = list(some)
        groups += [same] if isinstance(client, Redis) else [[one] for one in same]
    return groups


class _LeftToLock(set[str]):
    """The databases that a view is exempt for. Django's handler finds all of them in it.

    So the handler begins no transaction of the view: its lock does.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def leave_to_lock(view: Callable[..., Any]) -> None:
    """Have Django leave the transactions of a sync ``view`` under ATOMIC_REQUESTS to its lock."""
    if not begun_by_lock(view) and not iscoroutinefunction(view):
        setattr(view, _ATTRIBUTE, _LeftToLock(getattr(view, _ATTRIBUTE, ())))


def begun_by_lock(view: object) -> bool:
    """Return whether a lock begins the transactions of ``view``."""
    return isinstance(getattr(view, _ATTRIBUTE, None), _LeftToLock)


def left_databases(request: HttpRequest | None, view: Callable[..., Any]) -> list[str]:
    """Return the databases whose transactions Django has left to the locks of this request.

    ``view``: what is locked. It may be exempt where the view that Django has called is not.
    """
    # None in a unit test.
    callback = getattr(getattr(request, "resolver_match", None), "func", None)
    if not begun_by_lock(callback):
        return []
    exempt = {*getattr(callback, _ATTRIBUTE, ()), *getattr(view, _ATTRIBUTE, ())}
    return [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in exempt
    ]


@contextmanager
def transactions_of(databases: Iterable[str]) -> Iterator[None]:
    """Run a block in a transaction of each of ``databases``."""
    with ExitStack() as stack:
        for alias in databases:
            stack.enter_context(atomic(using=alias))
        yield


def check_all(held: Iterable[LockHandle | MultiLockHandle]) -> None:
    """Raise LockLost if one of ``held`` is no longer ours, as before a commit."""
    parts: list[LockHandle] = []
    for one in held:
        parts += getattr(one, "parts", [one])
    for some in by_client(parts):
        run(several.check_each(BLOCKING, some))
