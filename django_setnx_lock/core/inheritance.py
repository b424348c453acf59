"""A lock that this process was started under, as ``manage.py with_lock`` does.

The environment tells of it. Whoever started the process renews and releases it; here it is only
looked after, by asking.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from . import protocol, reentrancy
from .errors import LockLost
from .lease import Lease, Upkeep
from .place import is_shown, place_of
from .primitives import Guard
from .shared import is_of_reader
from .sharing import handles_of, is_over

if TYPE_CHECKING:
    from .grant import Grant
    from .target import Target

_Handle = TypeVar("_Handle", bound="Grant")
logger = logging.getLogger("django_setnx_lock.lock")

# Where a lock is (server and database), and its name there.
_Spot = tuple[str, str]

#: A JSON list of the locks that are held around a process.
VARIABLE = "SETNX_LOCK_HELD"
_FOLLOWED = Upkeep(renew=True, reentrant=True)
_LEAST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class _Entry:
    place: str
    name: str
    token: str
    fence: int
    timeout: float

    def __post_init__(self) -> None:
        protocol.milliseconds(self.timeout, "timeout")
        texts: tuple[object, ...] = (self.place, self.name, self.token)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("not all text")
        if type(self.fence) is not int:
            raise TypeError("no fence")


class _FollowedLease(Lease):
    """The lease that somebody else keeps up: asking again does not lengthen it."""

    def plan(self, sent: float) -> None:
        left = min(self.end - sent, self.rhythm)
        self.due = sent + max(left / 3, _LEAST_PAUSE)


# None until the environment was read.
_entries: dict[_Spot, _Entry] | None = None
# Nothing else refers to a followed lock for as long as it is shared.
_followed: dict[_Spot, Grant] = {}
_claiming = Guard()


def described(grant: Grant, environment: Mapping[str, str]) -> str:
    """The value of ``VARIABLE`` for a process that is started while ``grant`` is held.

    It holds what ``environment`` tells already, too.
    """
    place, name = spot = _spot_of(grant.target)
    found = _read(environment.get(VARIABLE, ""))
    if is_shown(place):
        found[spot] = _Entry(place, name, grant.token, grant.fence, grant.timeout)
    return json.dumps([asdict(entry) for entry in found.values()], separators=(",", ":"))


def is_possible() -> bool:
    """Whether anything is held around this process."""
    global _entries
    if _entries is None:
        _entries = _read(os.environ.get(VARIABLE, ""))
    return bool(_entries)


def request(target: Target) -> protocol.Request | None:
    """What to ask Redis before ``target`` may be had through the environment; None if it cannot."""
    spot = _spot_of(target)
    entry = (_entries or {}).get(spot)
    if entry is None or _is_taken(spot):
        return None
    reentrancy.refuse_upgrade(target, reads=is_of_reader(entry.token))
    return target.dialect.check(target.keys, entry.token)


def enter(
    kind: type[_Handle], target: Target, lease_ms: int, upkeep: Upkeep, reply: Any, sent: float
) -> _Handle | None:
    """A share of what is held around this process, if ``reply`` to :func:`request` says it is.

    One thread or task has it at a time.
    """
    spot = _spot_of(target)
    entry = (_entries or {}).get(spot)
    try:
        left = protocol.seconds_left(protocol.read_kept(reply, target.key)[1])
    except LockLost:
        return None
    if entry is None:
        return None
    left = entry.timeout if left is None else left
    root = kind(
        target,
        token=entry.token,
        fence=entry.fence,
        timeout=entry.timeout,
        deadline=sent + left,
        upkeep=_FOLLOWED,
    )
    root.is_followed = True
    root.lease = _FollowedLease(entry.timeout, sent + left)
    root.lease.plan(sent)
    with _claiming.now():
        if is_over(root) or _is_taken(spot):
            return None
        before = _followed.get(spot)
        if before is not None:
            before.end_renewal()
        _followed[spot] = root
        reentrancy.note(root)
        return reentrancy.share_of(kind, root, target, lease_ms, upkeep)


def forget() -> None:
    """Read the environment anew when it is next asked for."""
    global _entries
    _entries = None
    _followed.clear()


def _spot_of(target: Target) -> _Spot:
    return place_of(target.client), target.keys.name


def _is_taken(spot: _Spot) -> bool:
    root = _followed.get(spot)
    return root is not None and len(handles_of(root)) > 1 and not is_over(root)


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
