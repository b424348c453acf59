"""Find a lock that the same thread or asyncio task holds already. Nobody is asked.

The rules are in docs/reentrancy.md.
"""

from __future__ import annotations

from weakref import ref

from ..connections.endpoints import Target, server_id
from ..errors import LockError
from . import owner
from .grant import Grant


def note(grant: Grant) -> None:
    """Note that the caller holds ``grant``, which it has just taken."""
    here = grant.owner = owner.current()
    holds, name = here.holds, grant.name
    if name in holds:
        # On another server, or thrown away.
        holds[name].append(ref(grant))
    else:
        holds[name] = [ref(grant)]
        if len(holds) > here.sweep_at:
            here.sweep()


def grant_of(target: Target) -> Grant | None:
    """Return the grant by which the caller holds ``target`` and may have it again, or None.

    Raises LockError where the caller reads, and asks for the lock alone.
    """
    noted = owner.current().holds.get(target.keys.name)
    if noted is None:
        return None
    place = server_id(target.client)
    for one in noted:
        grant: Grant | None = one()
        if grant is not None and _may_be_had(grant) and server_id(grant.client) == place:
            refuse_upgrade(target, reads=grant.target.command_set.is_shared)
            return grant
    return None


def _may_be_had(grant: Grant) -> bool:
    return grant.options.reentrant and not grant.is_over and grant.is_here


def refuse_upgrade(target: Target, *, reads: bool) -> None:
    """Raise LockError where a caller that ``reads`` asks for ``target`` alone."""
    if reads and not target.command_set.is_shared:
        raise LockError(
            f"the lock {target.key!r} is held for reading here, and whoever has it alone waits for "
            "all who read: this caller would wait for itself; let it go first, or take it alone "
            "before reading",
            key=target.key,
        )


def held_at(place: str) -> list[Grant]:
    """Return what the caller holds on the server ``place``, of all that was noted."""
    noted = [one() for known in list(owner.current().holds.values()) for one in known]
    return [
        grant
        for grant in noted
        if grant is not None
        and grant.is_here
        and not grant.is_over
        and server_id(grant.client) == place
    ]
