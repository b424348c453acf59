"""Who shares one lock that this process holds: the handle that took it, and those its flow got.

Nothing here keeps a handle alive: one that nobody can release counts no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import ref

from . import clock
from .primitives import Guard

if TYPE_CHECKING:
    from .grant import Grant

# Whether a share is the last, or another can still be had, is decided by one thread at a time.
# Reentrant, for handlers of signals.
_deciding = Guard()
# Deciding takes no time. Where it lasts, an interrupt came between having decided and saying so.
_PATIENCE = 1.0
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _alone(decide: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    deciding = _deciding.now()
    is_alone = deciding.acquire(timeout=_PATIENCE)
    try:
        return decide(*args, **kwargs)
    finally:
        if is_alone:
            deciding.release()


def handles_of(grant: Grant) -> list[Grant]:
    """All handles of the lock of ``grant`` that were not released."""
    root = grant.root
    handles = [root] if root.handles is None else [one() for one in list(root.handles.values())]
    found = [one for one in handles if one is not None and not one.released]
    return found if grant.released or grant in found else [*found, grant]


def join(share: Grant) -> bool:
    """Count ``share`` in, unless its lock is being let go."""
    return _alone(_join, share, share.root)


def _join(share: Grant, root: Grant) -> bool:
    if root.flow is None:
        return False
    if root.handles is None:
        root.handles = {root.number: ref(root)}
    root.handles[share.number] = ref(share)
    if share.wants_renewal or root.is_followed:
        root.begin_renewal()
    return True


def leave(handle: Grant) -> bool:
    """Count ``handle`` out. Gives whether the lock is to be let go in Redis.

    It is when no other is left, and when its time is over: then nobody may rely on it.
    If not, it is renewed as long as one of the others wants it to be.
    """
    root = handle.root
    if root.handles is None and root.flow is None:
        return True
    return _alone(_leave, handle, root)


def _leave(handle: Grant, root: Grant) -> bool:
    if root.handles is None:
        _drop(root)
        return True
    root.handles.pop(handle.number, None)
    others = [one for one in handles_of(root) if one is not handle]
    if root.is_followed:
        # Whose lock it is lets it go.
        if others == [root]:
            _drop(root)
            root.end_renewal()
        return False
    if others and not is_over(handle):
        if not any(one.wants_renewal for one in others):
            root.end_renewal()
        return False
    _drop(root)
    return True


def close(grant: Grant) -> None:
    """Let nobody have the lock again, however long it is held."""
    _alone(_drop, grant.root)


def _drop(root: Grant) -> None:
    here = root.flow
    if here is not None:
        root.flow = None
        noted = here.holds.pop(root.name, ())
        if len(noted) > 1:
            here.holds[root.name] = [one for one in noted if one() not in (None, root)]


def is_put_off(grant: Grant) -> bool:
    """Whether all who had the lock let it go, which has effect later only."""
    return all(one.is_put_off for one in handles_of(grant))


def is_over(grant: Grant) -> bool:
    """Whether the lock is lost or its lease over, whoever has been told."""
    return grant.is_known_lost or grant.lease.is_over(clock.now())
