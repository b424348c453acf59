"""A block in which every write of the ORM first asks whether the lock is still held."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from django.db import connections

from ...async_safety import refuse

# Whatever else a statement begins with may write.
_READS = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*"
    r"(select|explain|show|describe|pragma|begin|start|set|savepoint|release|rollback)\b",
    re.IGNORECASE | re.DOTALL,
)
_LOCKS = re.compile(r"\bfor\s+(no\s+key\s+)?(update|share)\b", re.IGNORECASE)


class Checked(Protocol):
    """A handle of a lock, or of several."""

    def check(self) -> None: ...


@contextmanager
def guard(held: Checked) -> Iterator[None]:
    """Have each statement that may write, of this thread on any database, go through ``check()``.

    So the statement is not sent once the lock is lost, and LockLost is raised in its place, or
    LockUnavailable where Redis cannot say. One round trip to Redis a statement. What reads is
    let through; ``SELECT ... FOR UPDATE`` is not a read here. Between the answer and the write
    time passes, so this makes the moment short in which a late write gets through: only a fence
    closes it. Raises SynchronousOnlyOperation in a running event loop.
    """
    refuse("guard() works in the thread that it is used in: use it where the ORM is called")

    def checking(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if _may_write(sql):
            held.check()
        return execute(sql, params, many, context)

    with ExitStack() as wrapped:
        for connection in connections.all():
            wrapped.enter_context(connection.execute_wrapper(checking))
        yield


def _may_write(sql: Any) -> bool:
    return not (isinstance(sql, str) and _READS.match(sql)) or bool(_LOCKS.search(sql))
