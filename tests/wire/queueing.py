"""Callers at one lock, each asking when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.locks.mailbox import BlockingMailbox
from django_setnx_lock.core.protocol import commands, replies
from tests.support.locks import holder
from tests.wire.helpers import ask, called

if TYPE_CHECKING:
    from django_setnx_lock.core.locks.attempt import AcquireAttempt

# How long a lock that was left to a waiter waits for it in these tests, in ms.
CLAIM = 10_000
# A mailbox, the token it is for, and its key in Redis.
Box = tuple[BlockingMailbox, str, str]


def caller(client: Any, lease: float = 30, **options: Any) -> AcquireAttempt:
    """Return an attempt at ``lock:a`` that has asked for nothing yet."""
    return RedisLock(client, "lock:a", lease, **options).attempt()


def waiters(client: Any, count: int, lease: float = 30) -> list[AcquireAttempt]:
    """Return attempts that have queued up, in this order."""
    queued = [caller(client, lease) for _ in range(count)]
    for turn in queued:
        assert isinstance(ask(turn, waits=True), replies.Busy)
    return queued


def left_to_the_first(client: Any, count: int) -> list[AcquireAttempt]:
    """Have a lock left to the first of ``count`` waiters, which does not come."""
    held = holder(client)
    queued = waiters(client, count)
    held.release()
    return queued


def claim(turn: AcquireAttempt) -> LockHandle:
    """Ask, and be granted."""
    answer = ask(turn, waits=True)
    assert isinstance(answer, LockHandle), answer
    return answer


def is_busy(turn: AcquireAttempt, *, waits: bool = True) -> bool:
    return isinstance(ask(turn, waits=waits), replies.Busy)


def is_woken(turn: AcquireAttempt) -> bool:
    """Tell whether there is something in the mailbox of ``turn``."""
    return bool(turn.target.client.exists(turn.target.keys.wake(turn.token)))


def open_mail(turn: AcquireAttempt) -> None:
    """Empty the mailbox, as a waiter does that is there."""
    assert turn.target.client.lpop(turn.target.keys.wake(turn.token))


def baton_of(turn: AcquireAttempt) -> str:
    """Return what stands at the name while the lock is left to ``turn``."""
    return f"baton:{turn.token}"


def handed_on(turn: AcquireAttempt, request: commands.Request) -> str | None:
    """Send ``request``; return the token of whom the sender is to look after."""
    return replies.read_handed_on(called(turn.target, request))


def looked(turn: AcquireAttempt) -> str | None:
    """Look after ``turn``, as whoever handed the lock on does a little later."""
    return handed_on(turn, commands.SETNX.check_handoff(turn.target.keys, turn.token))


def mailbox_of(client: Any) -> Box:
    turn = caller(client)
    return BlockingMailbox(turn.target), turn.token, turn.target.keys.wake(turn.token)
