"""How holds of locks ended, as the scripts have noted it in a stream. It is for operators only."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .fingerprint import fingerprint_of
from .holder import Holder
from .plain import plain
from .protocol.commands import PlainRequest
from .protocol.keys import lock_keys

# So many entries are asked for at a time, which keeps Redis busy for less than a millisecond.
STEP = 250
#: For so many seconds a page looks for them. Redis is busy with it for a tenth of that.
LOOKING = 0.1
# Milliseconds that a datetime can be made of, and microseconds that are exact in Lua.
_LATEST, _FENCES = 10**14, 1 << 53
_ID = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_HIGHEST = 2**64 - 1
# Longer texts than the scripts write are others'.
_LONGEST = 32_768
_MS = re.compile(r"\d{1,15}", re.ASCII)
# What precedes the record of a timestamp lock, and the token of one that polls.
_TIME = re.compile(rb"@\d+ m?s ")
_POLLING = b"polling:"


class End(str, enum.Enum):
    """How a hold ended.

    ``LOST``: its key was removed or written over before its lease was over, or the holder found it
    so. ``LEASE_OVER``: nobody let it go, and the next holder followed.
    """

    RELEASED = "released"
    LEASE_OVER = "lease over"
    LOST = "lost"
    FORCED = "forced"
    DISMISSED = "dismissed"

    @property
    def slug(self) -> str:
        """The word as options, addresses and JSON have it, with hyphens."""
        return self.value.replace(" ", "-")


_ENDS = {one.value.encode(): one for one in End}


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """The end of one hold.

    ``id``: where it stands in the stream. ``at``: when it was noted, and ``granted_at``: when the
    lock was granted, as Unix times by the clock of the server. ``held_for``: for how many seconds
    its holder had it, and ``waited``: for how many the holder had waited for it. None for what is
    not known. ``by`` and ``reason``: who ended it, and why, where an operator did. ``fingerprint``:
    as in :class:`LockInfo`; empty when not known.
    """

    id: str
    key: str
    name: str
    end: End
    at: float
    granted_at: float | None = None
    held_for: float | None = None
    waited: float | None = None
    holder: Holder | None = None
    fence: int | None = None
    by: str = ""
    reason: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPage:
    """Some entries, the newest first.

    ``onward``: the ``before`` by which the search goes on; empty when there are no older ones.
    """

    entries: Sequence[HistoryEntry] = ()
    onward: str = ""


def reading(key: str, before: str, count: int) -> PlainRequest:
    """Return the request for the ``count`` entries of the stream before the one of that ID.

    ``before``: "" for the newest.
    """
    return PlainRequest(("XREVRANGE", key, _id_before(before), "-", "COUNT", str(count)))


def check_id(before: str) -> None:
    """Raise ValueError unless it is the ID of an entry, or ""."""
    found = _ID.fullmatch(before)
    if before and (found is None or max(int(found[1]), int(found[2])) > _HIGHEST):
        raise ValueError(f"before is the id of an entry, as '1700000000000-0', not {before!r}")


def _id_before(before: str) -> str:
    # "(ID" is not known before Redis 6.2.
    if not before:
        return "+"
    ms, number = map(int, before.split("-"))
    if number:
        return f"{ms}-{number - 1}"
    return f"{ms - 1}-{_HIGHEST}" if ms else "0-0"


def read_ids(reply: Any) -> list[tuple[str, Any]]:
    """Return the entries in ``reply`` with their IDs."""
    return [(_text(one[0]), one[1]) for one in reply or ()]


def read_entry(
    prefix: str, number: str, fields: Any, name: str | None, ends: Collection[End]
) -> HistoryEntry | None:
    """Return the entry of that ID; None if it is none of ours, or not one that is looked for.

    ``name``: of the lock that is looked for (None: any). ``ends``: which ends are (empty: all).
    """
    if name is not None and isinstance(fields, list):
        # Quicker than to read each; most are of other locks.
        is_there = name in fields or name.encode("utf-8", "surrogatepass") in fields
        if not is_there:
            return None
    told = _fields(fields)
    end, own = _ENDS.get(told.get(b"end", b"")), _name_in(told.get(b"name", b""))
    if end is None or (ends and end not in ends) or name not in (None, own):
        return None
    ms = int(number.partition("-")[0])
    if own is None or ms >= _LATEST or sum(map(len, told.values())) > _LONGEST:
        return None
    fence, token, holder = _known(told.get(b"known", b""))
    more = told.get(b"more", b"")
    at = ms / 1000
    granted_at = fence / 1e6 if fence else None
    by, reason, over_ms = _mark(more)
    if end is End.LEASE_OVER:
        over_ms = (_seconds(more) or 0.0) * 1000
    return HistoryEntry(
        id=number,
        key=plain(own.removeprefix(prefix)),
        name=own,
        end=end,
        at=at,
        granted_at=granted_at,
        held_for=None if granted_at is None else max(at - over_ms / 1000 - granted_at, 0.0),
        waited=_seconds(more) if end in (End.RELEASED, End.LOST) else None,
        holder=holder,
        fence=fence,
        by=by,
        reason=reason,
        fingerprint=fingerprint_of(own, token) if token else "",
    )


def _fields(fields: Any) -> Mapping[bytes, bytes]:
    """Return the fields of an entry, whatever the client makes of them."""
    if isinstance(fields, Mapping):
        return {_bytes(name): _bytes(value) for name, value in fields.items()}
    if not isinstance(fields, (list, tuple)):
        return {}
    return {_bytes(name): _bytes(value) for name, value in zip(fields[::2], fields[1::2])}  # noqa: B905 - others may have written half of one


def _name_in(name: bytes) -> str | None:
    try:
        text = name.decode()
        lock_keys(text)
    except ValueError:
        return None
    return text


def _known(known: bytes) -> tuple[int | None, bytes, Holder | None]:
    """Return fence, token and holder in 'FENCE LENGTH-OF-TOKEN TOKEN RECORD'."""
    fence, _, rest = known.partition(b" ")
    length, _, rest = rest.partition(b" ")
    if not _is_number(fence) or not _is_number(length):
        return None, b"", None
    token, record = rest[: int(length)].removeprefix(_POLLING), rest[int(length) + 1 :]
    time = _TIME.match(record)
    record = record[time.end() :] if time else record
    number = int(fence)
    holder = Holder.from_json(record.decode("utf-8", "backslashreplace").strip() or None)
    return number if 0 < number < _FENCES else None, token, holder


def _is_number(text: bytes) -> bool:
    return len(text) <= 16 and text.isdigit()


def _seconds(more: bytes) -> float | None:
    text = more.decode("ascii", "replace")
    return int(text) / 1000 if _MS.fullmatch(text) else None


def _mark(more: bytes) -> tuple[str, str, float]:
    """Return who and why, and for how many ms the lease was over then, as told in JSON."""
    try:
        data = json.loads(more.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return "", "", 0.0
    by, reason = (data.get(name) for name in ("by", "reason"))
    over = data.get("over")
    return (
        plain(by) if isinstance(by, str) else "",
        plain(reason) if isinstance(reason, str) else "",
        over if type(over) is int and 0 <= over < _LATEST else 0.0,
    )


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
