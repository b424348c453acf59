"""Puts the release of locks off until the transactions of the caller have ended.

Django tells of commits only. So while something is put off, those methods of the connection that
end transactions are wrapped, on that connection alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from django.db import Error, connections
from redis import Redis

from .conf import get_config
from .core import sharing
from .core.batch import check_each, release_each
from .core.place import place_of

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .core.grant import Grant
    from .core.held import Held
    from .core.target import Target

    Release = Literal["commit", "exit"]

RELEASES = ("commit", "exit")
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


def checked_release(release: Release | None) -> Release | None:
    """``release``. Raises ValueError if it is none."""
    if release is not None and release not in RELEASES:
        raise ValueError(f"release is 'commit', 'exit' or None, not {release!r}")
    return release


def waits_for_commit(release: Release | None) -> bool:
    """Whether a lock with ``release`` is held until the end of a transaction.

    None: as the setting RELEASE says. Raises ValueError for what is none.
    """
    return (checked_release(release) or get_config()["RELEASE"]) == "commit"


@dataclass(eq=False)
class _PutOff:
    """A handle that was let go, and the transactions that it waits for."""

    held: Held
    waits_for: set[_Transaction]


class AtCommit:
    """The :class:`~.core.ending.Ending` of a lock that outlives the transaction around it."""

    def puts_off(self, held: Held) -> bool:
        around = _open_transactions()
        if not around:
            return False
        if held.root is not held and any(
            one.held.root is held.root and one.waits_for.issuperset(around)
            for one in around[0].put_off
        ):
            # One of several shares is enough to keep it.
            return False
        one = _PutOff(held, set(around))
        for transaction in around:
            transaction.put_off.append(one)
        return True

    def kept(self, target: Target) -> Grant | None:
        for connection in connections.all(initialized_only=True):
            transaction: _Transaction | None = vars(connection).get(_MARK)
            for one in transaction.put_off if transaction else ():
                root = one.held.root
                if root.name == target.keys.name and _may_be_had(root, target):
                    return root
        return None


AT_COMMIT = AtCommit()


def _may_be_had(root: Grant, target: Target) -> bool:
    return (
        root.target.dialect == target.dialect
        and place_of(root.client) == place_of(target.client)
        and root.is_here
        and not sharing.is_over(root)
        and sharing.is_put_off(root)
    )


def _open_transactions() -> list[_Transaction]:
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
            found.append(_transaction(connection, around))
    return found


def _transaction(connection: BaseDatabaseWrapper, around: int) -> _Transaction:
    known: _Transaction | None = vars(connection).get(_MARK)
    if known is not None:
        if known.is_still(around):
            return known
        known.has_ended()
    return _Transaction(connection, around)


class _Transaction:
    """A transaction of one connection, watched until it has ended.

    ``around``: the atomic blocks of a TestCase in which it is a savepoint; mostly 0.
    """

    def __init__(self, connection: BaseDatabaseWrapper, around: int) -> None:
        self.put_off: list[_PutOff] = []
        self._connection = connection
        self._around = around
        self._outermost = connection.atomic_blocks[around] if around else None
        self._watched: dict[str, tuple[Callable[..., Any], bool]] = {}
        own = vars(connection)
        own[_MARK] = self
        for name in _WATCHED:
            self._watched[name] = (getattr(connection, name), name in own)
            own[name] = getattr(self, f"_{name}")
        if around:
            connection.atomic_blocks = _Blocks(connection.atomic_blocks, self)

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
        for some in _by_client(due):
            for error in release_each(some, now=True):
                logger.warning("%s", error)

    def left_without_savepoint(self) -> bool:
        """Whether nothing else tells that the outermost block is left."""
        savepoints = self._connection.savepoint_ids
        return self._is_left and bool(savepoints) and savepoints[-1] is None

    def _watch_no_longer(self) -> None:
        connection, own = self._connection, vars(self._connection)
        if own.get(_MARK) is not self:
            return
        del own[_MARK]
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

    def __init__(self, blocks: Iterable[Any], transaction: _Transaction) -> None:
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
