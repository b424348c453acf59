"""A caller that is interrupted anywhere while it waits leaves neither lock nor queue behind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy
from django_setnx_lock.core import RedisLock
from tests.faults.points import Points
from tests.support.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Server

    Story = Callable[[Server, Points, pytest.MonkeyPatch], None]

REAL = pytest.mark.real


def take_if_not_interrupted(
    server: Server,
    points: Points,
    monkeypatch: pytest.MonkeyPatch,
    blocking_timeout: float | None = None,
) -> None:
    """Take the lock, with connections of its own, and release it."""
    client = server.client()
    with monkeypatch.context() as patched:
        points.watch(client, patched)
        try:
            held = RedisLock(client, "lock:a").take(blocking_timeout)
        except KeyboardInterrupt:
            return
    held.release()


def handed_the_lock_when(step: str) -> Story:
    """Return the story of a caller that waits and is left the lock at ``step``.

    Another one waits behind it, who must be able to have the lock in the end.
    """

    def story(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
        other = server.client()
        held = RedisLock(other, "lock:a").take(0)
        behind: list[Waiter] = []

        def meanwhile() -> None:
            if not behind:
                behind.append(Waiter(RedisLock(other, "lock:a"), other))
                held.release()

        points.meanwhile(f"before {step}", meanwhile)
        take_if_not_interrupted(server, points, monkeypatch)
        meanwhile()
        behind[0].held().release()
        assert not other.exists("lock:a", "{lock:a}:waiters", "{lock:a}:alive", "{lock:a}:waiting")

    return story


def waits_in_vain(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller waits for a little while, behind one who goes on."""
    other = server.client()
    held = RedisLock(other, "lock:a").take(0)
    # Whole, it is not over before it sleeps, on a busy machine either.
    limit = 0.02 if points.interrupts else 1.0
    with contextlib.suppress(LockBusy):
        take_if_not_interrupted(server, points, monkeypatch, blocking_timeout=limit)
    held.release()
    assert not other.exists("lock:a", "{lock:a}:waiters", "{lock:a}:alive", "{lock:a}:waiting")


STORIES = {
    "handed the lock before it sleeps": handed_the_lock_when("sleep"),
    "waits in vain": waits_in_vain,
}


def tell(server: Server, story: Story, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tell the story to its end, and then interrupted at every point; return the points."""
    whole = Points()
    server.flush()
    story(server, whole, monkeypatch)
    for at in range(1, len(whole.passed) + 1):
        server.flush()
        story(server, Points(at), monkeypatch)
    return whole.passed


@pytest.mark.parametrize("story", STORIES)
def test_a_waiter_interrupted_anywhere_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, story: str
) -> None:
    passed = tell(server, STORIES[story], monkeypatch)

    assert {"after connect", "before sleep", "after read_response"} < set(passed)


# The fake one sleeps while it sends.
@REAL
def test_a_waiter_interrupted_anywhere_as_it_sleeps_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = tell(server, handed_the_lock_when("can_read"), monkeypatch)

    assert "before can_read" in passed
