"""A block in which every write of the ORM first asks whether the lock is still held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from django.db import connections
from django.utils.asyncio import async_unsafe

# A transaction or savepoint writes nothing, and a rollback has to work once the lock is lost.
_WITHOUT_CHECK = ("SELECT", "BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK")


class Checked(Protocol):
    """A handle of a lock, or of several."""

    def check(self) -> None: ...


@async_unsafe("guard() works in the thread that it is used in: use it where the ORM is called")
@contextmanager
def guard(held: Checked) -> Iterator[None]:
    """Call ``held.check()`` before each statement of this thread that is no SELECT.

    That is on all databases; BEGIN, savepoints and rollbacks pass, too. Once the lock is lost, the
    statement is not sent and LockLost is raised, or LockUnavailable where Redis cannot say. Each
    check is one round trip to Redis. A SELECT that writes, as by a function or a second
    statement behind it, is not seen, nor is what goes past ``execute()`` of Django's cursors. Time
    passes between the answer and the write: only a fence refuses every late write.

    Raises SynchronousOnlyOperation in a running event loop.
    """

    def checking(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if not str(sql).lstrip().upper().startswith(_WITHOUT_CHECK):
            held.check()
        return execute(sql, params, many, context)

    with ExitStack() as wrapped:
        for connection in connections.all():
            wrapped.enter_context(connection.execute_wrapper(checking))
        yield
