"""A lock for programs: the fields that ``locks list --json`` gives of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from .core.holder import Holder
from .core.inspection import LockInfo, ShareInfo, WaiterInfo
from .core.stop_request import StopRequest


def lock_fields(info: LockInfo, using: str) -> dict[str, Any]:
    """Return the fields of a lock in the cache ``using``. A token is never among them."""
    return {
        "using": using,
        "key": info.key,
        "name": info.name,
        "state": info.state.slug,
        "states": sorted(state.slug for state in info.states),
        "as_of": info.as_of,
        "granted_at": info.granted_at,
        "renewed_ago": info.renewed_ago,
        "kind": info.kind,
        "unit": info.unit,
        "waiting": info.waiting,
        "waiters": waiter_fields(info.waiters),
        **_held(info),
        "shares": [{"state": share.state.slug, **_held(share)} for share in info.shares],
    }


def waiter_fields(waiters: Sequence[WaiterInfo]) -> list[dict[str, Any]]:
    """Return the fields of those who wait."""
    return [
        {
            "position": one.position,
            "holder": _nested("holder", one.holder),
            "waited": one.waited,
        }
        for one in waiters
    ]


def _held(info: LockInfo | ShareInfo) -> dict[str, Any]:
    return {
        "holder": _nested("holder", info.holder),
        "fence": info.fence,
        "held_for": info.held_for,
        "remaining": info.remaining,
        "fingerprint": info.fingerprint,
        "stop_requested": _nested("stop_requested", info.stop_requested),
        "waits_for": _nested("waits_for", info.waits_for),
    }


# The fields that have fields of their own, which may be missing.
_NESTED = {
    "holder": [field.name for field in fields(Holder)],
    "stop_requested": [field.name for field in fields(StopRequest)],
    "waits_for": ["key", "waited"],
}


def _nested(name: str, value: object) -> dict[str, Any] | None:
    return None if value is None else {part: getattr(value, part) for part in _NESTED[name]}


def document(batches: Iterable[Iterable[dict[str, Any]]], troubles: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a JSON document with each lock of ``batches`` on a line.

    ``troubles`` are those that are known when the last batch was read.
    """
    yield '{"locks": ['
    between = "\n"
    for some in batches:
        yield between + ",\n".join(map(json.dumps, some))
        between = ",\n"
    yield f'\n], "troubles": {json.dumps(troubles)}}}\n'
