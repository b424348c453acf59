"""Build the requests of each operation, for each kind of lock. Nothing is sent from here."""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..errors import LockUnsupported
from ..plain import plain
from . import scripts
from .keys import LockKeys

# For how long a lock is left to a waiter; the scripts know it as CLAIM.
CLAIM_MS = 1000
MOST_PERMITS = 1_000_000
Command: TypeAlias = tuple[str | bytes, ...]
_READ = "read:"
# A token is text that others may have written: no more digits than MOST_PERMITS has.
_PERMIT = re.compile(rb"permit:(\d{1,7}):")


@dataclass(frozen=True, slots=True)
class Request:
    """One run of a script. Its ``repr`` is without keys and arguments: there are tokens in both.

    With ``args``, it may be sent any number of times. ``once`` and ``again`` (None: as ``args``)
    stand in their place where the sender tells the first copy from later ones: then Redis has
    less to remember.

    Numbers go as text: hiredis 3.5 crashes when a signal handler raises while it packs ints.
    """

    script: scripts.Script
    keys: tuple[str, ...] = field(repr=False)
    args: tuple[str | bytes, ...] = field(repr=False)
    once: tuple[str | bytes, ...] | None = field(default=None, repr=False)
    again: tuple[str | bytes, ...] | None = field(default=None, repr=False)

    @property
    def repeat(self) -> Request:
        """The same, to be sent where an earlier copy may have been carried out."""
        return replace(self, args=self.again or self.args, once=None, again=None)

    def by_sha_with(self, args: Sequence[str | bytes]) -> Command:
        """Return the command for a server that knows the script, with ``args``."""
        return ("EVALSHA", self.script.sha, str(len(self.keys)), *self.keys, *args)

    @property
    def arguments(self) -> tuple[str | bytes, ...]:
        """The arguments of EVAL and EVALSHA after the script."""
        return (str(len(self.keys)), *self.keys, *self.args)

    @property
    def by_sha(self) -> Command:
        """The command for a server that knows the script."""
        return self.by_sha_with(self.args)

    @property
    def in_full(self) -> Command:
        """The command for any server."""
        return ("EVAL", self.script.source, *self.arguments)

    @property
    def first_in_full(self) -> Command:
        """The command for any server where no copy has been carried out."""
        return replace(self, args=self.once or self.args).in_full


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """One ``command`` of Redis, in the place of a :class:`Request`; the second word is its key."""

    command: tuple[str, ...] = field(repr=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of the command."""
        return self.command[1:2]

    @property
    def by_sha(self) -> Command:
        """The command, which is no script."""
        return self.command

    in_full = first_in_full = by_sha
    # It is the same however often it is sent.
    once = again = None

    @property
    def repeat(self) -> PlainRequest:
        """The same."""
        return self


def _beside_fence(token: str, record: str) -> str:
    """Return ``record`` in the form that follows the fence in Redis."""
    return f" {len(token.encode())} {token} {record}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSet:
    """How one kind of lock stands in Redis, and what is sent for each operation on it.

    ``name``: what messages call it. ``prefix``: of the names of its scripts. ``has_queue``:
    whether its scripts get the keys of the queue. ``wakes_waiters``: whether a waiter has a
    mailbox. ``supports_custom_token``: whether the caller may choose the token.
    ``supports_min_hold``: whether a lock that is let go can be kept from others for a time.
    ``is_shared``: whether others may hold it at the same time, ``limit`` of them (None: any
    number). ``unit``, ``expire``: of a value that is a time, and whether Redis removes it.
    """

    name: str
    prefix: str = ""
    has_queue: bool = True
    wakes_waiters: bool = True
    supports_custom_token: bool = False
    supports_min_hold: bool = False
    is_shared: bool = False
    limit: int | None = None
    unit: str = ""
    expire: bool = True

    def __str__(self) -> str:
        return self.name

    def new_token(self, mailbox: str | None = None) -> str:
        """Return what an attempt is known by, which nobody can guess.

        ``mailbox``: where it is woken together with others; it ends in that.
        """
        token = secrets.token_hex(16)
        if mailbox is not None:
            token = f"{token}@{mailbox}"
        if not self.is_shared:
            return token
        # It tells the holder that hands the lock on which kind may come in.
        return f"{_READ if self.limit is None else f'permit:{self.limit}:'}{token}"

    def acquire(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        record: str,
        wait_ms: int,
        *,
        in_doubt: bool = True,
    ) -> Request:
        """Take the lock, or with ``wait_ms`` queue for it.

        ``in_doubt``, here and below: whether a copy of a request of ``token`` may be under way.
        """
        if not self.prefix:
            record = _beside_fence(token, record)
        own: tuple[str, ...] = (token, str(lease_ms), record, str(wait_ms))
        if self.unit:
            own += self._time
        once = None if in_doubt or wait_ms else (*own[:3], "-1", *own[4:])
        return self._request("ACQUIRE", keys, token, index, *own, once=once)

    def release(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        *,
        in_doubt: bool = True,
    ) -> Request:
        """Let the lock go."""
        once = again = None
        if self.has_queue and not in_doubt:
            once, again = (token, "once"), (token, "again")
        return self._request("RELEASE", keys, token, index, token, "", once=once, again=again)

    def cancel(
        self, keys: LockKeys, index: str | None, token: str, *, in_doubt: bool = True
    ) -> Request:
        """Give up an attempt, whatever it may have been granted."""
        how = "" if in_doubt else "once"
        return self._request("CANCEL", keys, token, index, token, how)

    def renew(self, keys: LockKeys, index: str | None, token: str, lease_ms: int) -> Request:
        """Have at least ``lease_ms`` left of the lease, which is never cut."""
        return self._request("RENEW", keys, token, index, token, str(lease_ms), *self._time)

    def check(self, keys: LockKeys, token: str) -> Request:
        """Ask whether the lock is still held by ``token``."""
        return self._request("CHECK", keys, token, None, token)

    def force_release(
        self,
        keys: LockKeys,
        index: str | None,
        seen: bytes,
        most_ms: int | None,
        by: str,
        reason: str,
    ) -> Request:
        """Take the lock from the holder of the token ``seen``.

        ``most_ms``: unless more than so many ms are left of its lease (None: however many are).
        """
        token = seen.decode("utf-8", "backslashreplace")
        most = "" if most_ms is None else str(most_ms)
        mark = _mark(by, reason)
        return self._request("FORCE", keys, token, index, mark, seen, most, *self._time[:1])

    def request_stop(
        self, keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str
    ) -> Request:
        """Ask the holder of the token ``seen`` to stop."""
        token = seen.decode("utf-8", "backslashreplace")
        # No two are the same: copies are known.
        asked = {"id": secrets.token_hex(6), "by": plain(by), "reason": plain(reason)}
        return self._request("REQUEST_STOP", keys, token, index, json.dumps(asked), seen)

    def check_handoff(self, keys: LockKeys, head: str, *, is_last: bool = False) -> Request:
        """Ask whether the waiter ``head`` has claimed the lock; else pass it on."""
        return self._request("LOOK", keys, head, None, head, str(int(is_last)))

    def locked(self, keys: LockKeys) -> Request | PlainRequest:
        """Ask whether anybody holds it."""
        if not self.unit:
            return PlainRequest(("EXISTS", keys.name))
        return Request(scripts.TIMESTAMP_LOCKED, (keys.name, keys.meta), (self.unit,))

    def inspect(
        self, keys: LockKeys, index: str | None, unit: str = "", waiters: int = 1
    ) -> Request:
        """Ask for all there is to say about the lock. Writes nothing.

        ``unit``: that of values which are times, where nothing beside them tells; "" if none are.
        ``waiters``: how many of those who wait to name at most, 1 or more.
        """
        # Not for a certain token.
        return Request(scripts.INSPECT, _shared_by(keys, "", index), (unit, str(waiters)))

    def inspect_each(
        self, locks: Sequence[LockKeys], index: str | None, unit: str = "", waiters: int = 1
    ) -> Request:
        """Ask for all there is to say about ``locks``, as :meth:`inspect` does. Writes nothing.

        The reply is JSON, and about the first of them at least, so that Redis is not kept busy for
        long by those many wait for. All of their keys are in one script, which a cluster refuses.
        """
        if not self.wakes_waiters:
            own = [key for keys in locks for key in (keys.name, keys.meta)]
            return Request(scripts.HOSTED_INSPECT, _with(index, *own), ())
        own = [key for keys in locks for key in _shared_by(keys, "", None)]
        return Request(scripts.INSPECT, _with(index, *own), (unit, str(waiters), "each"))

    @property
    def _time(self) -> tuple[str, ...]:
        """What a value that is a time needs: its unit, and whether it vanishes."""
        return (self.unit, str(int(self.expire))) if self.unit else ()

    def _request(
        self,
        operation: str,
        keys: LockKeys,
        token: str,
        index: str | None,
        *args: str | bytes,
        once: tuple[str, ...] | None = None,
        again: tuple[str, ...] | None = None,
    ) -> Request:
        # Operations without a script of their own use the one of the ordinary lock.
        own = getattr(scripts, f"{self.prefix}{operation}", None)
        script = own or getattr(scripts, operation)
        if own is not None and not self.has_queue:
            layout = _with(index, keys.name, keys.meta, keys.tombstone(token))
        elif self.is_shared:
            layout = _shared_by(keys, token, index)
        else:
            layout = keys.queue(token, index)
        return Request(script, layout, args, once, again)


def _mark(by: str, reason: str) -> str:
    return json.dumps({"by": plain(by), "reason": plain(reason)})


def _shared_by(keys: LockKeys, token: str, index: str | None) -> tuple[str, ...]:
    return _with(index, *keys.queue(token), keys.shares, keys.holders)


def _with(index: str | None, *own: str) -> tuple[str, ...]:
    return own if index is None else (*own, index)


SETNX = CommandSet(name="protocol='setnx'", supports_custom_token=True, supports_min_hold=True)
# For servers that let a script touch none but the keys that it was told of. What stands at the
# name, fence and record are those of SETNX, so both exclude each other; but nobody queues, and
# nobody is woken, as a waiter's mailbox is known only at run time.
HOSTED = CommandSet(
    name="protocol='hosted'", prefix="HOSTED_", has_queue=False, wakes_waiters=False
)
# Held by any number of readers; one who holds the lock alone is an ordinary holder.
READERS = CommandSet(name="shared=True", prefix="SHARED_", is_shared=True)
# The value at the name is the time, in ``unit``, at which the lock stops being valid; the token
# stands beside it. Nobody is woken: a holder counts as foreign for who waits.
_TIMESTAMPS = {
    unit: CommandSet(
        name=f"protocol='timestamp-{unit}'", prefix="TIMESTAMP_", has_queue=False, unit=unit
    )
    for unit in ("s", "ms")
}
#: How a lock may stand in Redis, by what the option ``protocol`` calls it.
PROTOCOLS = {
    "setnx": SETNX,
    "timestamp-s": _TIMESTAMPS["s"],
    "timestamp-ms": _TIMESTAMPS["ms"],
    "hosted": HOSTED,
}


@functools.lru_cache(maxsize=128)
def permits(limit: int) -> CommandSet:
    """Return the command set of a lock that ``limit`` hold at the most."""
    return CommandSet(name=f"limit={limit}", prefix="SHARED_", is_shared=True, limit=limit)


def command_set(
    protocol: object = "setnx",
    expire: object = True,
    shared: object = False,
    limit: object = None,
    *,
    min_hold: float | None = None,
    reentrant: bool | None = None,
) -> CommandSet:
    """Return the command set of a lock with these options of :class:`RedisLock`.

    ``expire`` has an effect for timestamps alone. Raises ValueError for a protocol that does not
    exist, for a ``limit`` that is no number from 1 to 1,000,000, and for ``shared`` and ``limit``
    together; LockUnsupported for ``shared`` or ``limit`` with ``min_hold`` or another protocol than
    ``setnx``, and for a ``limit`` with ``reentrant``; TypeError for ``expire`` or ``shared`` that
    is no bool.
    """
    found = PROTOCOLS.get(protocol) if isinstance(protocol, str) else None
    if found is None:
        raise ValueError(f"protocol is one of {', '.join(map(repr, PROTOCOLS))}, not {protocol!r}")
    for option, value in (("expire", expire), ("shared", shared)):
        if value is not True and value is not False:
            raise TypeError(f"{option} is True or False, not {value!r}")
    if found.unit and not expire:
        found = replace(found, expire=False)
    if not shared and limit is None:
        return found
    return _shared(found, bool(shared), limit, min_hold=min_hold, reentrant=reentrant)


def _shared(
    beside: CommandSet,
    shared: bool,
    limit: object,
    *,
    min_hold: float | None,
    reentrant: bool | None,
) -> CommandSet:
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_PERMITS):
        raise ValueError(f"limit is a number from 1 to {MOST_PERMITS:,} or None, not {limit!r}")
    if shared and limit is not None:
        raise ValueError("shared lets any number in and limit so many: give one of them")
    if min_hold is not None:
        raise LockUnsupported(
            "min_hold is not to be had with shared or limit: hold it for that time"
        )
    if limit is not None and reentrant:
        raise LockUnsupported(
            "reentrant is not to be had with limit: whoever has a permit and takes again gets "
            "another one"
        )
    if beside is not SETNX:
        raise LockUnsupported(f"shared and limit are not to be had with {beside}: leave them out")
    return READERS if limit is None else permits(int(str(limit)))


def is_of_reader(token: str) -> bool:
    """Whether ``token`` is that of one who reads."""
    return token.startswith(_READ)


def limit_of(token: bytes) -> int | None:
    """How many may hold the lock together, as the holder of the permit ``token`` has it."""
    found = _PERMIT.match(token)
    return int(found[1]) if found else None


def acquire_all(requests: Sequence[Request]) -> Request:
    """Ask for several locks at once, by what ``acquire()`` gave for each, in that order."""
    keys: list[str] = []
    args: list[str | bytes] = []
    once: list[str | bytes] = []
    for request in requests:
        keys += request.keys
        args += (str(len(request.keys)), *request.args)
        once += (str(len(request.keys)), *(request.once or request.args))
    # Not by a generator: an interrupt in one is told as an error that nobody handled.
    in_doubt = None in [request.once for request in requests]
    once_args = None if in_doubt else tuple(once)
    return Request(scripts.ACQUIRE_ALL, tuple(keys), tuple(args), once=once_args)


def release_kept(
    keys: LockKeys, index: str | None, token: str, min_hold_ms: int, fence: int
) -> Request:
    """Let the lock go, and keep its name taken until ``min_hold_ms`` after the grant."""
    args = (token, "", str(min_hold_ms), str(fence))
    return Request(scripts.RELEASE, keys.queue(token, index), args)


def renew_alone(keys: LockKeys, token: str, lease_ms: int) -> Request:
    """Renew where nothing but the name itself can be had."""
    return Request(scripts.RENEW_ALONE, (keys.name,), (token, str(lease_ms)))


def give_away(keys: LockKeys, index: str | None, token: str, lease_ms: int) -> Request:
    """Renew, and leave no process in the record that would have to live."""
    request = SETNX.renew(keys, index, token, lease_ms)
    return replace(request, args=(*request.args, "given"))


def replace_token(keys: LockKeys, old: str, new: str, fence: int, record: str) -> Request:
    """Put ``new`` in the place of ``old``, and ``record`` beside it."""
    return Request(scripts.SWAP, keys.queue(old), (old, new, str(fence), record))


def living(names: Sequence[str]) -> Request:
    """Ask which of the processes that have these keys say that they live."""
    return Request(scripts.LIVING, tuple(names), ())


def listing(index: str, most: int) -> Request:
    """Ask how many names in the index have a lease that runs, and for those that end first."""
    return Request(scripts.LISTING, (index,), (str(most),))


def deadlock(
    keys: LockKeys, token: str, life_ms: int, record: str, held: Sequence[tuple[str, str]]
) -> Request:
    """Say that ``token``, whose caller holds ``held``, waits, and ask whether that is a deadlock.

    ``held``: the names of the locks and the tokens by which it holds them. It is believed for
    ``life_ms``.
    """
    names, tokens = [name for name, _ in held], [token for _, token in held]
    args = (token, str(life_ms), record, *tokens)
    return Request(scripts.DEADLOCK, (keys.name, *names), args)


def glob_escaped(text: str) -> str:
    """Return the pattern of Redis that is this text alone."""
    return "".join(f"\\{character}" if character in "*?[]\\^" else character for character in text)
