"""Where a waiter sleeps: each thread at a list of its own, all tasks of a loop at one.

Mail is the token of the waiter that it is for.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from redis import exceptions as redis_exceptions

from .. import clock
from ..connections.connection import close, limit_to, take
from ..connections.pipe import Line, Pipe, of_loop
from ..protocol.replies import text
from ..protocol.requests import LISTEN, Request, pack

if TYPE_CHECKING:
    from ..connections.session import Session

# A loop listens for so many seconds at a time, twice, as mail is not to lie unread before the next
# BRPOP is sent.
_LISTENS_FOR, _LISTENING = 5, 2
# A thread for so many, also while it asks: who sleeps again has nothing to send.
_THREAD_LISTENS_FOR = 100


class ThreadMailbox:
    """The list ``key``, at which one thread waits, on a connection for that."""

    _connection: Any = None
    # Until when what is under way, a BRPOP in the end, has to be answered; 0: nothing is.
    _until = 0.0

    def __init__(self, session: Session, key: str) -> None:
        self.key = key
        self._session = self._home = session

    async def wait(self, token: str, seconds: float, request: Request | None = None) -> Any:
        """Sleep until woken, or for so many ``seconds``. Raises what redis-py raises.

        ``request``: sent along, which Redis carries out when the sleep ends; its reply is returned,
        None where it has to be asked anew.
        """
        end = clock.now() + seconds
        home = self._session.at(self.key)
        if home is not self._home or (self._until and clock.now() > self._until):
            # Nobody is there any more, and nothing has said so.
            self.close(token)
        if self._connection is None:
            self._home, self._connection = home, take(home.listening) or home.connection()
        if not self._until:
            self._listen(seconds, request)
        if request is None and not self._connection.can_read(max(end - clock.now(), 0)):
            return None
        self._read()
        reply = None
        if request is not None:
            try:  # noqa: SIM105 - suppress() takes longer
                reply = self._read()
            except redis_exceptions.NoScriptError:
                pass  # asked anew
        self._until = 0.0
        return reply

    def _listen(self, seconds: float, request: Request | None) -> None:
        # A sleep of 0 would have no end. The fake blocks as this is sent.
        is_fake = not hasattr(self._connection._sock, "settimeout")
        lasts = max(seconds, 0.01) if is_fake or request is not None else _THREAD_LISTENS_FOR
        packed = pack("BRPOP", self.key, f"{lasts:.2f}") + (request.pack() if request else b"")
        listen = Request(LISTEN, (self.key, f"{self.key}:awake"), ()).pack_in_full()
        self._until = clock.now() + self._session.limit + (lasts if is_fake else 0)
        self._connection.send_packed_command((listen, packed), check_health=False)
        self._read()
        self._until += lasts

    def _read(self) -> Any:
        limit_to(self._connection, self._until - clock.now())
        return self._connection.read_response(disconnect_on_error=False)

    def close(self, token: str) -> None:
        """Wait no longer."""
        connection, self._connection = self._connection, None
        if self._until:
            close(connection)
            self._until = 0.0
        elif connection is not None:
            self._home.listening.append(connection)


class LoopMailbox:
    """The list at which all waiting tasks of a loop are woken, on one connection."""

    def __init__(self, session: Session, beside: str, loop: asyncio.AbstractEventLoop) -> None:
        self.key = f"{beside.rpartition(':')[0]}:mail:{secrets.token_hex(8)}"
        self._limit = session.limit
        self._loop = loop
        self._pipe = Pipe(session, loop, listens=True)
        # By token: is done when there is mail, or with the error of the connection for that.
        self._woken: dict[str, asyncio.Future[Exception | None]] = {}
        self._under_way = 0

    def expect(self, token: str) -> None:
        """Take in the mail of ``token`` from now on, also while it does not sleep."""
        self._woken[token] = self._loop.create_future()

    def close(self, token: str) -> None:
        """Take it in no longer."""
        self._woken.pop(token, None)

    async def wait(self, token: str, seconds: float, request: Request | None = None) -> None:
        """Sleep until ``token`` was woken, or for so many ``seconds``. Raises what redis-py raises.

        Where the connection breaks, the sleep ends.
        """
        woken = self._woken[token]
        if not woken.done() and self._under_way < _LISTENING:
            self._listen(await self._pipe.open(clock.now() + self._limit))
        timer = self._loop.call_later(max(seconds, 0.001), _end, woken)
        try:
            error = await woken
        finally:
            timer.cancel()
        self.expect(token)
        if error is not None:
            raise redis_exceptions.ConnectionError(str(error))

    def _listen(self, line: Line) -> None:
        # One after the other.
        longest = _LISTENS_FOR * _LISTENING + self._limit
        while self._under_way < (_LISTENING if line.is_real else 1):
            (answer,) = line.send((pack("BRPOP", self.key, str(_LISTENS_FOR)),), longest)
            self._under_way += 1
            # It ends with the session, whatever is under way.
            answer.add_done_callback(partial(_pass_on, ref(self), line))

    def read_mail(self, line: Line, mail: Any) -> None:
        """Wake whom the answer of a BRPOP on ``line`` is for."""
        if isinstance(mail, Exception):
            # All ask, and find out what there is: the mail that is lost may have been for any.
            line.close()
            for woken in self._woken.values():
                _end(woken, mail)
            return
        if mail is not None and text(mail[1]) in self._woken:
            _end(self._woken[text(mail[1])])
        if self._woken and line.is_open:
            self._listen(line)


def _pass_on(reference: ref[LoopMailbox], line: Line, answer: asyncio.Future[Any]) -> None:
    mailbox = reference()
    if mailbox is not None:
        mailbox._under_way -= 1
        if not answer.cancelled():
            mailbox.read_mail(line, answer.result())


def _end(woken: asyncio.Future[Exception | None], error: Exception | None = None) -> None:
    if not woken.done():
        woken.set_result(error)


def mailbox_of(session: Session, beside: str) -> LoopMailbox:
    """Return the mailbox of the running event loop at ``session``; made first, beside that key."""
    found: LoopMailbox = of_loop(session.mailboxes, partial(LoopMailbox, session, beside))
    return found
