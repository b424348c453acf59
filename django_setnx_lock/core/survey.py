"""What monitoring asks about all locks at once, at a cost that has a bound."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .connections import execute
from .connections.backends import BLOCKING, run
from .connections.execute import scan
from .errors import LockError
from .inspection import Inspector, LockInfo, State
from .protocol.commands import PlainRequest
from .protocol.keys import index_for, lock_keys

# How long Redis may take to say which locks there are, in seconds: a scrape usually has ten.
PATIENCE = 2.0
# So many names are asked for at once, which keeps Redis busy for less than a millisecond.
_STEP = 500
# What stands in Redis for a waiter: until when it is alive, in ms, and when it came, in us.
_WAITER = re.compile(rb"(\d{1,16}) (\d{1,17}) ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What was seen of the locks.

    ``locks``: those that were looked at and are not free. ``listed``: how many names there are,
    also of locks that were not looked at. ``is_cut``: whether there are such locks. ``waits``: for
    how many seconds the first in the queue has waited, by the names of the locks with a queue.
    """

    locks: Sequence[LockInfo]
    listed: int
    is_cut: bool
    waits: Mapping[str, float]


def survey(
    look: Inspector,
    client: Any,
    prefix: str,
    *,
    limit: int,
    search: str = "",
    use_index: bool = True,
    everything: bool = False,
) -> Survey:
    """Return what there is to say of the locks whose names begin with ``prefix``.

    At most ``limit`` are looked at: one half of them the locks whose leases end first, the other
    those whose leases end last. An overdue renewal is among the first, and the dead holder of a
    long lease among the last. ``search`` keeps the keys it is a part of. ``use_index``: whether the
    locks are listed in the index. Without it, or with ``everything``, the whole keyspace is looked
    through in small steps, and the order is that of the names. Raises LockUnavailable.
    """
    index = index_for(prefix)
    if use_index and not search and not everything:
        listed, names = _ends_of(client, index, limit)
    else:
        found = _matching(client, index, prefix, search) if use_index else {}
        if everything or not use_index:
            keyspace = scan(client, _pattern(prefix, search))
            found.update((name, 0.0) for name in _names(keyspace) if name not in found)
        listed, names = len(found), _both_ends(found, limit)
    if names:
        # A server that does not know the script yet would be sent it with each of the names.
        look.get(names[0])
    locks = [one for one in look.get_each(names) if one.state is not State.FREE]
    return Survey(
        locks=locks, listed=listed, is_cut=listed > limit, waits=_waits(client, prefix, locks)
    )


def held_for(lock: LockInfo) -> float:
    """Return for how many seconds ``lock`` is held, by the oldest of its holders; 0 if not known.

    Also 0 for a lock that is kept: its holder is done with it.
    """
    if lock.state is State.KEPT:
        return 0.0
    return max((one.held_for or 0.0 for one in lock.shares or (lock,)), default=0.0)


def ask(client: Any, *command: str) -> Any:
    """Return the reply to one ``command`` that must not take long. Raises LockUnavailable."""
    return run(execute.call(BLOCKING, client, PlainRequest(command), "", within=PATIENCE))


def _ends_of(client: Any, index: str, limit: int) -> tuple[int, list[str]]:
    """Return how many names ``index`` lists, and the first and the last of them."""
    listed = int(ask(client, "ZCARD", index))
    last = min(limit // 2, max(listed - limit, 0))
    ranges = [(0, limit - last), (listed - last, listed)]
    found: list[bytes | str] = []
    for start, end in ranges:
        for at in range(start, min(end, listed), _STEP):
            found += ask(client, "ZRANGE", index, str(at), str(min(at + _STEP, end) - 1))
    return listed, list(dict.fromkeys(_names(found)))


def _matching(client: Any, index: str, prefix: str, search: str) -> dict[str, float]:
    """Return the listed names with ``search`` in their keys, with the ends of their leases."""
    found: dict[str, float] = {}
    cursor, command = "0", ("MATCH", _pattern(prefix, search), "COUNT", str(_STEP))
    while True:
        at, listed = ask(client, "ZSCAN", index, cursor, *command)
        for name, end in zip(listed[::2], listed[1::2], strict=True):
            found.update((one, float(end)) for one in _names([name]))
        cursor = at.decode() if isinstance(at, bytes) else str(at)
        if cursor == "0":
            return found


def _both_ends(found: Mapping[str, float], limit: int) -> list[str]:
    """Return ``limit`` names: those that end first, and those that end last."""
    if len(found) <= limit:
        return list(found)

    def rank(name: str) -> tuple[float, str]:
        return found[name], name

    last = min(limit // 2, len(found) - limit)
    return [
        *heapq.nsmallest(limit - last, found, key=rank),
        *heapq.nlargest(last, found, key=rank),
    ]


def _waits(client: Any, prefix: str, locks: Sequence[LockInfo]) -> dict[str, float]:
    """Return for how many seconds the first living waiter of each lock has waited."""
    queued = [one for one in locks if one.waiting]
    if not queued:
        return {}
    asked: list[Any] = [PlainRequest(("HVALS", lock_keys(one.name).alive)) for one in queued]
    keys = [one.name.removeprefix(prefix) for one in queued]
    found = {}
    for lock, reply in zip(
        queued, run(execute.call_many(BLOCKING, client, asked, keys)), strict=True
    ):
        if isinstance(reply, LockError):
            # Something else stands there.
            continue
        came = [
            int(waiter[2]) / 1e6
            for waiter in map(_WAITER.match, map(_as_bytes, reply))
            if waiter and int(waiter[1]) / 1000 >= lock.as_of
        ]
        if came:
            found[lock.name] = max(lock.as_of - min(came), 0.0)
    return found


def _as_bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _names(listed: Iterable[Any]) -> Iterator[str]:
    """Yield those that can be names of locks: any program may write to the index."""
    for one in listed:
        try:
            name = one.decode() if isinstance(one, bytes) else str(one)
            lock_keys(name)
        except ValueError:
            continue
        yield name


def _pattern(prefix: str, search: str) -> str:
    return f"{_literal(prefix)}*{_literal(search)}*" if search else f"{_literal(prefix)}*"


def _literal(text: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]\\^" else character for character in text)
