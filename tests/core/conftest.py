from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import Inspector, clock
from django_setnx_lock.core.locks.mailbox import Mailbox
from django_setnx_lock.core.renewal import watchdog
from tests.core.helpers import PREFIX, FakeTime
from tests.core.queueing import CLAIM
from tests.core.watching import FakeLine, IdleWatchdog, Wire, held_for
from tests.support.seams import mutate

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle


@pytest.fixture
def inspector(redis_client: redis.Redis) -> Inspector:
    """Give an inspector of the locks that begin with ``lock:``."""
    return Inspector(redis_client, PREFIX)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Give a clock in the place of the local one, and of all sleep."""
    fake = FakeTime()
    monkeypatch.setattr(clock, "now", lambda: fake.now)
    monkeypatch.setattr(time, "sleep", fake.sleep)

    async def sleep(_mailbox: Mailbox, _token: str, seconds: float) -> None:
        fake.sleep(seconds)

    monkeypatch.setattr(Mailbox, "sleep", sleep)
    return fake


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is left to a waiter wait for it, however long the machine does something else."""
    plain = ("ACQUIRE", "RELEASE", "CANCEL", "LOOK", "RENEW", "FORCE")
    shared = (f"SHARED_{name}" for name in plain)
    for script in (*plain, "ACQUIRE_ALL", *shared):
        mutate(monkeypatch, script, "local CLAIM = 1000 ", f"local CLAIM = {CLAIM} ")


@pytest.fixture
def wire() -> Wire:
    """Give a server that answers as the test says."""
    return Wire()


@pytest.fixture
def dog(fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> IdleWatchdog:
    """Give the watchdog of all handles, which works when it is told to."""
    dog = IdleWatchdog(FakeLine)
    monkeypatch.setattr(watchdog, "WATCHDOG", dog)
    return dog


@pytest.fixture
def watch(dog: IdleWatchdog, wire: Wire, fake_time: FakeTime) -> Callable[..., LockHandle]:
    """Give what takes a lock now and has it renewed; somebody refers to it all the time."""
    kept: list[LockHandle] = []

    def watch(name: str = "lock:a", client: Any = None, **options: Any) -> LockHandle:
        held = held_for(client or wire.client, fake_time.now, name, **options)
        dog.watch(held.grant)
        kept.append(held)
        return held

    return watch
