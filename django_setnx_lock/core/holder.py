"""The holder record: who holds a lock; and texts that others wrote, made fit to be shown."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

#: How many characters of a text are kept.
LONGEST = 500

# Control characters, line and paragraph separators, what turns the direction of writing around,
# and surrogates: those stand for bytes that are no UTF-8, and cannot be encoded.
_TRICKS = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 1e9
# A record of so many characters is remembered when it was read.
_KEPT = 1000
_PROCESS = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_TEXTS = ("host", "thread", "label", "user", "note")


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The record of who holds a lock, beside the lock in Redis. It is for operators only.

    ``lease``: the seconds that the lock lives unrenewed (0: not known). ``renewed``: whether it is
    renewed, for ``max_hold`` seconds at most (0: without limit). ``process``: the name under which
    the holder's process says that it lives ("": it does not). ``since``: when it took the lock over
    from another process, in milliseconds of the server's clock (0: it did not).

    Each text is made :func:`plain`, whoever gives it: what stands in Redis others wrote.
    """

    host: str = ""
    pid: int = 0
    thread: str = ""
    label: str = ""
    user: str = ""
    note: str = ""
    lease: float = 0.0
    renewed: bool = False
    max_hold: float = 0.0
    process: str = ""
    since: int = 0

    def __post_init__(self) -> None:
        for name in _TEXTS:
            given = getattr(self, name)
            text = plain(str(given or ""))
            if text is not given:
                object.__setattr__(self, name, text)

    @classmethod
    def from_json(cls, text: str) -> Holder | None:
        """Return the record in ``text``; None when there is none or it cannot be read.

        A field of the wrong type counts as missing.
        """
        # What others wrote may be too long to be kept in memory.
        return (_from_json if len(text) <= _KEPT else _from_json.__wrapped__)(text)

    def to_json(self) -> str:
        """Return the record as compact JSON, without its empty fields."""
        # A time of whole seconds is shorter as an int.
        values = {
            key: int(value) if isinstance(value, float) and value.is_integer() else value
            for key, value in asdict(self).items()
            if value
        }
        return json.dumps(values, separators=(",", ":"))

    def __str__(self) -> str:
        place = f"{self.host or '?'}:{self.pid or '?'}"
        if self.user:
            place = f"{self.user}@{place}"
        about = "; ".join(part for part in (self.label, self.note) if part)
        return f"{place} ({about})" if about else place


# In a list the locks of one process have the same record.
@functools.lru_cache(maxsize=256)
def _from_json(text: str) -> Holder | None:
    data = json_object(text)
    if data is None:
        return None
    process = text_in(data, "process")
    return Holder(
        **{name: text_in(data, name) for name in _TEXTS},
        pid=_number(data, "pid", 2**32 - 1),
        lease=float(_number(data, "lease", _LONGEST)),
        renewed=data.get("renewed") is True,
        max_hold=float(_number(data, "max_hold", _LONGEST)),
        # It becomes part of the name of a key.
        process=process if _PROCESS.fullmatch(process) else "",
        # Milliseconds that are exact in Lua.
        since=_number(data, "since", 2**53 - 1),
    )


def _number(data: dict[str, Any], name: str, most: float) -> Any:
    """Return the number of that name if it is one from 0 to ``most``, of the same type; else 0."""
    value: Any = data.get(name)
    is_number = type(value) is int or (type(value) is float and type(most) is float)
    return value if is_number and 0 < value <= most else 0


def plain(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` as one line that can be encoded and does nothing but be read.

    What could do more is escaped, as in a string of Python: ``\\n``, ``\\x1b``, ``\\udce4``. Of a
    text of more than ``longest`` characters the beginning is kept, and ``…`` follows it.
    """
    # True of nearly all texts, and quicker than to look for each trick.
    if len(text) <= longest and text.isprintable():
        return text
    escaped = _TRICKS.sub(_escaped, text[: longest + 1])
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def json_object(written: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in what others wrote; None where there is none."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_in(found: dict[str, Any], name: str) -> str:
    """Return the text of that name in a JSON object that others wrote; "" where there is none."""
    value = found.get(name)
    return plain(value) if isinstance(value, str) else ""
