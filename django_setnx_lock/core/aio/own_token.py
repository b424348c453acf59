"""A token that the caller chose. The twin of :mod:`django_setnx_lock.core.own_token`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import own_token, protocol
from .calling import call
from .shielded import patience, undisturbed
from .turn import leave

if TYPE_CHECKING:
    from ..held import Held
    from ..turn import Turn


async def put(turn: Turn, held: Held, chosen: str) -> None:
    """Have ``held``, which ``turn`` has just been granted, held by the token ``chosen``.

    Raises LockLost and LockUnavailable; then, or when cancelled, the lock is given back.
    """
    target = turn.target
    swap = own_token.request(target.keys, turn.token, chosen, held.fence)

    async def give_back() -> None:
        await leave(turn)
        # Nothing can be swapped any more: asks whether it was.
        protocol.read_kept(await call(target.client, swap, target.key), target.key)
        held.use_token(chosen)
        await held.arelease()

    # By the random token, a renewal meanwhile would find the lock lost.
    renews = held.watchdog.forget(held)
    try:
        protocol.read_kept(await call(target.client, swap, target.key), target.key)
    except BaseException:
        await undisturbed(give_back, patience(target.client))
        raise
    held.use_token(chosen)
    if renews:
        held.begin_upkeep()
