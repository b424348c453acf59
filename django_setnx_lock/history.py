"""The last notable ends of holds, for operators: beside the locks in Redis.

Holders note how they ended, operators whom they took a lock from, and who reads the history which
leases have run out. Nobody waits for that: a thread writes. What cannot be written is logged once.
"""

from __future__ import annotations

import atexit
import enum
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from .conf import get_config
from .connection import get_client
from .core import events
from .core.connections.backend import BLOCKING, run
from .core.connections.session import session_of
from .core.errors import LockBusy, LockError, LockLost, LockUnavailable
from .core.holder import Holder, plain
from .core.inspection.lock_info import LockInfo, State
from .core.inspection.reading import name_in
from .core.process import holder_here
from .core.protocol.keys import history_for, index_for, meta_key, name_for
from .core.protocol.replies import text
from .core.protocol.requests import Command

_T = TypeVar("_T")
logger = logging.getLogger("django_setnx_lock.history")

# For so many seconds the end of a process waits for what is not written yet.
_PATIENCE = 1.0
# More entries do not wait to be written.
_MOST_WAITING = 1000
# So many leases that ran out are looked at together.
_TOGETHER = 500
# What runs out later than its lease was renewed; requests take some time besides.
_SLACK = 0.1
_FENCE = re.compile("[0-9]{1,16}", re.ASCII)


class End(str, enum.Enum):
    """How a hold ended, or the wait of a caller that gave up."""

    RELEASED = "released"
    LOST = "lost"
    FORCED = "forced"
    RAN_OUT = "ran out"
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
    None if not known. ``by`` and ``reason``: of a force-release. ``until``: None where the holder
    noted it; else when a living one that was forced out knows it at the latest, as a Unix time.
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
    until: float | None = None


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


def connect() -> None:
    """Have the core tell of what is notable."""
    if note not in events.ENDED.listeners:
        events.ENDED.listeners.append(note)


def note(*, target: Any, error: LockError | None, **about: Any) -> None:
    """Note the end of a hold, or of a wait: a listener of the core."""
    # Others have no name of their own beside that in Redis.
    if target.keys[0] != name_for(get_config()["KEY_PREFIX"], target.key):
        return
    holder: Holder | None = holder_here(*target.options.about)
    if isinstance(error, LockBusy):
        holder = error.holder
    end = End.RELEASED if error is None else End.GAVE_UP
    if isinstance(error, LockLost):
        end = End.FORCED if error.forced_by or error.reason else End.LOST
        about |= {"by": error.forced_by, "reason": error.reason}
    # Several masters have no client of their own.
    client = target.client if hasattr(target.client, "lpush") else get_client()
    _add(client, end, holder, **about)


def note_force(using: str | None, holder: LockInfo, *, by: str = "", reason: str = "") -> None:
    """Note that the lock was taken from that ``holder``, who knows it later or never."""
    # What is no program of ours never asks, and of a dead one there is nothing to fear.
    is_living = holder.holder is not None and holder.state is not State.GONE
    until = time.time() + (holder.remaining or 0) if is_living else 0
    about: dict[str, Any] = {"by": by, "reason": reason, "until": until}
    for name in ("key", "held_for", "fence"):
        about[name] = getattr(holder, name)
    _add(get_client(using), End.FORCED, holder.holder, **about)


def _add(client: Any, end: End, holder: Holder | None, **about: Any) -> bytes:
    """Have an entry written by the thread; return it."""
    record = holder.to_json() if holder else None
    entry = json.dumps({"at": time.time(), "end": end, "holder": record, **about})
    config = get_config()
    if length := config["HISTORY"]:
        _WRITER.add(partial(_write, client, history_for(config["KEY_PREFIX"]), entry, length))
    return entry.encode()


def _write(client: Any, key: str, entry: str, length: int) -> None:
    client.lpush(key, entry)
    client.ltrim(key, 0, length - 1)


