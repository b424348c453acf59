"""What is asked about locks, and what the answers tell of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from ..fingerprint import fingerprint_of
from ..holder import Holder
from ..lock_info import AwaitedLock, LockInfo, ShareInfo, State, WaiterInfo
from ..protocol.keys import lock_keys
from ..protocol.requests import Request, Script
from ..stop_request import StopRequest

LIST = Script("list")
# How what stands at the name of one of ours begins, unless it is the token of who holds it.
_STANDING = {"readers": State.READ, "permits": State.PERMITS, "kept": State.KEPT}
_TIME = re.compile(r"[0-9]{1,15}", re.ASCII)
_MS = {"s": 1000, "ms": 1}
# No number of ours has more digits, and more are not exact in Lua.
_DIGITS = 16


def asking_about(names: Sequence[str], script: Script, index: str | None, waiters: int) -> Request:
    """Ask what there is to say about the locks ``names``, and as many ``waiters`` of each."""
    keys = [key for name in names for key in (name, lock_keys(name).meta)]
    return Request(script, (*keys, *([index] if index else [])), (str(waiters),))


def name_in(name: bytes) -> str | None:
    """Return a listed name as text; None for one that cannot be a lock of ours."""
    try:
        text = name.decode()
        lock_keys(text)
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
        now_us, is_ours = int(now), how == "ours"
        until = (
            _MS.get(self._unit, 0) * int(value) if how == "foreign" and self._is_time(value) else 0
        )
        if until:
            left = until - now_us // 1000
            if left <= 0:
                kind, value, how, left = "none", False, False, 0
        others = tuple([self._share(name, one, now_us) for one in shares])
        waiters = tuple([_waiter(name, one, at, now_us) for at, one in enumerate(named, 1)])
        tokens = sorted(one.token for one in others) or [_bytes(value or "")]
        given = _number(fence) if is_ours else 0
        return LockInfo(
            key=self.key(name),
            name=name,
            state=_state(kind, value, how, left),
            holder=_holder(record) if is_ours else None,
            fence=given or None,
            remaining=max(left, 0) / 1000 if value is not False and left >= 0 else None,
            held_for=max(now_us - given, 0) / 1e6 if given else None,
            waiting=waiting,
            longest_wait=waiters[0].waited if waiters else None,
            waiters=waiters,
            fingerprint="" if value is False else fingerprint_of(name, *tokens),
            kind=kind,
            unit=unit or (self._unit if until else ""),
            stop_requested=_stop_request(record) if is_ours and not others else None,
            shares=others,
            waits_for=self._awaited(awaited, now_us),
            # Requests to stop have it in whole milliseconds, too.
            as_of=now_us // 1000 / 1000,
            token=_bytes(value or ""),
        )

    def _share(self, name: str, found: Sequence[Any], now_us: int) -> ShareInfo:
        token, left, fence, record, awaited = found
        granted = _number(fence)
        return ShareInfo(
            holder=_holder(record),
            fence=granted,
            remaining=int(left) / 1000,
            held_for=max(now_us - granted, 0) / 1e6,
            fingerprint=fingerprint_of(name, _bytes(token)),
            stop_requested=_stop_request(record),
            waits_for=self._awaited(awaited, now_us),
            token=_bytes(token),
        )

    def _awaited(self, found: Sequence[Any] | Literal[False], now_us: int) -> AwaitedLock | None:
        if not found or name_in(_bytes(found[0])) is None:
            return None
        name, token, came = found
        since = _number(came)
        return AwaitedLock(
            key=self.key(name),
            name=name,
            waited=max(now_us - since, 0) / 1e6 if since else None,
            fingerprint=fingerprint_of(name, _bytes(token)),
        )

    def _is_time(self, value: str) -> bool:
        return bool(self._unit and _TIME.fullmatch(value))


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


def _waiter(name: str, found: Sequence[Any], position: int, now_us: int) -> WaiterInfo:
    token, came, record = found
    since = _number(came)
    return WaiterInfo(
        position=position,
        holder=_holder(record),
        waited=max(now_us - since, 0) / 1e6 if since else None,
        fingerprint=fingerprint_of(name, _bytes(token)),
    )


def _number(digits: Any) -> int:
    """Return a number that Redis has, 0 for one that cannot be ours."""
    return int(digits) if digits and len(digits) <= _DIGITS else 0


def _holder(record: Any) -> Holder | None:
    return Holder.from_json(_shown(record)) if record else None


def _stop_request(record: Any) -> StopRequest | None:
    return StopRequest.from_record(_shown(record)) if record else None


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
