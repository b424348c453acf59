"""A lock that this process was started under, as ``manage.py with_lock`` does.

The environment tells of it. The parent process renews and releases it; this one only asks whether
it is still held.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from .. import values
from ..connections.endpoints import Target, is_portable, server_id
from ..connections.primitives import Guard
from ..errors import LockLost
from ..process import after_fork, notice_fork
from ..protocol import commands, replies
from ..protocol.commands import is_of_reader
from ..renewal.lease import Lease
from . import reentrancy
from .grant import Grant
from .options import CoreOptions

_Handle = TypeVar("_Handle")
logger = logging.getLogger("django_setnx_lock.lock")

# Where a lock is (server and database), and its name there.
_Spot = tuple[str, str]

#: A JSON list of the locks that are held around a process.
VARIABLE = "SETNX_LOCK_HELD_TOKENS"
_FOLLOWED = CoreOptions(renew=True, reentrant=True)
_LEAST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class _Entry:
    place: str
    name: str
    token: str = field(repr=False)
    fence: int
    timeout: float

    def __post_init__(self) -> None:
        values.milliseconds(self.timeout, "timeout")
        texts: tuple[object, ...] = (self.place, self.name, self.token)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("not all text")
        if type(self.fence) is not int:
            raise TypeError("no fence")


class _FollowedLease(Lease):
    """The lease that somebody else keeps up: asking again does not lengthen it."""

    def plan(self, sent: float) -> None:
        left = min(self.end - sent, self.seconds)
        self.due = sent + max(left / 3, _LEAST_PAUSE)


# None until the environment was read.
_entries: dict[_Spot, _Entry] | None = None
# Nothing else refers to a followed lock for as long as it is shared.
_followed: dict[_Spot, Grant] = {}
_claiming = Guard()


def described(grant: Grant, environment: Mapping[str, str]) -> str:
    """Return the value of ``VARIABLE`` for a process that is started while ``grant`` is held.

    The locks that ``environment`` names stay in it.
    """
    place, name = spot = _spot_of(grant.target)
    found = _read(environment.get(VARIABLE, ""))
    if is_portable(place):
        found[spot] = _Entry(place, name, grant.token, grant.fence, grant.timeout)
    return json.dumps([asdict(entry) for entry in found.values()], separators=(",", ":"))


def is_possible() -> bool:
    """Return whether any lock is held around this process."""
    global _entries
    notice_fork()
    if _entries is None:
        _entries = _read(os.environ.get(VARIABLE, ""))
    return bool(_entries)


def request(target: Target) -> commands.Request | None:
    """Return what to ask Redis before ``target`` is had again; None if it is not held around."""
    spot = _spot_of(target)
    entry = (_entries or {}).get(spot)
    if entry is None or _is_taken(spot):
        return None
    reentrancy.refuse_upgrade(target, reads=is_of_reader(entry.token))
    return target.command_set.check(target.keys, entry.token)


def enter(
    target: Target, reply: Any, sent: float, handle: Callable[[Grant], _Handle | None]
) -> _Handle | None:
    """Return a ``handle`` of ``target`` if ``reply`` to :func:`request` says that it is still held.

    One thread or task has it at a time.
    """
    spot = _spot_of(target)
    entry = (_entries or {}).get(spot)
    try:
        left = replies.seconds_left(replies.read_kept(reply, target.key)[1])
    except LockLost:
        return None
    if entry is None:
        return None
    left = entry.timeout if left is None else left
    grant = Grant(
        target,
        token=entry.token,
        fence=entry.fence,
        timeout=entry.timeout,
        deadline=sent + left,
        options=_FOLLOWED,
    )
    grant.is_followed = True
    grant.lease = _FollowedLease(entry.timeout, sent + left)
    grant.lease.plan(sent)
    with _claiming.now():
        if grant.is_over or _is_taken(spot):
            return None
        before = _followed.get(spot)
        if before is not None:
            before.end_renewal()
        _followed[spot] = grant
        reentrancy.note(grant)
        return handle(grant)


def held_around(place: str) -> list[tuple[str, str]]:
    """Return name and token of what is held on the server ``place`` until the caller has ended.

    That is so of the main thread, which the process cannot end before.
    """
    if not is_possible() or threading.current_thread() is not threading.main_thread():
        return []
    return [(one.name, one.token) for one in (_entries or {}).values() if one.place == place]


def forget() -> None:
    """Read the environment anew when it is needed next."""
    global _entries
    _entries = None
    _followed.clear()


def _spot_of(target: Target) -> _Spot:
    return server_id(target.client), target.keys.name


def _is_taken(spot: _Spot) -> bool:
    grant = _followed.get(spot)
    return grant is not None and bool(grant.handles) and not grant.is_over


def _read(text: str) -> dict[_Spot, _Entry]:
    try:
        entries = [_Entry(**one) for one in json.loads(text or "[]")]
    except (TypeError, ValueError, RecursionError):
        # Without its text: there are tokens in it.
        logger.warning(
            "%s in the environment cannot be understood: locks that are held around this process "
            "are not had again",
            VARIABLE,
        )
        return {}
    return {(entry.place, entry.name): entry for entry in entries}


def _after_fork_in_child() -> None:
    global _entries
    _entries = {}
    _followed.clear()


after_fork(_after_fork_in_child)
