"""Watches the transactions that the release of locks waits for.

Django tells of commits only. So while something is put off, those methods of the connection that
end transactions are wrapped, on that connection alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from django.db import Error, connections
from redis import Redis

from .core.batch import check_each, release_each

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .core.held import Held

_WATCHED = (
    "commit",
    "rollback",
    "close",
    "set_autocommit",
    "savepoint_commit",
    "savepoint_rollback",
)
_MARK = "_setnx_lock_transaction"

logger = logging.getLogger("django_setnx_lock.lock")


# Those of all threads.
_open: WeakSet[OpenTransaction] = WeakSet()


@dataclass(eq=False)
class PutOff:
    """A handle that was let go, and the transactions that it waits for."""

    held: Held
    waits_for: set[OpenTransaction]


def put_off_here() -> list[PutOff]:
    """What waits for transactions of this thread."""
    if not _open:
        # As mostly, and every lock that is taken asks.
        return []
    watched = (vars(one).get(_MARK) for one in connections.all(initialized_only=True))
    return [one for transaction in watched if transaction for one in transaction.put_off]


def open_transactions() -> list[OpenTransaction]:
    """Those of this thread's connections, without those in which a TestCase runs its test."""
    found = []
    for connection in connections.all(initialized_only=True):
        blocks = connection.atomic_blocks if connection.in_atomic_block else []
        around = 0
        while around < len(blocks) and blocks[around]._from_testcase:  # type: ignore[attr-defined]  # it has
            around += 1
        if around < len(blocks) or (
            # In manual transaction management any query may have begun one.
            not connection.in_atomic_block
            and connection.connection is not None
            and not connection.autocommit
        ):
            found.append(_watched(connection, around))
    return found


def _watched(connection: BaseDatabaseWrapper, around: int) -> OpenTransaction:
    known: OpenTransaction | None = vars(connection).get(_MARK)
    if known is not None:
        if known.is_still(around):
            return known
        known.has_ended()
    return OpenTransaction(connection, around)


class OpenTransaction:
    """A transaction of one connection, watched until it has ended.

    ``around``: the atomic blocks of a TestCase in which it is a savepoint; mostly 0.
    """

    def __init__(self, connection: BaseDatabaseWrapper, around: int) -> None:
        self.put_off: list[PutOff] = []
        self._connection = connection
        self._around = around
        self._outermost = connection.atomic_blocks[around] if around else None
        own = vars(connection)
        self._watched: dict[str, tuple[Callable[..., Any], bool]] = {
            name: (getattr(connection, name), name in own) for name in _WATCHED
        }
        wrapped = {name: getattr(self, f"_{name}") for name in _WATCHED}
        if around:
            connection.atomic_blocks = _Blocks(connection.atomic_blocks, self)
        _open.add(self)
        # All at once: an interrupt must not leave it known but not watched.
        own.update(wrapped, **{_MARK: self})

    def is_still(self, around: int) -> bool:
        """Whether that of a block with ``around`` is this one."""
        blocks = self._connection.atomic_blocks
        return around == self._around and (not around or blocks[around] is self._outermost)

    def has_ended(self) -> None:
        """Let go what waits for nothing else. Raises nothing, unless it is interrupted."""
        self._watch_no_longer()
        put_off, self.put_off = self.put_off, []
        due = []
        for one in reversed(put_off):
            one.waits_for.discard(self)
            if not one.waits_for:
                due.append(one.held)
        groups = _by_client(due)
        try:
            while groups:
                for error in release_each(groups.pop(0), now=True):
                    logger.warning("%s", error)
        finally:
            # An interrupt keeps nothing at another server.
            for some in groups:
                release_each(some, now=True)

    def left_without_savepoint(self) -> bool:
        """Whether nothing else tells that the outermost block is left."""
        savepoints = self._connection.savepoint_ids
        return self._is_left and bool(savepoints) and savepoints[-1] is None

    def _watch_no_longer(self) -> None:
        connection, own = self._connection, vars(self._connection)
        if own.get(_MARK) is not self:
            return
        del own[_MARK]
        _open.discard(self)
        for name, (original, was_own) in self._watched.items():
            # Who wrapped it meanwhile goes on to call it; it does nothing any more.
            if own.get(name) == getattr(self, f"_{name}"):
                del own[name]
                if was_own:
                    own[name] = original
        if isinstance(connection.atomic_blocks, _Blocks):
            connection.atomic_blocks = list(connection.atomic_blocks)

    @property
    def _is_left(self) -> bool:
        """Whether the block of a developer within that of a TestCase is left."""
        return bool(self._around) and len(self._connection.atomic_blocks) <= self._around

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._watched[name][0](*args, **kwargs)

    def _check(self, roll_back: Callable[[], object]) -> None:
        """Raise LockLost before a commit that one of the locks was lost for."""
        try:
            for some in _by_client(one.held for one in self.put_off):
                check_each(some)
        except BaseException:
            # Interrupts too: Django would not roll back, and some databases commit then.
            try:
                roll_back()
            except Error:
                self._connection.close()
            raise

    def _commit(self) -> None:
        self._connection.validate_no_atomic_block()
        self._check(self._connection.rollback)
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
            self._check(self._connection.rollback)
        self._call("set_autocommit", autocommit, *args, **kwargs)
        if autocommit:
            self.has_ended()

    def _savepoint_commit(self, sid: str) -> None:
        if self._is_left:
            self._check(lambda: self._savepoint_rollback(sid))
        self._call("savepoint_commit", sid)
        if self._is_left:
            self.has_ended()

    def _savepoint_rollback(self, sid: str) -> None:
        self._call("savepoint_rollback", sid)
        if self._is_left:
            self.has_ended()


class _Blocks(list[Any]):
    """The atomic blocks of a connection, which tell when one without a savepoint is left."""

    def __init__(self, blocks: Iterable[Any], transaction: OpenTransaction) -> None:
        super().__init__(blocks)
        self._transaction = transaction

    def pop(self, *args: Any) -> Any:
        block = super().pop(*args)
        if self._transaction.left_without_savepoint():
            self._transaction.has_ended()
        return block


def _by_client(held: Iterable[Held]) -> list[list[Held]]:
    """``held`` in order, those together that are asked for in one round trip."""
    groups: list[list[Held]] = []
    for client, some in groupby(held, lambda one: one.client):
        # Those on several servers are not asked for together.
        same = list(some)
        groups += [same] if isinstance(client, Redis) else [[one] for one in same]
    return groups
