"""Has a lock again that the same thread or asyncio task holds already. Asks nobody.

The rules are in docs/reentrancy.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from . import flow
from .place import place_of
from .sharing import Sharing, is_over

if TYPE_CHECKING:
    from .flow import Spot
    from .grant import Grant
    from .lease import Upkeep
    from .target import Target

_Handle = TypeVar("_Handle", bound="Grant")
# What is left of a renewed lease at any time; who has a lock again is to find as much.
_ENOUGH = 2 / 3


def _no_scope() -> object:
    return None


# What the caller works for besides its flow, such as one request: a lock is had again in there
# only. None where there is no such thing.
scope_of: Callable[[], object] = _no_scope
_in_scopes: WeakKeyDictionary[object, WeakSet[Sharing]] = WeakKeyDictionary()


def spot_of(target: Target) -> Spot:
    """Where the lock is: what has to be the same for it to be the same lock."""
    return place_of(target.client), target.keys.name


def note(root: Grant, *, is_reentrant: bool) -> Sharing:
    """Know that the caller holds ``root``, which it has just taken."""
    here = flow.current()
    spot = spot_of(root.target)
    root.sharing = sharing = Sharing(root, here, spot, is_reentrant=is_reentrant)
    here.holds[spot] = sharing
    if len(here.holds) > here.sweep_at:
        _sweep(here)
    scope = scope_of()
    if scope is not None:
        _in_scopes.setdefault(scope, WeakSet()).add(sharing)
    return sharing


def again(kind: type[_Handle], target: Target, lease_ms: int, upkeep: Upkeep) -> _Handle | None:
    """A share of what the caller holds of ``target``, as a handle of ``kind``; None if nothing.

    ``lease_ms`` and ``upkeep`` are those of a lock that would be taken.
    """
    found = flow.current().holds.get(spot_of(target))
    if found is None or not found.is_reentrant:
        return None
    root = found.root()
    if root is None or is_over(root) or not root.is_here:
        return None
    scope = scope_of()
    if scope is not None and found not in _in_scopes.get(scope, ()):
        return None
    return share_of(kind, root, found, target, lease_ms, upkeep)


def share_of(
    kind: type[_Handle],
    root: Grant,
    sharing: Sharing,
    target: Target,
    lease_ms: int,
    upkeep: Upkeep,
) -> _Handle | None:
    """A share of ``root``; None when that is being let go."""
    own = replace(target, index=root.target.index, template=root.target.template)
    share = kind.share(root, own, lease_ms / 1000, upkeep)
    try:
        return share if sharing.join(share, root) else None
    except BaseException:
        # Interrupts too: what is on its way up in a traceback would count as held.
        sharing.withdraw(share)
        raise


def is_enough(share: Grant) -> bool:
    """Whether ``share`` has what it may expect of the lease it asked for."""
    return share.remaining() >= share.timeout * _ENOUGH


def withdraw(share: Grant) -> None:
    """Have ``share`` never been had."""
    if share.sharing is not None:
        share.sharing.withdraw(share)


def leave(handle: Grant) -> bool:
    """Count ``handle`` out. Gives whether the lock is to be let go in Redis."""
    return handle.sharing is None or handle.sharing.leave(handle)


def handles_of(grant: Grant) -> list[Grant]:
    """All handles of the lock of ``grant`` that were not released."""
    if grant.sharing is None:
        return [] if grant.released else [grant]
    found = grant.sharing.open_handles()
    return found if grant.released or grant in found else [*found, grant]


def forget(grant: Grant) -> None:
    """Let nobody have the lock again, however long it is held."""
    if grant.sharing is not None:
        grant.sharing.close()


def left_held(scope: object) -> list[Grant]:
    """What is held in ``scope``, a flow or what ``scope_of`` gives, by who will not release it:
    the caller's own flow, or one that has ended.
    """
    here = flow.current()
    if isinstance(scope, flow.Flow):
        holds = list(scope.holds.values())
    else:
        holds = list(_in_scopes.get(scope, ()))
    roots = [one.root() for one in holds if one.flow is here or one.flow.is_over]
    return [
        root
        for root in roots
        if root is not None
        and root.sharing is not None
        and not root.sharing.is_closed
        and not is_over(root)
    ]


def _sweep(here: flow.Flow) -> None:
    for spot, sharing in list(here.holds.items()):
        if sharing.root() is None and here.holds.get(spot) is sharing:
            del here.holds[spot]
    here.sweep_at = 2 * len(here.holds) + flow.FEW
