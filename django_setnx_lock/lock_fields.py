"""A lock for programs: the fields that ``locks list --json`` and the admin's exports give of it."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from .core.holder import Holder
from .core.inspection import LockInfo, ShareInfo
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
        **_held(info),
        "shares": [{"state": share.state.slug, **_held(share)} for share in info.shares],
    }


def _held(info: LockInfo | ShareInfo) -> dict[str, Any]:
    return {
        "holder": None if info.holder is None else asdict(info.holder),
        "fence": info.fence,
        "held_for": info.held_for,
        "remaining": info.remaining,
        "fingerprint": info.fingerprint,
        "stop_requested": None if info.stop_requested is None else asdict(info.stop_requested),
    }


# The fields that have fields of their own, which may be missing.
_NESTED = {
    name: [field.name for field in fields(kind)]
    for name, kind in (("holder", Holder), ("stop_requested", StopRequest))
}


def flat(found: dict[str, Any]) -> dict[str, Any]:
    """Return :func:`lock_fields` in one level: ``holder.host``, the same names for each lock."""
    row: dict[str, Any] = {}
    for name, value in found.items():
        if name in _NESTED:
            row |= {f"{name}.{part}": (value or {}).get(part) for part in _NESTED[name]}
        else:
            row[name] = value
    return row
