"""Asks several masters at once and takes their answers as they come."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from redis import exceptions as redis_exceptions

from ..line import Command
from ..lines import Lines
from .wire import Wire

# How long a server in this process may take, which no selector tells of.
_AT_ONCE = 5.0


class _Call:
    """What one master is asked. It is ``done`` when it has answered or failed."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.wire: Wire | None = None
        self.replies: list[Any] = []
        self.error: Exception | None = None
        self.done = False
        # Answers to what others sent before.
        self.to_skip = 0
        self.is_new_wire = False
        self.is_in_full = False
        self.number: int | None = None


class Exchange:
    """``commands`` that each of ``clients`` is sent in one write when the block is entered.

    Where there is no connection yet, a thread makes one: so each costs the time of :meth:`wait`
    at the most, alone or together. ``lines`` keeps the connections. ``in_full``: what is sent in
    the place of a single command to a master that lacks its script, or has not answered others yet,
    so that nobody would hear that it does. ``insists``: whether it is to arrive even if nobody
    waits any more; so it is sent in full where the script is not known to be there. ``repeated``
    is called when something was sent twice.
    """

    def __init__(
        self,
        clients: Sequence[Any],
        commands: Sequence[Command],
        lines: Lines[Wire],
        *,
        in_full: Command | None = None,
        insists: bool = False,
        repeated: Callable[[], None] | None = None,
    ) -> None:
        self.calls = [_Call(client) for client in clients]
        self._commands = commands
        self._lines = lines
        self._in_full = in_full
        self._insists = insists
        self._repeated = repeated
        self._selector = _selector()
        self._connected: deque[tuple[_Call, Wire, Exception | None]] = deque()
        self._bell: tuple[socket.socket, socket.socket] | None = None
        # Held for the moment in which a thread tells of its connection, or hears that it is late.
        self._telling = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Exchange:
        try:
            wires = [(call, self._lines.borrow(call.client)) for call in self.calls]
            for call, wire in [one for one in wires if not self._send_on_spare(*one)]:
                self._connect(call, wire)
        except BaseException:
            self.close(is_disturbed=True)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(is_disturbed=exc_type is not None)

    def wait(self, seconds: float, awaited: Sequence[_Call] | None = None) -> bool:
        """Whether all of the calls ``awaited`` (None: all) are done within ``seconds``."""
        give_up_at = time.monotonic() + seconds
        wanted = self.calls if awaited is None else awaited
        try:
            while not all(call.done for call in wanted):
                left = give_up_at - time.monotonic()
                for key, _ in self._selector.select(max(left, 0)):
                    if key.data is None:
                        self._take_in()
                    else:
                        self._read(key.data)
                if left <= 0:
                    break
        except BaseException:
            self.close(is_disturbed=True)
            raise
        return all(call.done for call in wanted)

    def _send_on_spare(self, call: _Call, wire: Wire) -> bool:
        """Whether it could be sent on ``wire``, if that is connected."""
        if not wire.is_connected:
            return False
        try:
            if wire.is_fit():
                self._send(call, wire)
                return True
        except Exception:  # noqa: BLE001 - whatever a client's own classes raise
            self._leave(call)
        self._discard(call, wire)
        return False

    def _discard(self, call: _Call, wire: Wire) -> None:
        wire.drop()
        # All that are spare may be as dead.
        self._lines.forget(call.client)

    def _send(self, call: _Call, wire: Wire) -> None:
        call.wire = wire
        is_unsure = wire.is_behind or (self._insists and self._commands[0][1] not in wire.known)
        if self._in_full and is_unsure:
            call.is_in_full = True
            call.to_skip = wire.send([self._in_full])
        else:
            call.to_skip = wire.send(self._commands)
        call.number = wire.fileno()
        if call.number is not None:
            self._selector.register(call.number, selectors.EVENT_READ, call)
        else:
            # A server in this process, which answers at once.
            self._read(call)

    def _read(self, call: _Call) -> None:
        wire = call.wire
        if wire is None:
            return
        try:
            while True:
                self._take(call, wire, wire.read())
                if len(call.replies) == len(self._commands):
                    self._leave(call)
                    call.done = True
                    self._lines.give_back(call.client, wire)
                    return
                # Others may have come along with it.
                if not wire.wait(_AT_ONCE if call.number is None else 0):
                    return
        except Exception as error:  # noqa: BLE001 - as above
            self._leave(call)
            self._discard(call, wire)
            if call.is_new_wire:
                self._failed(call, error)
                return
            # It may have been closed long ago. Every request may arrive twice.
            if self._repeated:
                self._repeated()
            call.replies.clear()
            self._connect(call, wire)

    def _take(self, call: _Call, wire: Wire, reply: Any) -> None:
        if call.to_skip:
            call.to_skip -= 1
        elif self._in_full and not call.is_in_full and _is_missing(reply):
            # Nothing was applied.
            call.is_in_full = True
            wire.send([self._in_full])
        else:
            call.replies.append(reply)
            if self._in_full:
                wire.known.add(self._commands[0][1])

    def _failed(self, call: _Call, error: Exception) -> None:
        # Without the frames, which refer to all this: connections in a circle are closed late.
        error.__cause__ = error.__context__ = None
        call.error = error.with_traceback(None)
        call.done = True

    def _leave(self, call: _Call) -> None:
        """Expect nothing more for ``call`` on its wire."""
        if call.number is not None:
            self._selector.unregister(call.number)
        call.wire = call.number = None

    def _connect(self, call: _Call, wire: Wire) -> None:
        call.is_new_wire = True
        if self._bell is None:
            self._bell = socket.socketpair()
            self._selector.register(self._bell[0], selectors.EVENT_READ, None)
        args = (call, wire)
        thread = threading.Thread(
            target=self._make_connection, args=args, name="setnx-lock-connect", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # As when the interpreter is about to end.
            self._make_connection(*args)

    def _make_connection(self, call: _Call, wire: Wire) -> None:
        failure = None
        try:
            wire.connect()
        except Exception as error:  # noqa: BLE001 - as above
            failure = error
        with self._telling:
            if not self._is_over and self._bell is not None:
                self._connected.append((call, wire, failure))
                self._bell[1].send(b".")
                return
        self._nobody_waits(call, wire, failure)

    def _nobody_waits(self, call: _Call, wire: Wire, failure: Exception | None) -> None:
        if failure is not None:
            return
        try:
            if self._insists and self._in_full and not call.done:
                wire.send([self._in_full])
        except Exception:  # noqa: BLE001 - as above
            wire.drop()
        else:
            self._lines.give_back(call.client, wire)

    def _take_in(self) -> None:
        """Go on with the masters that were connected to."""
        if self._bell is not None:
            self._bell[0].recv(64)
        while self._connected:
            call, wire, error = self._connected.popleft()
            if error is not None:
                self._failed(call, error)
                continue
            try:
                self._send(call, wire)
            except Exception as failure:  # noqa: BLE001 - as above
                self._leave(call)
                wire.drop()
                self._failed(call, failure)

    def close(self, *, is_disturbed: bool = False) -> None:
        """Wait for nothing any more. ``is_disturbed``: and keep no connection that is in use."""
        with self._telling:
            if self._is_over:
                return
            self._is_over = True
        while self._connected:
            self._nobody_waits(*self._connected.popleft())
        for call in self.calls:
            wire, call.wire = call.wire, None
            if wire is None:
                continue
            if is_disturbed:
                # It may have been in the middle of an answer.
                wire.drop()
            else:
                self._lines.give_back(call.client, wire)
        self._selector.close()
        for end in self._bell or ():
            end.close()


def _selector() -> selectors.BaseSelector:
    if selectors.DefaultSelector.__module__ == selectors.__name__:
        # Nothing of it is the kernel's, so that a fork shares nothing of it either.
        return selectors.PollSelector()
    # That of gevent or eventlet, which lets others run meanwhile.
    return selectors.DefaultSelector()


def _is_missing(reply: Any) -> bool:
    return isinstance(reply, redis_exceptions.NoScriptError)
