"""Taking a lock up by what was sent ahead: the server grants it in the moment that it is left.

A waiter sends, in one write with the BLPOP it sleeps in, the request that takes the lock. The
server carries that out as soon as it has woken the waiter, which saves a round trip. As nobody
knows then whether the waiter is still there, it gets the lock for the claim time only; the first
thing it does is to ask for the whole lease, and it need not wait for the answer.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis import exceptions as redis_exceptions
from redis.exceptions import NoScriptError, RedisError, ResponseError

from .. import clock
from ..connections.connection import Connection
from ..connections.pool import IdleConnections
from ..errors import LockLost
from ..protocol import commands, replies
from ..renewal.lease import Lease

_CLAIM = commands.CLAIM_MS / 1000
# After so many seconds a claim is asked for anew: too little of its time would be left.
MAX_CLAIM_AGE = _CLAIM / 2
# When the watchdog asks again if the answer has not come.
_RENEW_AFTER = _CLAIM / 4
# How long the rest of an answer that has begun to come is waited for.
_AT_ONCE = 0.001


@dataclass(slots=True)
class PipelinedClaim:
    """The lock was taken for the claim time, by what was sent ahead at ``sent``.

    ``connection``: what that was sent on, of ``connections``, to be given back or dropped.
    ``whole`` asks for the whole lease; ``packed`` is the same as it goes over the wire.
    """

    connections: IdleConnections[Connection]
    client: Any
    fence: int
    sent: float
    connection: Connection
    whole: commands.Request
    packed: bytes

    def give_back(self) -> None:
        """Keep the connection, which nothing is outstanding on, for the next who waits."""
        self.connections.checkin(self.client, self.connection)


class ProvisionalLease(Lease):
    """The lease of a lock that was taken up for the claim time, by ``claim``.

    It asks for the whole one at once, on the claim's connection, and has it when the answer was
    read: by whoever asks for the end, if it has come by then.
    """

    _claim: PipelinedClaim | None = None
    _is_reading = False
    # Whether somebody was told that it is over: no answer may change that.
    _was_over = False

    def __init__(self, seconds: float, claim: PipelinedClaim) -> None:
        super().__init__(seconds, claim.sent + _CLAIM)
        self._pid = os.getpid()
        self._claim = claim
        # Held by who reads the answer, perhaps for as long as the claim runs: others go on, the
        # renewal of all locks among them.
        self._reading = threading.RLock()
        self._send(claim, claim.packed)

    @property
    def end(self) -> float:
        """Until when it is ours."""
        if self._claim is not None and not self._read(clock.now()):
            with self._changing:
                self._was_over = self._was_over or clock.now() >= self._end
        return self._end

    @end.setter
    def end(self, end: float) -> None:
        self._end = end

    @property
    def latest_end(self) -> float:
        """Do as :class:`Lease` does: the whole lease, where the answer may grant it."""
        return self._end if self._claim is None else self._asked_at + self.seconds

    def is_over(self, now: float) -> bool:
        """Do as :class:`Lease` does. Reads nothing as long as the claim runs."""
        return now >= self._end and now >= self.end

    def settle(self) -> None:
        """Do as :class:`Lease` does. Waits for the answer as long as the claim runs."""
        claim = self._claim
        if claim is not None:
            self._read(claim.sent + _CLAIM)

    def close(self) -> None:
        """Do as :class:`Lease` does."""
        if self._claim is not None and self._read(clock.now()):
            self._drop()

    def _read(self, until: float) -> bool:
        """Take note of the answer if it comes by ``until``; say whether nobody else is reading."""
        if self._pid != os.getpid():
            # After a fork the connection is the parent's.
            return True
        if not self._reading.acquire(timeout=max(until - clock.now(), 0.0)):
            return False
        try:
            # A handler of a signal may come here in the midst of it.
            if self._is_reading:
                return False
            self._is_reading = True
            try:
                if self._claim is not None:
                    self._read_from(self._claim, until)
            finally:
                self._is_reading = False
            return True
        finally:
            self._reading.release()

    def _read_from(self, claim: PipelinedClaim, until: float) -> None:
        try:
            if claim.connection.wait(max(until - clock.now(), 0.0)):
                with claim.connection.within(_AT_ONCE):
                    reply = claim.connection.read()
                self._take_note(claim, reply)
            elif clock.now() >= self._end:
                # Somebody is about to be told that it is over: no answer may change that.
                self._drop()
        except redis_exceptions.TimeoutError:
            # Only the beginning has come.
            return
        except NoScriptError:
            whole = claim.whole
            self._send(
                claim, claim.connection.pack(("EVAL", whole.script.source, *whole.arguments))
            )
        except ResponseError:
            self._take_note(claim, None)
        except RedisError:
            self._drop()

    def _take_note(self, claim: PipelinedClaim, reply: Any) -> None:
        # The renewal, which is due soon, finds out about a loss or an error.
        self._claim = None
        claim.give_back()
        with suppress(LockLost):
            if reply is not None:
                left = replies.read_kept(reply, "")[1]
                with self._changing:
                    if self._was_over:
                        return
                    self.confirm(self._asked_at, int(left) / 1000, 0)
                self.plan(self._asked_at)

    def _send(self, claim: PipelinedClaim, packed: bytes) -> None:
        self._asked_at = self.due = clock.now()
        try:
            claim.connection.send_packed(packed)
        except RedisError:
            # A renewal is due.
            self._drop()
        else:
            self.due += _RENEW_AFTER

    def _drop(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None and self._pid == os.getpid():
            claim.connection.close()
