"""The holder record: who holds a lock."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import threading
from dataclasses import asdict, dataclass

from .plain import json_object, plain, text_in
from .process import here

_PIDS = range(2**32)
# Milliseconds that are exact in Lua.
_TIMES = range(2**53)
_LONGEST = 1e9
# A record of so many characters is remembered when it was read.
_KEPT = 1000
_PROCESS = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_TEXTS = ("host", "thread", "label", "user", "note")


@functools.lru_cache(maxsize=1)
def _hostname() -> str:
    return socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The record of who holds a lock, which stands beside it in Redis. It is for operators only.

    ``lease``: the seconds that the lock lives unrenewed (0: not known). ``renewed``: whether it is
    renewed, for ``max_hold`` seconds at most (0: without limit). ``process``: the name under which
    the holder's process says that it lives ("": it does not). ``since``: when it took the lock over
    from another process, in milliseconds of the server's clock (0: it did not).

    Each text is made :func:`~.plain.plain`, whoever gives it: what stands in Redis others wrote.
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
    def here(
        cls,
        label: str = "",
        user: str = "",
        note: str = "",
        lease: float = 0.0,
        renewed: bool = False,
        max_hold: float = 0.0,
        says_alive: bool = False,
    ) -> Holder:
        """Return the record of the calling thread. ``says_alive``: whether it names its process."""
        return cls(
            host=_hostname(),
            pid=os.getpid(),
            thread=threading.current_thread().name,
            label=label,
            user=user,
            note=note,
            lease=lease,
            renewed=renewed,
            max_hold=max_hold,
            process=here().name if says_alive else "",
        )

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
    pid, since, process = data.get("pid"), data.get("since"), data.get("process")
    return Holder(
        **{name: text_in(data, name) for name in _TEXTS},
        pid=pid if type(pid) is int and pid in _PIDS else 0,
        lease=_seconds(data.get("lease")),
        renewed=data.get("renewed") is True,
        max_hold=_seconds(data.get("max_hold")),
        # It becomes part of the name of a key.
        process=process if isinstance(process, str) and _PROCESS.fullmatch(process) else "",
        since=since if type(since) is int and since in _TIMES else 0,
    )


def _seconds(value: object) -> float:
    """Return ``value`` if it is a number of seconds that a lease can have, else 0.0."""
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 < value <= _LONGEST else 0.0  # type: ignore[arg-type, operator]  # as seen
