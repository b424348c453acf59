"""Takes over a lock that another process gave away.

By a token of its own: what the other one sent before, and whoever has the ticket too, finds that
its token stands there no longer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from . import clock, own_token, protocol, tickets, watchdog
from .errors import LockError, LockLost
from .held import Held

if TYPE_CHECKING:
    from .target import Target
    from .turn import Turn


def take_over(turn: Turn, text: str, token: str | None) -> Held:
    """The lock of ``turn`` by the ticket in ``text``; held by ``token`` if one is given.

    Raises as :meth:`RedisLock.adopt`.
    """
    target = turn.target
    tickets.refuse_unless_possible(target)
    ticket = tickets.read(text, target)
    token = turn.token if token is None else token
    sent = clock.now()
    # First the time: what fails from here on leaves the ticket as good as it was, or better.
    longer = protocol.renew(target.keys, target.index, ticket.token, turn.lease_ms, "least")
    protocol.read_kept(target.call(longer), target.key)
    swap = own_token.request(target.keys, ticket.token, token, ticket.fence, turn.record)
    deadline = sent + turn.lease_ms / 1000
    try:
        protocol.read_kept(target.call(swap), target.key)
        if clock.now() >= deadline:
            release(target, token)
            raise LockLost(
                f"it took longer to take over the lock {target.key!r} than its lease lasts",
                key=target.key,
            )
        held = Held(
            target,
            token=token,
            fence=ticket.fence,
            timeout=turn.lease_ms / 1000,
            deadline=deadline,
            upkeep=turn.upkeep,
        )
        return turn.has_adopted(held, sent)
    except LockLost:
        raise
    except BaseException:
        # Interrupts too: it may have been carried out, and then nobody else knows the token.
        if turn.held is not None:
            turn.held.give_up("it was taken over in vain")
        release(target, token)
        raise


def release(target: Target, token: str) -> None:
    """Let ``target`` go if it is held by ``token``. What Redis cannot be told ends by itself."""
    with suppress(LockError):
        reply = target.call(target.dialect.release(target.keys, target.index, token))
        head = protocol.read_handed_on(reply)
        if head:
            watchdog.owe_look(target, head)
