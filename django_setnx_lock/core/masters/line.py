"""What the renewal speaks to several masters by, as if they were one server."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..line import Command
from . import quorum
from .exchange import Exchange
from .masters import Masters, no_answer
from .wire import wires


class MastersLine:
    """Sends commands to all masters of ``client``, and gives to each the answer of a majority.

    With the methods of :class:`~..line.Line` that a courier uses. ``connect_timeout`` is that of
    the masters, whatever is given.
    """

    # What it sends takes no time: each master is connected to aside.
    is_connected = True

    def __init__(self, client: Masters, *, connect_timeout: float | None = None) -> None:
        self._masters = client
        self._exchange: Exchange | None = None
        self._replies: list[list[Any]] = []
        self._expected = self._read = 0
        self._give_up_at = 0.0

    def send(self, *commands: Command) -> None:
        """Send ``commands`` to each master in one write, connecting first if need be."""
        self.drop()
        masters = self._masters
        self._give_up_at = time.monotonic() + masters.timeout
        self._expected = len(commands)
        self._exchange = Exchange(masters.clients, commands, wires(masters.timeout))
        self._exchange.__enter__()

    def connect(self) -> None:
        """Nothing: sending does."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Nothing: the masters have a limit of their own."""
        return nullcontext()

    def wait(self, seconds: float) -> bool:
        """Whether the answers have come within ``seconds``, or no more are waited for."""
        exchange = self._exchange
        if exchange is None:
            return bool(self._replies)
        left = max(self._give_up_at - time.monotonic(), 0)
        if not exchange.wait(min(seconds, left)) and seconds < left:
            # The last chance may have been this one: a majority will do.
            answered = sum(call.done and call.error is None for call in exchange.calls)
            if answered < quorum.majority(len(exchange.calls)):
                return False
        self._replies = [
            [
                call.replies[number] if number < len(call.replies) else call.error or no_answer()
                for call in exchange.calls
            ]
            for number in range(self._expected)
        ]
        exchange.close()
        self._exchange = None
        return True

    def read(self) -> Any:
        """The next answer. Raises LockUnavailable where there is no majority for any."""
        replies = self._replies[self._read]
        self._read += 1
        if self._read == self._expected:
            self._replies, self._read = [], 0
        reply = quorum.read_kept(replies)
        if reply is None:
            return self._masters.unavailable(replies, "")
        return reply

    def drop(self) -> None:
        """Wait for nothing any more."""
        if self._exchange is not None:
            # Not kept for others, who may be those of another process after a fork.
            self._exchange.close(is_disturbed=True)
            self._exchange = None
        self._replies, self._read = [], 0
