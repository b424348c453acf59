from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, clock
from django_setnx_lock.core.locks.mailbox import Mailbox
from tests.support.locks import PREFIX
from tests.support.seams import mutate
from tests.wire.helpers import FakeTime
from tests.wire.queueing import CLAIM

if TYPE_CHECKING:
    import redis


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
