"""List the locks, and do to a holder what an operator wants: ask, take away."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from .. import clock
from ..connections.backend import BLOCKING, run
from ..connections.connection import refuse_own_calls
from ..connections.session import session_of
from ..errors import LockUnavailable, LockUnsupported
from ..holder import plain
from ..locks.grant import look
from ..locks.heartbeat import process_key
from ..locks.lock import PlainLock
from ..protocol.keys import index_for, meta_key
from ..protocol.kinds import script_of
from ..protocol.replies import text
from ..protocol.requests import Command, Request, Script, keys_of
from .lock_info import LockInfo, LockPage, Outcome, State
from .reading import Reader, name_in

if TYPE_CHECKING:
    from ..connections.session import Session

logger = logging.getLogger("django_setnx_lock.force_release")

LIST = Script("list")
# How many locks are found, if nothing else is asked for; they are read in less than 0.2 s.
_MOST_FOUND = 2000
# So many locks, or processes, are asked about at once: Redis is kept from others for a millisecond.
_AT_ONCE = 500
# So many locks are looked at by one script, which takes as long.
_TOGETHER = 50
# So many names are looked through at a time: Redis takes half a millisecond.
_STEP = 1000
# How surely its holder is dead; in another state it lives, as far as is known.
_SEVERITY: Mapping[State | None, int] = {
    State.GONE: 2,
    State.NOT_RENEWED: 1,
    State.NEVER_EXPIRES: 1,
}
_DONE = {
    b"OK": Outcome.RELEASED,
    b"RENEWED": Outcome.REVIVED,
    b"FREE": Outcome.FREE,
    b"BEFORE": Outcome.ASKED_BEFORE,
}


class Inspector:
    """Looks at all locks whose names begin with ``prefix``.

    ``client`` is a redis-py client; ``use_index``: whether locks there are listed in the index
    (True), else every name is looked for with SCAN. ``protocol``: that of the locks, as in
    :class:`RedisLock` (``setnx``). With a timestamp, a number that another program wrote is the
    time until which it has the lock. Each method raises LockUnavailable when Redis cannot say.
    """

    def __init__(
        self, client: Any, prefix: str, *, use_index: bool = True, protocol: str = "setnx"
    ) -> None:
        refuse_own_calls(client.__class__)
        self._client = client
        self._prefix = prefix
        # Of timestamps nothing is asked that differs; on a hosted server scripts may touch no key
        # but those that they are told of, and that may be a cluster.
        self._protocol = "hosted" if protocol == "hosted" else "setnx"
        has_index = use_index and protocol != "hosted" and session_of(client).has_index
        self._index = index_for(prefix) if has_index else None
        self._reader = Reader(prefix, protocol.partition("timestamp-")[2])

    def get(self, name: str, *, waiters: int = 1) -> LockInfo:
        """Return the lock with the Redis name ``name``, held or not.

        One round trip, and one more if a process has to be asked whether it lives. ``waiters``: how
        many of those who wait for it to name at most, 1 or more.
        """
        return self.get_each([name], waiters=waiters)[0]

    def get_each(self, names: Sequence[str], *, waiters: int = 1) -> list[LockInfo]:
        """Return the locks with the Redis names ``names``, held or not.

        One round trip, and one more if processes have to be asked whether they live. ``waiters``
        as in :meth:`get`.
        """
        found: dict[str, LockInfo] = {}
        # Where there is an index, a script may have the keys of several locks, as it has that one.
        together, index = (_TOGETHER, (self._index,)) if self._index else (1, ())
        script = script_of("inspect", protocol=self._protocol)
        # Where many wait, it tells of some of them.
        while left := [name for name in names if name not in found]:
            parts, asked = _parts(left, together), []
            for some in parts:
                keys = [key for name in some for key in (name, meta_key(name))]
                request = Request(script, (*keys, *index), (str(waiters),))
                asked.append((request, self._reader.key(some[0])))
            for some, answer in zip(parts, self._ask_each(asked), strict=True):
                found.update((lock.name, lock) for lock in self._reader.locks(some, answer))
        gone = self._gone(found.values())
        return [found[name].judged(gone) for name in names]

    def find(
        self,
        limit: int = _MOST_FOUND,
        *,
        first: int | None = None,
        search: str = "",
        everything: bool = False,
        within: float | None = None,
    ) -> LockPage:
        """Return at most ``limit`` of the held locks, and say if there are more.

        ``first``: how many are enough where there are more (None: ``limit``). ``search``: of those
        the locks with that text in their keys, in upper or lower case. ``everything``: look through
        the whole keyspace with SCAN instead of the index, and so find locks of other programs that
        nobody here has met (False). In the index the locks whose leases end first are looked at;
        with SCAN so many with that text, for ``within`` seconds (None: without limit).
        """
        if self._index and not everything:
            asked = Request(LIST, (self._index,), (str(limit),)), ""
            # One request, which a slow network may take its time for.
            patience = None if within is None else max(within, 1.0)
            ((count, listed),) = self._ask_each([asked], patience)
            known, total = [*filter(None, map(name_in, listed))], int(count)
            names, is_cut = [name for name in known if self._has(name, search)], total > limit
        else:
            names, is_cut = self._names(search, everything, limit, within)
            known, total = names, len(names)
        if is_cut:
            names = names[:first]
        locks = self._held(names)
        return LockPage(
            locks=locks,
            total=len(locks) if search else total - len(names) + len(locks),
            is_cut=is_cut,
            looked_at=len(known if search else names),
        )

    def all(self, *, search: str = "", everything: bool = False) -> list[LockInfo]:
        """Return all the held locks, sorted by key. ``search``, ``everything``: see :meth:`find`.

        It may take long, but occupies Redis for a millisecond at a time only.
        """
        return self._held(sorted(self._names(search, everything)[0]))

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
        which this holder was seen. A holder that was seen ``GONE``, or ``NOT_RENEWED``, and lives
        again still has the lock: the outcome is then ``REVIVED``. So does one that renews its lease
        before the request arrives. With None, or another state, the fingerprint alone decides.
        ``by`` and ``reason`` are in the LockLost of the holder.
        """
        seen = self._holder(name, fingerprint)
        if isinstance(seen, Outcome):
            return seen
        if seen.state is State.CHANGING_HANDS:
            return Outcome.CHANGED_HANDS
        severity, most = _SEVERITY.get(state, 0), ""
        if _SEVERITY.get(seen.state, 0) < severity:
            return Outcome.REVIVED
        if severity and seen.remaining is not None:
            # If it is renewed from here on, more is left.
            most = str(math.ceil(seen.remaining * 1000))
        protocol = f"timestamp-{seen.unit}" if seen.unit else self._protocol
        force = script_of("force", protocol=protocol)
        # No variable has the token by itself: reports of errors show those.
        request = Request(force, keys_of(name, self._index), (seen.token, _mark(by, reason), most))
        reply = self._ask(request, seen.key)
        target = PlainLock(self._client, name, key=seen.key, index=self._index).target
        run(look(BLOCKING, self._session, target, reply.value[1] if len(reply.value) > 1 else None))
        outcome = _DONE.get(reply.value[0], Outcome.CHANGED_HANDS)
        if outcome is Outcome.RELEASED:
            _log("%r force-released the lock %r from %r: %r", by, seen, reason)
        return outcome

    def ask_to_stop(
        self, name: str, fingerprint: str, *, by: str = "", reason: str = ""
    ) -> Outcome:
        """Ask the one holder whose ``fingerprint`` was seen to stop. The lock is not taken away.

        Of several who hold it together, one by its own fingerprint. The holder gets ``by`` and
        ``reason`` at its next renewal or check, once: who has been asked before is not asked again.
        A next holder is not asked. ``with_lock`` ends its command; elsewhere it is for the code to
        look at ``held.stop_requested``.

        Raises LockUnsupported where nobody would get the request: of a holder with the timestamp
        protocol or ``hosted``, of another program, and of a lock that nobody holds any more or
        releases.
        """
        seen = self._holder(name, fingerprint)
        if isinstance(seen, Outcome):
            return seen
        if not seen.hears_requests:
            why = f"it is {seen.state.value!r}, and has no holder who would know of it"
            if seen.unit:
                why = f"it is held with protocol='timestamp-{seen.unit}'"
            text = f"cannot ask the holder of the lock {seen.key!r} to stop: {why}"
            raise LockUnsupported(text, key=seen.key)
        stop = script_of("stop", protocol=self._protocol)
        request = Request(stop, keys_of(name, None), (seen.token, _mark(by, reason)))
        reply = self._ask(request, seen.key)
        outcome = _DONE.get(reply.value[0], Outcome.CHANGED_HANDS)
        if outcome is Outcome.RELEASED or (reply.was_retried and outcome is Outcome.ASKED_BEFORE):
            outcome = Outcome.ASKED
            _log("%r asked to stop the holder of %r, %r: %r", by, seen, reason)
        return outcome

    # Asking

    @property
    def _session(self) -> Session:
        return session_of(self._client)

    def _ask(self, request: Request, key: str) -> Any:
        return run(self._session.call(BLOCKING, request, key))

    def _ask_each(
        self, asked: Sequence[tuple[Request, str]], within: float | None = None
    ) -> list[Any]:
        """Return the answer to each request, in one write. Raises LockUnavailable."""
        session, values = self._session, []
        limit = 2 * session.limit if within is None else within
        for reply in run(session.call_many(BLOCKING, asked, limit)):
            if isinstance(reply, LockUnavailable):
                raise reply
            values.append(reply.value)
        return values

    def _gone(self, locks: Iterable[LockInfo]) -> set[str]:
        """Return which of the processes that hold ``locks`` do not say that they live."""
        silent = sorted({one.silent_process for lock in locks for one in lock.holders} - {""})
        asked = []
        for some in _parts(silent, _AT_ONCE):
            keys = tuple([process_key(index_for(self._prefix), one) for one in some])
            asked.append((Command.of("MGET", *keys, keys=keys), ""))
        try:
            lives = chain.from_iterable(self._ask_each(asked) if asked else [])
            return {one for one, life in zip(silent, lives, strict=True) if life is None}
        except LockUnavailable as error:
            if error.cause != "denied":
                raise
            # They may not be asked about: they count as living.
            return set()

    def _holder(self, name: str, fingerprint: str) -> LockInfo | Outcome:
        """Return the lock as the holder of that ``fingerprint`` has it, or why it has not."""
        lock = self.get(name)
        if not lock.is_held:
            return Outcome.FREE
        holders = (one for one in lock.holders if one.fingerprint == fingerprint)
        return next(holders, Outcome.CHANGED_HANDS)

    def _held(self, names: Sequence[str]) -> list[LockInfo]:
        locks = chain.from_iterable(map(self.get_each, _parts(names, _AT_ONCE)))
        return [lock for lock in locks if lock.state is not State.FREE]

    # Names

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
            names = filter(None, map(name_in, some))
            found.update(dict.fromkeys(name for name in names if self._has(name, search)))
            is_cut = limit is not None and len(found) > limit
            if cursor == "0" or is_cut or (until is not None and clock.now() >= until):
                return list(found)[:limit], is_cut or cursor != "0"

    def _has(self, name: str, search: str) -> bool:
        return search.casefold() in self._reader.key(name).casefold()

    def _step(self, cursor: str, search: str, in_index: bool) -> tuple[str, Iterable[bytes]]:
        """Return some names, and the cursor from which it goes on; "0" at the end."""
        pattern = f"*{_in_any_case(search)}*"
        if not in_index:
            pattern = f"{_escaped(self._prefix)}{pattern}"
            return run(self._session.scan(BLOCKING, cursor, pattern, _STEP))
        index = str(self._index)
        words = ("ZSCAN", index, cursor, "MATCH", pattern, "COUNT", str(_STEP))
        onward, some = self._ask(Command.of(*words, keys=(index,)), "").value
        # Behind each name stands when its lease ends.
        return text(onward), some[::2]


def _parts(names: Sequence[str], most: int) -> list[Sequence[str]]:
    return [names[at : at + most] for at in range(0, len(names), most)]


def _escaped(text: str) -> str:
    """Return the pattern of Redis that is this text alone."""
    return "".join(f"\\{one}" if one in "*?[]\\^" else one for one in text)


def _in_any_case(text: str) -> str:
    """Return the pattern of Redis that is this text with letters in upper or lower case."""
    either = (
        f"[{one}{one.swapcase()}]" if one.isascii() and one.isalpha() else one for one in text
    )
    return "".join(one if len(one) > 1 else _escaped(one) for one in either)


def _mark(by: str, reason: str) -> str:
    return json.dumps({"by": plain(by), "reason": plain(reason)})


def _log(text: str, by: str, seen: LockInfo, reason: str) -> None:
    whom = str(seen.holder or "another program")
    logger.info(text, plain(by) or "an operator", seen.key, whom, plain(reason))
