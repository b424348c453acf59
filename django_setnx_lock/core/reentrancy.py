"""Has a lock again that the same thread or asyncio task holds already. Asks nobody.

The rules are in docs/reentrancy.md.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from . import flow, sharing
from .errors import LockError
from .place import place_of

if TYPE_CHECKING:
    from .grant import Grant
    from .lease import Upkeep
    from .target import Target

_Handle = TypeVar("_Handle", bound="Grant")
# Of the lease it asks for, who has a lock again is to find as much left; a renewed one always has.
_ENOUGH = 1 / 2

# Has what the caller works for besides its flow, such as one request: a lock is had again in
# there only. Without it, or where it has no value, the flow alone counts.
scope: ContextVar[Any] | None = None
_in_scopes: WeakKeyDictionary[object, WeakSet[Grant]] = WeakKeyDictionary()


def note(root: Grant) -> None:
    """Know that the caller holds ``root``, which it has just taken."""
    here = root.flow = flow.current()
    holds, name = here.holds, root.name
    if name in holds:
        # On another server, or thrown away.
        holds[name].append(ref(root))
    else:
        holds[name] = [ref(root)]
        if len(holds) > here.sweep_at:
            here.sweep()
    if scope is not None and (inside := scope.get(None)) is not None:
        _in_scopes.setdefault(inside, WeakSet()).add(root)


def again(kind: type[_Handle], target: Target, lease_ms: int, upkeep: Upkeep) -> _Handle | None:
    """A share of what the caller holds of ``target``, as a handle of ``kind``; None if nothing.

    ``lease_ms`` and ``upkeep`` are those of a lock that would be taken.
    """
    noted = flow.current().holds.get(target.keys.name)
    if noted is None:
        return None
    place = place_of(target.client)
    for one in noted:
        root = one()
        if root is not None and _may_be_had(root) and place_of(root.client) == place:
            refuse_upgrade(target, reads=root.target.dialect.is_shared())
            return share_of(kind, root, target, lease_ms, upkeep)
    return None


def _may_be_had(root: Grant) -> bool:
    if not root.is_reentrant or sharing.is_over(root) or not root.is_here:
        return False
    inside = None if scope is None else scope.get(None)
    return inside is None or root in _in_scopes.get(inside, ())


def refuse_upgrade(target: Target, *, reads: bool) -> None:
    """Raise LockError where a caller that ``reads`` asks for ``target`` alone."""
    if reads and not target.dialect.is_shared():
        raise LockError(
            f"the lock {target.key!r} is held for reading here, and whoever has it alone waits for "
            "all who read: this caller would wait for itself; let it go first, or take it alone "
            "before reading",
            key=target.key,
        )


def share_of(
    kind: type[_Handle], root: Grant, target: Target, lease_ms: int, upkeep: Upkeep
) -> _Handle | None:
    """A share of ``root``; None when that is being let go."""
    had = root.target
    own = replace(target, index=had.index, template=had.template, dialect=had.dialect)
    share = kind.share(root, own, lease_ms / 1000, upkeep)
    share.reads_only = target.dialect.is_shared()
    try:
        return share if sharing.join(share) else None
    except BaseException:
        # Interrupts too: what is on its way up in a traceback would count as held.
        sharing.leave(share)
        raise


def is_enough(share: Grant) -> bool:
    """Whether ``share`` has what it may expect of the lease it asked for."""
    return share.remaining() >= share.timeout * _ENOUGH


def left_held(place: object) -> list[Grant]:
    """What is held in ``place``, a flow or a value of ``scope``, and will not be released: by the
    caller's own flow, or by one that has ended.
    """
    here = flow.current()
    if isinstance(place, flow.Flow):
        found = [one() for noted in list(place.holds.values()) for one in noted]
    else:
        found = list(_in_scopes.get(place, ()))
    return [
        root
        for root in found
        if root is not None
        and root.flow is not None
        and (root.flow is here or root.flow.is_over)
        and not sharing.is_over(root)
    ]
