"""What a lock that is given away is taken over with, in another process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from .errors import LockUnsupported

if TYPE_CHECKING:
    from .target import Target


@dataclass(frozen=True, slots=True)
class Ticket:
    """Which lock, and what proves that it was given away. ``token`` is a secret."""

    name: str
    token: str = field(repr=False)
    fence: int

    def to_text(self) -> str:
        """What is sent to the other process."""
        parts = {"name": self.name, "token": self.token, "fence": self.fence}
        return json.dumps(parts, separators=(",", ":"))


def read(text: str, target: Target) -> Ticket:
    """The ticket in ``text``, for ``target``.

    Raises ValueError for what is none, or that of another lock. Never shows it.
    """
    try:
        ticket = Ticket(**json.loads(text))
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
    if not target.dialect.takes_tokens():
        refuse(target.key, f"with {target.dialect}")


def refuse(key: str, how: str) -> NoReturn:
    """Raise LockUnsupported: who holds ``key`` cannot be replaced."""
    raise LockUnsupported(
        f"the lock {key!r} is one {how}, which cannot be given away to another process: let it go, "
        "and take it there",
        key=key,
    )
