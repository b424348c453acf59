"""One attempt of one task to take one lock. The twin of the asking in a ``Turn``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import clock, protocol
from ..calling import UNDO_WITHIN
from ..errors import LockUnavailable
from .calling import call, call_replicated

if TYPE_CHECKING:
    from ..held import Held
    from ..turn import Turn


async def ask(turn: Turn, *, waits: bool, within: float | None = None) -> Held | protocol.Busy:
    """Ask once. The twin of :meth:`Turn.ask`."""
    sent = clock.now()
    client, key, request = turn.target.client, turn.target.key, turn.request(waits=waits)
    if turn.replicas is None:
        target = turn.target
        patience = target.patience(waits=waits)
        try:
            reply = await call(
                client, request, key, patience=patience, within=within, undo=turn.undo
            )
        except LockUnavailable as error:
            reply = target.instead(error, waits=waits)
    else:
        reply = await call_replicated(
            client, request, key, turn.replicas, within=within, undo=turn.undo
        )
    answer, now = protocol.read_acquire(reply), clock.now()
    if turn.is_late(answer, sent, now):
        await leave(turn)
    return turn.settle(answer, sent, now)


async def leave(turn: Turn) -> None:
    """Give up: whatever was or will be granted to this token is undone."""
    target = turn.target
    turn.read_left(await call(target.client, turn.leaving(), target.key, within=UNDO_WITHIN))
