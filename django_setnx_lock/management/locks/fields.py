"""A lock for programs: the fields that ``locks list --json`` gives of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django_setnx_lock.core.lock_info import LockInfo


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
        "waiters": [
            {"position": number, "holder": _record(one.holder), "waited": one.waited}
            for number, one in enumerate(info.waiters, 1)
        ],
        **_held(info),
        "shares": [{"state": share.state.slug, **_held(share)} for share in info.shares],
    }


def _held(info: LockInfo) -> dict[str, Any]:
    awaited = info.waits_for
    return {
        "holder": _record(info.holder),
        "fence": info.fence,
        "held_for": info.held_for,
        "remaining": info.remaining,
        "fingerprint": info.fingerprint,
        "stop_requested": _record(info.stop_requested),
        "waits_for": None if awaited is None else {"key": awaited.key, "waited": awaited.waited},
    }


def _record(found: Any) -> dict[str, Any] | None:
    return None if found is None else {one.name: getattr(found, one.name) for one in fields(found)}
