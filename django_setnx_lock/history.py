"""The last notable ends of holds, for operators: beside the locks in Redis, as their holders tell.

Nobody waits for an entry: a thread writes them. What cannot be written is logged once.
"""

from __future__ import annotations

import atexit
import enum
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from .conf import get_config
from .connection import get_client
from .core import events
from .core.connections.backend import BLOCKING, run
from .core.connections.session import session_of
from .core.errors import LockBusy, LockError, LockLost
from .core.holder import Holder, plain
from .core.process import holder_here
from .core.protocol.keys import history_for, meta_key, name_for
from .core.protocol.requests import Command

_T = TypeVar("_T")
logger = logging.getLogger("django_setnx_lock.history")

# For so many seconds the end of a process waits for what is not written yet.
_PATIENCE = 1.0
# More entries do not wait to be written.
_MOST_WAITING = 1000


class End(str, enum.Enum):
    """How a hold ended, or the wait of a caller that gave up."""

    RELEASED = "released"
    LOST = "lost"
    FORCED = "forced"
    GAVE_UP = "gave up"

    @property
    def slug(self) -> str:
        """The word as options, addresses and JSON have it, with hyphens."""
        return self.value.replace(" ", "-")


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One end.

    ``at``: when it was, as a Unix time. ``name``: that of the lock in Redis. ``held_for`` and
    ``waited``: seconds, None where there was no hold, or no wait. ``holder``: who held the lock;
    None if not known. ``by`` and ``reason``: of a force-release.
    """

    at: float
    key: str
    name: str
    end: End
    held_for: float | None = None
    waited: float | None = None
    fence: int | None = None
    holder: Holder | None = None
    by: str = ""
    reason: str = ""


class _Writer:
    """Does what is asked of it in a thread of this process, which begins with the first of that."""

    def __init__(self) -> None:
        self._pid = 0
        self._is_troubled = False

    def add(self, write: Callable[[], object]) -> None:
        if self._pid != os.getpid():
            # Unlike Queue it may be put to by a signal handler that interrupts another put.
            jobs = SimpleQueue[Callable[[], object]]()
            name = "setnx-lock-history"
            threading.Thread(target=self._run, args=(jobs,), name=name, daemon=True).start()
            self._jobs, self._pid = jobs, os.getpid()
            atexit.register(self.flush)
        if self._jobs.qsize() < _MOST_WAITING:
            self._jobs.put(write)

    def _run(self, jobs: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            try:
                jobs.get()()
                self._is_troubled = False
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one is tried
                if not self._is_troubled:
                    logger.warning("the history of locks cannot be written: %s", error)
                self._is_troubled = True

    def flush(self) -> None:
        """Wait until all entries are written, for a second at most."""
        if self._pid == os.getpid():
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait(_PATIENCE)


_WRITER = _Writer()
flush = _WRITER.flush


def note(*, target: Any, error: LockError | None, **about: Any) -> None:
    """Note the end of a hold, or of a wait: a listener of the core."""
    config = get_config()
    prefix, length = config["KEY_PREFIX"], config["HISTORY"]
    # Others have no name of their own beside that in Redis.
    if not length or target.keys[0] != name_for(prefix, target.key):
        return
    holder: Holder | None = holder_here(*target.options.about)
    if isinstance(error, LockBusy):
        holder = error.holder
    entry: dict[str, Any] = {"at": time.time(), "holder": holder and holder.to_json(), **about}
    entry["end"] = End.RELEASED if error is None else End.GAVE_UP
    if isinstance(error, LockLost):
        entry["end"] = End.FORCED if error.forced_by or error.reason else End.LOST
        entry |= {"by": error.forced_by, "reason": error.reason}
    # Several masters have no client of their own.
    client = target.client if hasattr(target.client, "lpush") else get_client()
    _WRITER.add(partial(_write, client, history_for(prefix), json.dumps(entry), length))


def _write(client: Any, key: str, entry: str, length: int) -> None:
    client.lpush(key, entry)
    client.ltrim(key, 0, length - 1)


def connect() -> None:
    """Have the core tell of what is notable."""
    if note not in events.ENDED.listeners:
        events.ENDED.listeners.append(note)


def last(using: str | None = None, *, name: str | None = None) -> list[HistoryEntry]:
    """Return the entries of the cache alias ``using``, the newest first.

    ``using``: None for the setting ``CACHE``, of several the first. ``name``: of the lock with that
    Redis name alone. What others wrote there is passed over. Raises LockUnavailable, and
    ImproperlyConfigured when the cache cannot hold locks.
    """
    config = get_config()
    prefix = config["KEY_PREFIX"]
    if not config["HISTORY"]:
        return []
    words = ("LRANGE", history_for(prefix), "0", str(config["HISTORY"] - 1))
    client, command = get_client(using), Command.of(*words, keys=words[1:2])
    found = run(session_of(client).call(BLOCKING, command, "")).value
    entries = [entry for one in found or () if (entry := _read(prefix, one)) is not None]
    return [one for one in entries if name in (None, one.name)]


def _read(prefix: str, raw: Any) -> HistoryEntry | None:
    """Return one entry; None for what cannot be one."""
    try:
        told = json.loads(raw)
        name = name_for(prefix, told["key"])
        meta_key(name)
        time.gmtime(told["at"])
        return HistoryEntry(
            at=float(told["at"]),
            key=plain(told["key"]),
            name=name,
            end=End(told["end"]),
            held_for=_optional(float, told.get("held_for")),
            waited=_optional(float, told.get("waited")),
            fence=_optional(int, told.get("fence")),
            holder=Holder.from_json(str(told.get("holder") or "")),
            by=plain(str(told.get("by") or "")),
            reason=plain(str(told.get("reason") or "")),
        )
    except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return None


def _optional(kind: Callable[[Any], _T], value: Any) -> _T | None:
    if value is not None and not math.isfinite(value):
        raise ValueError("no time is that long")
    return None if value is None else kind(value)
