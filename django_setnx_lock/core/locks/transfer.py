"""Tokens that callers choose, and tickets by which another process takes over a lock.

A process that takes over a lock does so by a token of its own: the process that gave it away, and
others with the same ticket, find that theirs stands there no longer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NoReturn

from ..connections.endpoints import Target
from ..errors import LockUnsupported

# What stands at a name while the lock is being handed to a waiter, kept after its release, or held
# by several together, begins with one of these, and so do the tokens of these.


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that reports of errors, which show the variables of each frame, are not to show."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TransferTicket:
    """The name of a lock that was given away, and the proof that it was. ``token`` is a secret."""

    name: str
    token: str = field(repr=False)
    fence: int

    def to_text(self) -> str:
        """Return what is sent to the other process."""
        parts = {"name": self.name, "token": self.token, "fence": self.fence}
        return json.dumps(parts, separators=(",", ":"))


def read_ticket(secret: Secret, target: Target) -> TransferTicket:
    """Return the ticket in ``secret``, for ``target``.

    Raises ValueError for what is none, or that of another lock. Never shows it.
    """
    try:
        ticket = TransferTicket(**json.loads(secret.text))
        is_ticket = (type(ticket.name), type(ticket.token), type(ticket.fence)) == (str, str, int)
    except (TypeError, ValueError, RecursionError):
        is_ticket = False
    if not is_ticket:
        raise ValueError(
            f"what the lock {target.key!r} is to be taken over with is no ticket: give adopt() "
            "what give_away() gave"
        ) from None
    if ticket.name != target.keys.name:
        raise ValueError(
            f"the ticket is for the lock that is called {ticket.name!r} in Redis, and not for "
            f"{target.keys.name!r}: give adopt() one of the same key and prefix"
        )
    return ticket


def refuse_unless_possible(target: Target) -> None:
    """Raise LockUnsupported for a lock whose holder cannot be replaced."""
    if not target.command_set.supports_custom_token:
        refuse(target.key, f"with {target.command_set}")


def refuse(key: str, how: str) -> NoReturn:
    """Raise LockUnsupported: the holder of ``key`` cannot be replaced."""
    raise LockUnsupported(
        f"the lock {key!r} is one {how}, which cannot be given away to another process: let it go, "
        "and take it there",
        key=key,
    )
