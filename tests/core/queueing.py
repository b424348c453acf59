"""Callers at one lock, each asking when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import protocol
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lock import RedisLock
from django_setnx_lock.core.waiting import Mailbox

if TYPE_CHECKING:
    from django_setnx_lock.core.turn import Turn
    from tests.servers import RealServer

# How long a lock that was left to a waiter waits for it in these tests, in ms.
CLAIM = 10_000
# A mailbox, the token it is for, and its key in Redis.
Box = tuple[Mailbox, str, str]


def caller(client: Any, lease: float = 30, **options: Any) -> Turn:
    """Return an attempt at ``lock:a`` that has asked for nothing yet."""
    return RedisLock(client, "lock:a", lease, **options).turn()


def holder(client: Any, lease: float = 30, **options: Any) -> Held:
    return RedisLock(client, "lock:a", lease, **options).take(0)


def waiters(client: Any, count: int, lease: float = 30) -> list[Turn]:
    """Return attempts that have queued up, in this order."""
    queued = [caller(client, lease) for _ in range(count)]
    for turn in queued:
        assert isinstance(turn.ask(waits=True), protocol.Busy)
    return queued


def left_to_the_first(client: Any, count: int) -> list[Turn]:
    """Have a lock left to the first of ``count`` waiters, which does not come."""
    held = holder(client)
    queued = waiters(client, count)
    held.release()
    return queued


def claim(turn: Turn) -> Held:
    """Ask, and be granted."""
    answer = turn.ask(waits=True)
    assert isinstance(answer, Held), answer
    return answer


def is_busy(turn: Turn, *, waits: bool = True) -> bool:
    return isinstance(turn.ask(waits=waits), protocol.Busy)


def is_woken(turn: Turn) -> bool:
    """Tell whether there is something in the mailbox of ``turn``."""
    return bool(turn.target.client.exists(turn.target.keys.wake(turn.token)))


def open_mail(turn: Turn) -> None:
    """Empty the mailbox, as a waiter does that is there."""
    assert turn.target.client.lpop(turn.target.keys.wake(turn.token))


def baton_of(turn: Turn) -> str:
    """Return what stands at the name while the lock is left to ``turn``."""
    return f"baton:{turn.token}"


def handed_on(turn: Turn, request: protocol.Request) -> str | None:
    """Send ``request``; return the token of whom the sender is to look after."""
    return protocol.read_handed_on(turn.target.call(request))


def looked(turn: Turn) -> str | None:
    """Look after ``turn``, as whoever handed the lock on does a little later."""
    return handed_on(turn, protocol.look(turn.target.keys, turn.token))


def mailbox_of(client: Any) -> Box:
    turn = caller(client)
    return Mailbox(turn.target), turn.token, turn.target.keys.wake(turn.token)


def listeners(server: RealServer) -> int:
    """Return how many sleep there, waiting to be woken."""
    clients: Any = server.client().client_list()
    return sum("b" in one["flags"] for one in clients)
