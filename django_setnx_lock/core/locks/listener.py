"""Where the waiting tasks of an event loop are woken, on one connection.

Each waits for its own token. The scripts put the tokens that are to be woken into one mailbox that
they share, from which they are fetched one by one, whoever of them came or went meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from redis.exceptions import TimeoutError as RedisTimeoutError

from .. import clock
from ..connections.endpoints import Target
from ..connections.pool import PerLoop, loop_state
from ..connections.sentinel import EVERY, follow_in_loop, leads_elsewhere, primary_of
from ..protocol.commands import CLAIM_MS
from ..protocol.keys import mailbox_beside
from ..protocol.replies import text

# The server ends a fetch after so many seconds: what is idle for longer is cut by some proxies.
_FETCH_FOR = 25.0
# By how much the answer to that may be late.
_LATE = 5.0


class Listener:
    """Listens at one server for several tasks, while any of them waits.

    ``box``: the mailbox in Redis. ``cuts``: how often mail may have been lost on its way. A waiter
    that was asking then has to ask again, in the place of waiting.
    """

    def __init__(self, box: str) -> None:
        self.box = box
        self.cuts = 0
        # What wakes each, by token: with the error that it meets, or None.
        self._waiters: dict[str, asyncio.Future[Exception | None]] = {}
        # Tokens that were woken while their callers were asking, and when: as long as mail lasts.
        self._early: dict[str, float] = {}
        # What fetches, what tells it from those before, and the pool of the client it does so by.
        self._fetching: Any = None
        self._turn: object = None
        self._pool: Any = None

    async def wait(self, client: Any, token: str, seconds: float) -> None:
        """Return when ``token`` was woken, or after ``seconds``. Raises what redis-py raises.

        ``client``: of the server to listen at.
        """
        early = self._early.pop(token, None)
        if early is not None and not _is_stale(early):
            return
        if self._turn is not None and client.connection_pool is not self._pool:
            # The node of a cluster that has the lock now; the others hear of it so.
            self._fetching.cancel()
            self._cut_off(None, self._turn)
            return
        loop = asyncio.get_running_loop()
        if self._turn is None or self._fetching.done():
            self._turn, self._pool = object(), client.connection_pool
            self._fetching = loop.create_task(self._fetch(client, self._turn))
        woken = self._waiters[token] = loop.create_future()
        end = loop.call_later(seconds, _wake, woken, None)
        try:
            error = await woken
        finally:
            end.cancel()
            if self._waiters.get(token) is woken:
                del self._waiters[token]
            if not self._waiters and self._turn is not None and self._fetching.cancel():
                self.cuts += 1
                self._turn = None
        if error is not None:
            raise error

    async def _fetch(self, client: Any, turn: object) -> None:
        """Fetch mail for as long as anybody waits and it is its ``turn``."""
        idle = loop_state().waiting
        connection = idle.checkout(client)
        try:
            while self._goes_on(turn):
                token = await self._fetch_one(client, connection)
                if token is not None:
                    self.wake(token)
                await follow_in_loop(client)
                if leads_elsewhere(client, connection):
                    # Who waits may not be known to the server that is the primary now.
                    connection.close()
                    self._cut_off(None, turn)
                    return
            idle.checkin(client, connection)
        except Exception as error:  # noqa: BLE001 - those who wait raise it
            connection.close()
            idle.forget(client)
            self._cut_off(error.with_traceback(None), turn)
        except BaseException:
            # Cancelled, perhaps by somebody who cancels whatever tasks there are.
            connection.close()
            self._cut_off(None, turn)
            raise

    def _goes_on(self, turn: object) -> bool:
        if self._turn is turn and not self._waiters:
            self._turn = None
        return self._turn is turn

    async def _fetch_one(self, client: Any, connection: Any) -> str | None:
        # Sentinels may name another server meanwhile.
        seconds = _FETCH_FOR if primary_of(client) is None else EVERY
        await connection.send(("BZPOPMIN", self.box, f"{seconds:g}"))
        give_up_at = clock.now() + seconds + _LATE
        mail = await connection.read(seconds + _LATE)
        if mail is None and clock.now() >= give_up_at:
            raise RedisTimeoutError("Timeout reading from the server")
        return None if mail is None else text(mail[1])

    def wake(self, token: str) -> None:
        """Have ``token`` ask: now if it sleeps, else as soon as it is about to."""
        woken = self._waiters.pop(token, None)
        if woken is not None:
            _wake(woken, None)
            return
        # Its caller is asking just now, or is no more.
        self._early[token] = clock.now()
        while _is_stale(next(iter(self._early.values()))):
            del self._early[next(iter(self._early))]

    def _cut_off(self, error: Exception | None, turn: object) -> None:
        """Wake all, as what fetched at that ``turn`` has ended; unless another one does by now."""
        if self._turn is not turn:
            return
        self._turn = None
        self.cuts += 1
        waiters, self._waiters = self._waiters, {}
        for woken in waiters.values():
            _wake(woken, error)


def _is_stale(since: float) -> bool:
    """Return whether mail of then would have gone from Redis, too."""
    return clock.now() - since >= CLAIM_MS / 1000


def _wake(woken: asyncio.Future[Exception | None], error: Exception | None) -> None:
    if not woken.done():
        woken.set_result(error)


# By the server and what they stand beside; each for as long as an attempt is under way.
_Listeners: TypeAlias = WeakValueDictionary[tuple[int, str], Listener]
_of_loops: PerLoop[_Listeners] = PerLoop(lambda _loop: WeakValueDictionary())


def listener_of(target: Target) -> Listener:
    """Return what listens for those that wait for ``target`` in the running event loop.

    For those of all locks that are listed in the same index; else for those of that one lock, as
    no key may be used then that is not beside it.
    """
    # A client lives for as long as the attempts that ask by it.
    pool = id(getattr(target.client, "connection_pool", target.client))
    beside = target.index or target.keys.stem
    listeners = _of_loops()
    found = listeners.get((pool, beside))
    if found is None:
        found = listeners[pool, beside] = Listener(mailbox_beside(beside))
    return found
