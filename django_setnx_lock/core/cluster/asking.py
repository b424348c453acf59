"""Asking the node that a slot is on its way to, before it has all of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redis import exceptions as redis_exceptions

from ..line import Command, Line

ASKING: Command = ("ASKING",)


class AskingLine(Line):
    """Says before each command that the other node has sent us."""

    # Whether the answer to that was read, and the one to the command has not come as a whole.
    _is_admitted = False

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        super().__init__(client, connect_timeout=connect_timeout)
        # Who was sent here once may not be again.
        self.repeats = False

    def pack(self, *commands: Command) -> bytes:
        """As in :class:`Line`."""
        return super().pack(*(part for command in commands for part in (ASKING, command)))

    def _read(self) -> Any:
        if not self._is_admitted:
            # Who lacks the right for it is sent back by the answer to the command.
            with suppress(redis_exceptions.ResponseError):
                super()._read()
        self._is_admitted = True
        try:
            reply = super()._read()
        except redis_exceptions.ResponseError:
            self._is_admitted = False
            raise
        self._is_admitted = False
        return reply

    def _close(self) -> None:
        self._is_admitted = False
        super()._close()


class _Pool:
    """The settings of a pool, and lines of its own."""

    def __init__(self, pool: Any) -> None:
        self.connection_class = pool.connection_class
        self.connection_kwargs = pool.connection_kwargs


class Asking:
    """Stands for ``client``, one of a single node, for who was sent there by another."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.connection_pool = _Pool(client.connection_pool)

    def get_connection_kwargs(self) -> Any:
        """As in redis-py's client."""
        return self.client.get_connection_kwargs()


# By the kind of line that others are asked on.
_KINDS: dict[Any, Any] = {Line: AskingLine}


def register(line: type, asking: type) -> None:
    """Have who was sent on to a node ask it on an ``asking`` in the place of a ``line``."""
    _KINDS[line] = asking


def kind_of_line(client: Any, line: Any) -> Any:
    """What ``client`` is asked on, where other clients are on a ``line``."""
    return _KINDS.get(line, line) if isinstance(client, Asking) else line
