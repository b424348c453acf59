"""Counts what this process sends to the server, whichever library sends it."""

from __future__ import annotations

from typing import Any

from redis.connection import AbstractConnection

# One element a request: threads may append at once, where ``+= 1`` would lose some.
_sent: list[None] = []


def start_counting() -> None:
    """Count from now on. A pipeline that is sent as one piece counts as one."""
    connection: Any = AbstractConnection  # as its methods have no types
    send = connection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> Any:
        _sent.append(None)
        return send(self, command, check_health)

    connection.send_packed_command = counted


def sent() -> int:
    """Return how many requests this process has sent."""
    return len(_sent)
