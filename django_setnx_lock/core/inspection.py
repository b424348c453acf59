"""List the locks, and do to a holder what an operator wants: ask, take away."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from . import clock
from .connections import execute
from .connections.backends import BLOCKING, run
from .connections.client_settings import refuse_own_calls
from .connections.cluster_routes import is_cluster
from .connections.endpoints import kind_of
from .connections.execute import scan, scan_step
from .errors import LockError, LockUnavailable, LockUnsupported
from .fingerprint import fingerprint_of
from .holder import Holder
from .lock_info import (
    MOST_FOUND,
    SEVERITY,
    AwaitedLock,
    LockInfo,
    LockPage,
    Outcome,
    ShareInfo,
    State,
    WaiterInfo,
    holder_seen,
    processes_to_ask,
    refuse_unless_ours,
    with_states,
)
from .plain import plain
from .protocol import commands, replies
from .protocol.commands import HOSTED, PROTOCOLS, READERS, SETNX
from .protocol.keys import (
    heartbeat_prefix_for,
    index_for,
    lock_keys,
    process_keys,
)
from .renewal import watchdog
from .stop_request import StopRequest

logger = logging.getLogger("django_setnx_lock.force_release")


# So many processes are asked about at once, which keeps Redis busy for less than a millisecond. So
# many locks of the whole list are read at once.
_AT_ONCE = 500
# So many locks are looked at by one script, which takes as long.
_TOGETHER = 50
# So many names are looked through at a time.
_STEP = 250
# How what stands at the name of one of ours begins, unless it is the token of who holds it.
_STANDING = {b"readers:": State.READ, b"permits:": State.PERMITS, b"kept:": State.KEPT}


_FORCED = {"OK": Outcome.RELEASED, "RENEWED": Outcome.REVIVED, "FREE": Outcome.FREE}


class Inspector:
    """Looks at all locks whose names begin with ``prefix``.

    ``client`` is a redis-py client; ``use_index`` tells whether locks there are listed in the index
    (True), else every name is looked for with SCAN. ``protocol``: that of the locks, as in
    :class:`RedisLock` (``setnx``). With a timestamp, a number that another program wrote is the
    time until which it has the lock; with ``hosted``, who queues is not counted and not woken. Each
    method raises LockUnavailable when Redis cannot say.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        *,
        use_index: bool = True,
        protocol: str = "setnx",
    ) -> None:
        refuse_own_calls(client.__class__)
        self._client = client
        self._kind = HOSTED if protocol == "hosted" else SETNX
        self._unit = PROTOCOLS[protocol].unit
        self._prefix = prefix
        self._heartbeat_prefix = heartbeat_prefix_for(prefix)
        self._index = index_for(prefix) if use_index and not is_cluster(client) else None

    def get(self, name: str, *, waiters: int = 1) -> LockInfo:
        """Return the lock with the Redis name ``name``, held or not.

        One round trip, and one more if a process has to be asked whether it lives. ``waiters``: how
        many of those who wait for it to name at most, 1 or more.
        """
        return self._judged([self._look_at(name, waiters)])[0]

    def get_each(self, names: Sequence[str], *, waiters: int = 1) -> list[LockInfo]:
        """Return the locks with the Redis names ``names``, held or not.

        One round trip, and one more if processes have to be asked whether they live. ``waiters``
        as in :meth:`get`.
        """
        return self._told(self._asked(names, waiters), names, waiters)

    def find(
        self,
        limit: int = MOST_FOUND,
        *,
        search: str = "",
        everything: bool = False,
        within: float | None = None,
        waiters: int = 1,
    ) -> LockPage:
        """Return at most ``limit`` of the held locks, and say if there are more.

        ``search``: only locks with that text in their keys. ``everything``: look through the whole
        keyspace with SCAN instead of the index, and so find locks of other programs that nobody
        here has met (False). Without a search in the index, the locks whose leases end first are
        found. ``within``: the seconds for which names are looked for (None: without limit).
        ``waiters`` as in :meth:`get`.
        """
        if self._index and not search and not everything:
            request = commands.listing(self._index, limit)
            reply = run(execute.call(BLOCKING, self._client, request, "", within=within))
            total, names = int(reply[0]), list(filter(None, map(_name_in, reply[1])))
            is_cut = total > limit
        else:
            names, is_cut = self._names(search, everything, limit, within)
            total = len(names)
        locks = self._held(names, waiters)
        return LockPage(locks=locks, total=total - len(names) + len(locks), is_cut=is_cut)

    def all(self, *, search: str = "", everything: bool = False) -> list[LockInfo]:
        """Return all the held locks, sorted by key. ``search``, ``everything``: see :meth:`find`.

        It takes as long as it takes, but keeps Redis from others for a millisecond at a time only.
        """
        names = sorted(self._names(search, everything)[0])
        batches = (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE))
        return [lock for some in batches for lock in self._held(some)]

    def force_release(
        self,
        name: str,
        fingerprint: str,
        *,
        state: State | None = None,
        by: str = "",
        reason: str = "",
    ) -> Outcome:
        """Take the lock from the one holder whose ``fingerprint`` was seen, and from no other.

        Of several who hold it together, from one by its own fingerprint. ``state``: the state in
        which this holder was seen, that of its :class:`ShareInfo` if there are several. A holder
        that was seen ``GONE``, or ``NOT_RENEWED``, and lives again keeps the lock: the outcome is
        then ``REVIVED``. So does one that renews its lease before the request arrives. With None,
        or another state, the fingerprint alone decides. ``by`` and ``reason`` are told to the
        holder when it finds out.
        """
        lock = self.get(name)
        seen = holder_seen(lock, fingerprint)
        if isinstance(seen, Outcome):
            return seen
        severity, most_ms = SEVERITY.get(state, 0), None
        if SEVERITY.get(seen.state, 0) < severity:
            return Outcome.REVIVED
        if severity and seen.remaining is not None:
            # If it is renewed from here on, more is left.
            most_ms = math.ceil(seen.remaining * 1000)
        keys = lock_keys(name)
        kind = READERS if lock.shares else self._kind
        if seen.unit:
            kind = PROTOCOLS[f"timestamp-{seen.unit}"]
        request = kind.force_release(keys, self._index, seen.token, most_ms, by, reason)
        reply = run(execute.call(BLOCKING, self._client, request, seen.key))
        head = replies.read_handed_on(reply)
        if head:
            make = kind_of(self._client)
            target = make(self._client, keys, seen.key, self._index, command_set=kind)
            watchdog.WATCHDOG.schedule_handoff_check(target, head)
        outcome = _FORCED.get(replies.text(reply[0]) or "", Outcome.CHANGED_HANDS)
        if outcome is Outcome.RELEASED:
            self._log("%r force-released the lock %r from %r: %r", by, seen, reason)
        return outcome

    def ask_to_stop(
        self, name: str, fingerprint: str, *, by: str = "", reason: str = ""
    ) -> Outcome:
        """Ask the one holder whose ``fingerprint`` was seen to stop. The lock is not taken away.

        Of several who hold it together, one by its own fingerprint. The holder is told ``by`` and
        ``reason`` at its next renewal or check, once: who has been asked before is not asked again.
        A next holder is not asked. ``with_lock`` ends its command; elsewhere it is for the code to
        look at ``held.stop_requested``.

        Raises LockUnsupported where nobody would hear it: of a holder with the timestamp protocol
        or ``hosted``, of another program, and of a lock that nobody holds any more or releases.
        """
        lock = self.get(name)
        seen = holder_seen(lock, fingerprint)
        if isinstance(seen, Outcome):
            return seen
        refusal = f"cannot ask the holder of the lock {seen.key!r} to stop"
        refuse_unless_ours(lock, refusal)
        kind = READERS if lock.shares else SETNX
        request = kind.request_stop(lock_keys(name), None, seen.token, by, reason)
        answer = replies.text(run(execute.call(BLOCKING, self._client, request, seen.key))[0])
        if answer == "HOSTED":
            raise LockUnsupported(f"{refusal}: it is held with protocol='hosted'", key=seen.key)
        outcomes = {"OK": Outcome.ASKED, "BEFORE": Outcome.ASKED_BEFORE, "FREE": Outcome.FREE}
        outcome = outcomes.get(answer or "", Outcome.CHANGED_HANDS)
        if outcome is Outcome.ASKED:
            self._log("%r asked to stop the holder of %r, %r: %r", by, seen, reason)
        return outcome

    def _log(self, text: str, by: str, seen: LockInfo, reason: str) -> None:
        whom = str(seen.holder or "another program")
        logger.info(text, plain(by) or "an operator", seen.key, whom, plain(reason))

    def _look_at(self, name: str, waiters: int = 1) -> LockInfo:
        request, key = self._looking_at([name], waiters), self._key(name)
        answer = run(execute.call(BLOCKING, self._client, request, key))
        return self._read_each([name], answer)[name]

    def _judged(self, locks: list[LockInfo]) -> list[LockInfo]:
        """Return ``locks`` with what became of their holders. Asks once for all processes."""
        gone = self._gone(processes_to_ask(locks))
        return [with_states(lock, gone) for lock in locks]

    def _gone(self, processes: Sequence[str]) -> frozenset[str]:
        """Return those of ``processes`` that do not say that they live."""
        gone: list[str] = []
        for start in range(0, len(processes), _AT_ONCE):
            some = processes[start : start + _AT_ONCE]
            request = commands.living(
                [process_keys(self._heartbeat_prefix, one).name for one in some]
            )
            try:
                replies = run(execute.call(BLOCKING, self._client, request, ""))
            except LockUnavailable as error:
                if error.cause != "denied":
                    raise
                # They may not be asked about: they count as living.
                continue
            gone += [one for one, lives in zip(some, replies, strict=True) if not lives]
        return frozenset(gone)

    def _looking_at(self, names: Sequence[str], waiters: int) -> commands.Request:
        locks = list(map(lock_keys, names))
        return self._kind.inspect_each(locks, self._index, self._unit, waiters)

    def _asked(self, names: Sequence[str], waiters: int = 1) -> list[tuple[Sequence[str], Any]]:
        """Return what Redis says of ``names``, of so many at a time as one script looks at."""
        # Where there is an index, a script may have the keys of several locks, as it has that one.
        together = _TOGETHER if self._index else 1
        parts = [names[start : start + together] for start in range(0, len(names), together)]
        if not parts:
            return []
        requests = [self._looking_at(some, waiters) for some in parts]
        keys = [self._key(some[0]) if len(some) == 1 else "" for some in parts]
        answers = run(execute.call_many(BLOCKING, self._client, requests, keys))
        return list(zip(parts, answers, strict=True))

    def _told(
        self, answers: list[tuple[Sequence[str], Any]], names: Sequence[str], waiters: int = 1
    ) -> list[LockInfo]:
        """Return the locks ``names`` as ``answers`` tell of them; asks for those they leave out."""
        found: dict[str, LockInfo] = {}
        while answers:
            for some, answer in answers:
                if isinstance(answer, LockError):
                    raise answer
                found.update(self._read_each(some, answer))
            answers = self._asked([name for name in names if name not in found], waiters)
        return self._judged([found[name] for name in names])

    def _held(self, names: Sequence[str], waiters: int = 1) -> list[LockInfo]:
        return _not_free(self.get_each(names, waiters=waiters))

    def _names(
        self, search: str, everything: bool, limit: int | None = None, within: float | None = None
    ) -> tuple[list[str], bool]:
        """Return the names with ``search`` in their keys, and whether there may be others."""
        found: dict[str, None] = {}
        until = None if within is None else clock.now() + within
        cursor, in_index = "0", self._index is not None and not everything
        try:
            search.encode()
        except UnicodeEncodeError:
            # Surrogates are in no name.
            return [], False
        while True:
            cursor, some = self._step(cursor, search, in_index)
            names = filter(None, map(_name_in, some))
            found.update(dict.fromkeys(name for name in names if search in self._key(name)))
            is_cut = limit is not None and len(found) > limit
            if cursor == "0" or is_cut or (until is not None and clock.now() >= until):
                return list(found)[:limit], is_cut or cursor != "0"

    def _step(self, cursor: str, search: str, in_index: bool) -> tuple[str, Iterable[Any]]:
        """Return some names, and the cursor from which it goes on; "0" at the end."""
        pattern = f"*{commands.glob_escaped(search)}*"
        if in_index:
            command = ("ZSCAN", str(self._index), cursor, "MATCH", pattern, "COUNT", str(_STEP))
            request = commands.PlainRequest(command)
            onward, some = run(execute.call(BLOCKING, self._client, request, ""))
            # Behind each name stands when its lease ends.
            return replies.text(onward) or "0", some[::2]
        pattern = f"{commands.glob_escaped(self._prefix)}{pattern}"
        if is_cluster(self._client):
            return "0", scan(self._client, pattern)
        return scan_step(self._client, cursor, pattern, _STEP)

    def _key(self, name: str) -> str:
        return name.removeprefix(self._prefix)

    def _read_each(self, names: Sequence[str], answer: Any) -> dict[str, LockInfo]:
        """Return those of ``names`` that ``answer`` is about, which are the first."""
        if isinstance(answer, bytes):
            # Tokens and records are bytes that others may have written: what is not UTF-8 is kept.
            answer = answer.decode("utf-8", "surrogateescape")
        told = json.loads(answer) if isinstance(answer, str) else _as_json(answer)
        return {name: self._read(name, one) for name, one in zip(names, told, strict=False)}

    def _read(self, name: str, reply: Sequence[Any]) -> LockInfo:
        kind, value, how, left, fence, record, waiting, now_ms, unit, *others = reply
        sharers, named, awaited = others
        token = _in_bytes(value or "")
        now_ms, ours = int(now_ms), how == "ours"
        if kind == "none":
            state = State.FREE
        elif kind != "string":
            state = State.NO_LOCK
        elif how == "baton":
            state = State.CHANGING_HANDS
        elif left < 0:
            state = State.NEVER_EXPIRES
        elif not ours:
            state = State.FOREIGN
        else:
            state = _STANDING.get(token[: token.find(b":") + 1], State.HELD)
        shares = tuple([self._share(name, one, now_ms) for one in sharers])
        waiters = tuple(
            [_waiter(name, one, position, now_ms) for position, one in enumerate(named, 1)]
        )
        tokens = sorted([one.token for one in shares]) or [token]
        known = _text(record) if record and ours else None
        fence = int(fence) if fence and ours else None
        return LockInfo(
            key=self._key(name),
            name=name,
            state=state,
            holder=Holder.from_json(known),
            fence=fence,
            remaining=None if value is False else replies.seconds_left(left),
            held_for=max(now_ms - fence // 1000, 0) / 1000 if ours and fence else None,
            waiting=int(waiting),
            longest_wait=waiters[0].waited if waiters else None,
            waiters=waiters,
            waits_for=self._awaited(awaited, now_ms),
            fingerprint="" if value is False else fingerprint_of(name, *tokens),
            kind=kind,
            unit=unit or "",
            stop_requested=StopRequest.from_record(known) if ours and not shares else None,
            shares=shares,
            as_of=now_ms / 1000,
            token=token,
        )

    def _share(self, name: str, found: Sequence[Any], now_ms: int) -> ShareInfo:
        value, left, fence, record, awaited = found
        token, known = _in_bytes(value), _text(record)
        return ShareInfo(
            holder=Holder.from_json(known),
            fence=int(fence),
            remaining=int(left) / 1000,
            held_for=max(now_ms - int(fence) // 1000, 0) / 1000,
            fingerprint=fingerprint_of(name, token),
            stop_requested=StopRequest.from_record(known),
            waits_for=self._awaited(awaited, now_ms),
            token=token,
        )

    def _awaited(self, found: Sequence[Any] | Literal[False], now_ms: int) -> AwaitedLock | None:
        name = _name_in(_in_bytes(found[0])) if found else None
        if not found or name is None:
            return None
        return AwaitedLock(
            key=self._key(name),
            name=name,
            waited=_waited(found[2], now_ms),
            fingerprint=fingerprint_of(name, _in_bytes(found[1])),
        )


def _not_free(locks: Iterable[LockInfo]) -> list[LockInfo]:
    return [lock for lock in locks if lock.state is not State.FREE]


def _waiter(name: str, found: Sequence[Any], position: int, now_ms: int) -> WaiterInfo:
    token, came, record = found
    return WaiterInfo(
        position=position,
        holder=Holder.from_json(_text(record)) if record else None,
        waited=_waited(came, now_ms),
        fingerprint=fingerprint_of(name, _in_bytes(token)),
    )


def _waited(came: Any, now_ms: int) -> float | None:
    """Return for how many seconds one has waited that came at so many microseconds."""
    return max(now_ms / 1000 - int(came) / 1e6, 0.0) if came else None


def _as_json(reply: Any) -> Any:
    """Return what stands in JSON for a reply that is none."""
    if isinstance(reply, list):
        return list(map(_as_json, reply))
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "surrogateescape")
    return False if reply is None else reply


def _in_bytes(text: str) -> bytes:
    """Return what Redis has, of which ``text`` was in a reply of JSON."""
    return text.encode("utf-8", "surrogateescape")


def _text(record: str) -> str:
    """Return a record as :func:`replies.text` does."""
    return record if record.isascii() else _in_bytes(record).decode("utf-8", "backslashreplace")


def _name_in(name: Any) -> str | None:
    """Return a listed name as text; None for one that cannot be a lock of ours."""
    try:
        text = name.decode() if isinstance(name, bytes) else str(name)
        lock_keys(text)
    except ValueError:
        return None
    return text
