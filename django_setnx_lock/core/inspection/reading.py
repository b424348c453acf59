"""Make the requests that ask about locks, and read their replies as LockInfos."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..holder import Holder
from ..protocol.keys import meta_key
from ..protocol.replies import StopRequest
from .lock_info import LockInfo, State, WaiterInfo

# How what stands at the name of one of ours begins, unless it is the token of who holds it.
_STANDING = {"readers": State.READ, "permits": State.PERMITS, "kept": State.KEPT}
_TIME = re.compile(r"[0-9]{1,15}", re.ASCII)
_MS = {"s": 1000, "ms": 1}
# No number of ours has more digits, and more are not exact in Lua.
_DIGITS = 16


def name_in(name: bytes) -> str | None:
    """Return a listed name as text; None for one that cannot be a lock of ours."""
    try:
        text = name.decode()
        meta_key(text)
    except ValueError:
        return None
    return text


class Reader:
    """Reads what Redis says of locks under ``prefix``.

    ``unit``: in what a number is the time until which another program has the lock, ``s`` or
    ``ms``; "" if none is.
    """

    def __init__(self, prefix: str, unit: str) -> None:
        self._prefix = prefix
        self._unit = unit

    def key(self, name: str) -> str:
        """Return what callers call the lock."""
        return name.removeprefix(self._prefix)

    def locks(self, names: Sequence[str], answer: Any) -> Iterator[LockInfo]:
        """Yield those of ``names`` that ``answer`` is about, which are the first."""
        # Tokens and records are bytes that others may have written: what is not UTF-8 is kept.
        found = json.loads(_text(answer)) if isinstance(answer, bytes) else _texts(answer)
        return map(self._lock, names, found)

    def _lock(self, name: str, found: Sequence[Any]) -> LockInfo:
        kind, value, how, left, fence, record, waiting, now, shares, named, unit, awaited = found
        now_us = int(now)
        if how == "foreign" and self._unit and _TIME.fullmatch(value):
            unit, left = self._unit, int(value) * _MS[self._unit] - now_us // 1000
            if left <= 0:
                kind, value, how, left = "none", False, False, 0
        about: dict[str, Any] = {
            "key": self.key(name),
            "name": name,
            "waiting": waiting,
            "waiters": tuple([self._waiter(now_us, name, *one) for one in named]),
            "kind": kind,
            "unit": unit or "",
            # Requests to stop have it in whole milliseconds, too.
            "as_of": now_us // 1000 / 1000,
        }
        others = tuple([LockInfo(**about, **self._held(now_us, name, *one)) for one in shares])
        if how != "ours":
            fence = record = False
        held = self._held(now_us, name, value, left, fence, record, awaited)
        held["state"] = _state(kind, value, how, left)
        if others:
            tokens = sorted(one.token for one in others)
            held |= {"fingerprint": _fingerprint(name, *tokens), "stop_requested": None}
        return LockInfo(**about, **held, shares=others)

    def _held(
        self, now_us: int, name: str, value: Any, left: Any, fence: Any, record: Any, awaited: Any
    ) -> dict[str, Any]:
        """Return what is told of a lock that is held by the token ``value``, False for none."""
        granted, shown = _number(fence), _shown(record) if record else ""
        is_known = value is not False and int(left) >= 0
        return {
            "state": State.HELD,
            "holder": Holder.from_json(shown),
            "fence": granted or None,
            "remaining": int(left) / 1000 if is_known else None,
            "held_for": _seconds_since(granted, now_us),
            "fingerprint": "" if value is False else _fingerprint(name, value),
            "stop_requested": StopRequest.from_record(shown),
            "waits_for": self._awaited(now_us, awaited),
            "token": value or "",
        }

    def _awaited(self, now_us: int, found: Any) -> WaiterInfo | None:
        # Its name others may have written.
        is_name = found and name_in(_bytes(found[0])) is not None
        return self._waiter(now_us, *(*found, False)) if is_name else None

    def _waiter(self, now_us: int, name: str, token: str, came: Any, record: Any) -> WaiterInfo:
        return WaiterInfo(
            key=self.key(name),
            name=name,
            holder=Holder.from_json(_shown(record)) if record else None,
            waited=_seconds_since(_number(came), now_us),
            fingerprint=_fingerprint(name, token),
        )


def _state(kind: str, value: str, how: str, left: int) -> State:
    if kind == "none":
        return State.FREE
    if kind != "string":
        return State.NO_LOCK
    if how == "given":
        return State.CHANGING_HANDS
    if left < 0:
        return State.NEVER_EXPIRES
    if how == "foreign":
        return State.FOREIGN
    return _STANDING.get(value.partition(":")[0], State.HELD) if ":" in value else State.HELD


def _fingerprint(name: str, *tokens: str) -> str:
    """Return what stands for ``tokens``, by which the lock ``name`` is held, and hides them."""
    return hashlib.sha256(_bytes("\0".join((name, *tokens)))).hexdigest()[:32]


def _number(digits: Any) -> int:
    """Return a number that Redis has, 0 for one that cannot be ours."""
    return int(digits) if digits and len(digits) <= _DIGITS else 0


def _seconds_since(us: int, now_us: int) -> float | None:
    return max(now_us - us, 0) / 1e6 if us else None


def _shown(record: str) -> str:
    return record if record.isascii() else _bytes(record).decode("utf-8", "backslashreplace")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    """Return what Redis has, of which ``text`` was in a reply."""
    return text.encode("utf-8", "surrogateescape")


def _texts(reply: Any) -> Any:
    """Return what stands in JSON for a reply that is none."""
    if isinstance(reply, list):
        return list(map(_texts, reply))
    return _text(reply) if isinstance(reply, bytes) else False if reply is None else reply