def last(
    using: str | None = None, *, name: str | None = None, most: int | None = None
) -> list[HistoryEntry]:
    """Return the entries of the cache alias ``using``, the newest first.

    ``using``: None for the setting ``CACHE``, of several the first. ``name``: of the lock with that
    Redis name alone. ``most``: how many to look at (None: all). Leases that ran out are noted by
    the way. What others wrote there is passed over. Raises LockUnavailable, and
    ImproperlyConfigured when the cache cannot hold locks.
    """
    config = get_config()
    prefix, length = config["KEY_PREFIX"], config["HISTORY"]
    if not length:
        return []
    client, key = get_client(using), history_for(prefix)
    # First: what is found to have run out may be written, and read again, at once.
    (found,) = _ask(client, ("LRANGE", key, "0", str((most or length) - 1)))
    read = (_read(prefix, one) for one in (*_ran_out(client, prefix), *(found or ())))
    entries = [entry for entry in read if entry]
    # What its holder noted itself is more exact.
    own = {(entry.name, entry.fence) for entry in entries if not _is_of_others(entry)}
    return sorted(
        (
            entry
            for entry in entries
            if name in (None, entry.name)
            and not (_is_of_others(entry) and (entry.name, entry.fence) in own)
        ),
        key=lambda entry: -entry.at,
    )


def _is_of_others(entry: HistoryEntry) -> bool:
    """Return whether it was not noted by the holder."""
    return entry.end is End.RAN_OUT or entry.until is not None


def unaware(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return those of ``entries`` whose holders were forced out and may not know it yet."""
    return [entry for entry in entries if entry.until is not None and entry.until > time.time()]


def _ran_out(client: Any, prefix: str) -> Iterator[bytes]:
    """Have the leases noted that ran out of locks in the index; yield these entries.

    Only of locks that were renewed, which would have been released otherwise. A name that somebody
    holds, or that another process took out of the index first, is passed over.
    """
    index, now = index_for(prefix), str(int(time.time() * 1000))
    if not session_of(client).has_index:
        return
    words = ("ZRANGEBYSCORE", index, "-inf", now, "LIMIT", "0", str(_TOGETHER))
    (found,) = _ask(client, words)
    names = [name for raw in found if (name := name_in(raw))]
    if not names:
        return
    values, metas, *ends = _ask(
        client,
        ("MGET", *names),
        ("MGET", *map(meta_key, names)),
        *(("ZSCORE", index, name) for name in names),
    )
    rows = zip(names, ends, values, metas, strict=True)
    free = [(name, end, meta) for name, end, value, meta in rows if end and value is None]
    taken = _ask(client, *(("ZREM", index, name) for name, _end, _meta in free))
    for (name, end, meta), is_first in zip(free, taken, strict=True):
        fence, _value, record = [*text(meta or b"").split(" ", 2), "", "", ""][:3]
        holder = Holder.from_json(record)
        if not (is_first and holder and holder.renewed and _FENCE.fullmatch(fence)):
            continue
        at, key = float(end) / 1000, name.removeprefix(prefix)
        held_for = at - int(fence) / 1e6
        if held_for > holder.lease + _SLACK:
            about = {"at": at, "key": key, "fence": int(fence), "held_for": held_for}
            yield _add(client, End.RAN_OUT, holder, **about)


def _read(prefix: str, raw: Any) -> HistoryEntry | None:
    """Return one entry; None for what cannot be one."""
    try:
        found = json.loads(raw)
        name = name_for(prefix, found["key"])
        meta_key(name)
        time.gmtime(found["at"])
        numbers = {key: _optional(float, found.get(key)) for key in ("held_for", "waited", "until")}
        return HistoryEntry(
            **numbers,
            at=float(found["at"]),
            key=plain(found["key"]),
            name=name,
            end=End(found["end"]),
            fence=_optional(int, found.get("fence")),
            holder=Holder.from_json(str(found.get("holder") or "")),
            by=plain(str(found.get("by") or "")),
            reason=plain(str(found.get("reason") or "")),
        )
    except (ArithmeticError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return None


def _optional(kind: Callable[[Any], _T], value: Any) -> _T | None:
    if value is not None and not math.isfinite(value):
        raise ValueError("no time is that long")
    return None if value is None else kind(value)


def _ask(client: Any, *commands: tuple[str, ...]) -> list[Any]:
    """Return the answer to each command, of which the second word is the key."""
    session = session_of(client)
    asked = [(Command.of(*words, keys=words[1:2]), "") for words in commands]
    answers = []
    for reply in run(session.call_many(BLOCKING, asked, 2 * session.limit)):
        if isinstance(reply, LockUnavailable):
            raise reply
        answers.append(reply.value)
    return answers
