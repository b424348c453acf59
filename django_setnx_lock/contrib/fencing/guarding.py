"""A block in which every write of the ORM first asks whether the lock is still held."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from django.db import connections

from ...async_support import refuse

# Statements on these lists pass; all others check the lock first, at one round trip each. Literals
# are not parsed: their text counts as part of the statement.
_FRAME = re.compile(
    r"\s*(begin|start\s+transaction|savepoint|release|rollback)\b[^;]*;?\s*", re.IGNORECASE
)
_READS = re.compile(r"[\s(]*(select|values|show)\b", re.IGNORECASE)
_WRITES = re.compile(
    r";(?!\s*\Z)|(?<![a-z_])(into|insert|update|delete|merge|for\s+(key\s+)?share|share\s+mode)"
    r"(?![a-z_])",
    re.IGNORECASE,
)
# Comments of tools that say where a statement comes from. Any other comment may hide something.
_NOTE = re.compile(r"/\*[^*()!]*\*/")
_OTHER_NOTE = re.compile(r"/\*|--|#(?!>)")
_CALLED = re.compile(r'(?<![\w$."`\]])([\w$."`\]]+)\s*\(')

# Names before a bracket that write nothing: keywords, types, and the usual functions of the ORM.
_NAMES = """
    all and any array as between by case distinct else except exists filter from having ilike in
    intersect is join lateral like limit not offset on or over row select some then union unnest
    using values when where

    char character decimal float interval numeric time timestamp varchar varying

    array_agg avg count group_concat json_agg jsonb_agg max min stddev_pop stddev_samp string_agg
    sum var_pop var_samp
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
    row_number

    cast coalesce collate greatest least nullif
    abs ceil ceiling floor mod power rand random round sign sqrt
    char_length chr concat concat_ws left length lower lpad ltrim md5 repeat replace reverse right
    rpad rtrim strpos substr substring trim upper
    convert_tz current_timestamp date date_format date_trunc dayofweek extract now
    statement_timestamp str_to_date strftime weekday
    json_array json_extract json_object json_type json_unquote jsonb_build_array jsonb_build_object
    plainto_tsquery similarity to_tsquery to_tsvector ts_rank unaccent

    django_date_extract django_date_trunc django_datetime_cast_date django_datetime_cast_time
    django_datetime_extract django_datetime_trunc django_format_dtdelta django_time_diff
    django_time_extract django_time_trunc django_timestamp_diff
"""
_HARMLESS = frozenset(_NAMES.split())

# Methods of drivers' cursors that send a statement past Django's wrappers of execute().
_UNWRAPPED = ("callproc", "copy", "copy_expert", "copy_from", "copy_to", "executescript", "stream")


class Checked(Protocol):
    """A handle of a lock, or of several."""

    def check(self) -> None: ...


@contextmanager
def guard(held: Checked) -> Iterator[None]:
    """Call ``check()`` before each statement of this thread that may write, on any database.

    So the statement is not sent once the lock is lost, and LockLost is raised in its place, or
    LockUnavailable where Redis cannot say. One round trip to Redis a statement. Only what is
    known to read is let through: a single SELECT, VALUES or SHOW without row locks that calls no
    functions but common ones. Not seen are writes that the database makes of a read, as a view
    does that calls a function, and what goes past Django's cursors. Between the answer and the
    write time passes, so this makes the moment short in which a late write gets through: only a
    fence closes it. Raises SynchronousOnlyOperation in a running event loop.
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
            for method in ("cursor", "chunked_cursor"):
                wrapped.enter_context(_checked_cursors(connection, method, held))
        yield


def _may_write(sql: Any) -> bool:
    if not isinstance(sql, str):
        return True
    if _FRAME.fullmatch(sql):
        return False
    bare = _NOTE.sub(" ", sql)
    if not _READS.match(bare) or _WRITES.search(sql) or _OTHER_NOTE.search(bare):
        return True
    return any(name.lower() not in _HARMLESS for name in _CALLED.findall(bare))


@contextmanager
def _checked_cursors(connection: Any, method: str, held: Checked) -> Iterator[None]:
    """Make ``method`` of ``connection`` return cursors that check the lock before they write."""
    own, make = vars(connection).get(method), getattr(connection, method)

    def checked(*args: Any, **kwargs: Any) -> Any:
        cursor = make(*args, **kwargs)
        for name in _UNWRAPPED:
            if send := getattr(cursor, name, None):
                setattr(cursor, name, partial(_send_checked, held, send))
        return cursor

    setattr(connection, method, checked)
    try:
        yield
    finally:
        if own is None:
            delattr(connection, method)
        else:
            setattr(connection, method, own)


def _send_checked(held: Checked, send: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    held.check()
    return send(*args, **kwargs)
