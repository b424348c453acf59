"""The list of the locks as a file: CSV, or JSON as ``locks list --json`` writes it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timezone
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from django.utils.translation import gettext as _

from ..core.errors import LockUnavailable
from ..core.inspection import Inspector, LockInfo, State
from ..core.plain import plain
from ..descriptions import problem
from ..lock_fields import document, flat, lock_fields
from .lock_list import Query, Walk

if TYPE_CHECKING:
    from django.http import HttpRequest

# So many locks are in a file at most, and for so many seconds names are looked through for it.
MOST = 10_000
_WITHIN = 10.0
# So many are written at once.
_CHUNK = 100
KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
# What a spreadsheet takes for a formula begins so.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def export(
    request: HttpRequest, query: Query, look: Inspector, using: str, kind: str
) -> StreamingHttpResponse:
    """Return the locks of the list as a file of that ``kind``, a key of :data:`KINDS`.

    It is written while Redis is asked. Raises LockUnavailable if that fails at once; later, the
    file says so at its end, as it says if there are more locks than it has.
    """
    walk = Walk(query=query, look=look, most=MOST, within=_WITHIN)
    locks = iter(walk)
    first = list(islice(locks, _CHUNK))
    write = _as_csv if kind == "csv" else _as_json
    parts: Iterable[str] = write(chain(first, locks), walk, using)
    response = StreamingHttpResponse(
        _apart(iter(parts)) if isinstance(request, ASGIRequest) else parts,
        content_type=KINDS[kind],
    )
    now = datetime.now(timezone.utc)
    response["Content-Disposition"] = f'attachment; filename="locks-{now:%Y%m%dT%H%M%SZ}.{kind}"'
    return response


def _as_json(locks: Iterable[LockInfo], walk: Walk, using: str) -> Iterator[str]:
    troubles: list[str] = []
    chunks = _chunks(locks, walk, troubles)
    return document(([lock_fields(one, using) for one in some] for some in chunks), troubles)


def _as_csv(locks: Iterable[LockInfo], walk: Walk, using: str) -> Iterator[str]:
    troubles: list[str] = []
    columns = flat(lock_fields(LockInfo(key="", name="", state=State.FREE), using))
    yield _rows([list(columns)])
    for some in _chunks(locks, walk, troubles):
        yield _rows([map(_cell, flat(lock_fields(one, using)).values()) for one in some])
    if troubles:
        yield _rows([[f"# {one}"] for one in troubles])


def _rows(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _chunks(locks: Iterable[LockInfo], walk: Walk, troubles: list[str]) -> Iterator[list[LockInfo]]:
    """Yield ``locks``, some at a time; then note in ``troubles`` why these are not all."""
    found = iter(locks)
    try:
        while some := list(islice(found, _CHUNK)):
            yield some
    except LockUnavailable as error:
        said = problem(error)
        troubles.append(" ".join([_("There are more locks than these."), *said.values()]))
    if walk.is_cut:
        troubles.append(_("There are more locks than these."))


def _cell(value: Any) -> Any:
    """Return ``value`` as a spreadsheet may read it: as no formula."""
    if isinstance(value, list):
        # The states are words; who holds it together with others is more than that.
        is_of_words = all(isinstance(one, str) for one in value)
        return " ".join(value) if is_of_words else json.dumps(value)
    if not isinstance(value, str):
        return value
    # Not all Pythons write a NUL.
    value = plain(value)
    return f"'{value}" if value.startswith(_FORMULA) else value


async def _apart(parts: Iterator[str]) -> AsyncIterator[str]:
    """Yield ``parts``, each of which may ask Redis, beside the event loop."""

    def following() -> str | None:
        return next(parts, None)

    while (part := await sync_to_async(following)()) is not None:
        yield part
