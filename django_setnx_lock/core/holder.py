"""The holder record: who holds a lock."""

from __future__ import annotations

import functools
import json
import os
import socket
import threading
from dataclasses import asdict, dataclass, fields

from .plain import plain

_PIDS = range(2**32)


@functools.lru_cache(maxsize=1)
def _hostname() -> str:
    return socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The record of who holds a lock, which stands beside it in Redis. It is for operators only.

    Each text is made :func:`~.plain.plain`, whoever gives it: what stands in Redis others wrote.
    """

    host: str = ""
    pid: int = 0
    thread: str = ""
    label: str = ""
    user: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for name in _TEXTS:
            object.__setattr__(self, name, plain(str(getattr(self, name) or "")))

    @staticmethod
    def here(label: str = "", user: str = "", note: str = "") -> Holder:
        """Return the record of the calling thread."""
        return _here(os.getpid(), threading.current_thread().name, label, user, note)

    @classmethod
    def from_json(cls, text: str | None) -> Holder | None:
        """Return the record in ``text``; None when there is none or it cannot be read.

        A field of the wrong type counts as missing.
        """
        try:
            data = json.loads(text or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        texts = {name: data[name] for name in _TEXTS if isinstance(data.get(name), str)}
        pid = data.get("pid")
        return cls(**texts, pid=pid if type(pid) is int and pid in _PIDS else 0)

    def to_json(self) -> str:
        """Return the record as compact JSON, without its empty fields."""
        # Not a cached_property: before Python 3.12 that has a lock, which a fork may leave locked.
        kept: str | None = self.__dict__.get("_json")
        if kept is None:
            values = {key: value for key, value in asdict(self).items() if value}
            kept = self.__dict__["_json"] = json.dumps(values, separators=(",", ":"))
        return kept

    def __str__(self) -> str:
        place = f"{self.host or '?'}:{self.pid or '?'}"
        if self.user:
            place = f"{self.user}@{place}"
        about = "; ".join(part for part in (self.label, self.note) if part)
        return f"{place} ({about})" if about else place


_TEXTS = tuple(field.name for field in fields(Holder) if field.name != "pid")


# The same thread takes locks of the same label again and again.
@functools.lru_cache(maxsize=256)
def _here(pid: int, thread: str, label: str, user: str, note: str) -> Holder:
    return Holder(host=_hostname(), pid=pid, thread=thread, label=label, user=user, note=note)
