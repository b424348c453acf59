"""A connection to one of several masters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from redis import exceptions as redis_exceptions

from ..line import Command, Line
from ..lines import Lines

# For how long answers may be outstanding before the connection is taken for dead.
_SILENCE = 1.0


class Wire:
    """A line on which answers may be outstanding that nobody waits for any more: they are skipped.

    So a slow master need not be connected to anew each time, and what is sent to one that hangs
    gets there in order when it goes on. ``timeout``: bounds, in seconds, each step of connecting,
    and sending. For one thread at a time. Methods raise what redis-py raises.
    """

    def __init__(self, client: Any, *, timeout: float) -> None:
        self._line = Line(client, connect_timeout=timeout)
        self._outstanding = 0
        self._since = 0.0
        self.is_connected = False
        # The scripts, by SHA, that were run here.
        self.known: set[str | bytes] = set()

    def connect(self) -> None:
        self._line.connect()
        self.is_connected = True

    @property
    def address(self) -> tuple[str, int] | None:
        """As in :class:`Line`."""
        return self._line.address

    def fileno(self) -> int | None:
        """What can be waited for, if there is such."""
        return self._line.fileno()

    def send(self, commands: Sequence[Command]) -> int:
        """Send ``commands`` in one write. Gives how many answers come before theirs."""
        before = self._outstanding
        if not before:
            self._since = time.monotonic()
        self._line.send(*commands)
        self._outstanding += len(commands)
        return before

    @property
    def is_behind(self) -> bool:
        """Whether answers are outstanding."""
        return self._outstanding > 0

    def wait(self, seconds: float) -> bool:
        """Whether an answer has come within ``seconds``."""
        return self._line.wait(seconds)

    def read(self) -> Any:
        """One answer; an error reply is given, not raised."""
        try:
            reply = self._line.read()
        except redis_exceptions.ResponseError as error:
            reply = error
        self._outstanding -= 1
        self._since = time.monotonic()
        return reply

    def is_fit(self) -> bool:
        """Whether it can be used once more. Reads what has come meanwhile."""
        try:
            while self._outstanding and self._line.wait(0):
                self.read()
        except (redis_exceptions.RedisError, OSError):
            return False
        return not self._outstanding or time.monotonic() - self._since < _SILENCE

    def drop(self) -> None:
        self.is_connected = False
        self._outstanding = 0
        self.known.clear()
        self._line.drop()


@lru_cache(maxsize=16)
def wires(timeout: float) -> Lines[Wire]:
    """The spare wires of this process with that ``timeout``."""
    return Lines(partial(Wire, timeout=timeout))
