from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import clock
from django_setnx_lock.core.inspection import Inspector
from django_setnx_lock.core.waiting import Mailbox
from tests.core.helpers import PREFIX, FakeTime

if TYPE_CHECKING:
    import redis


@pytest.fixture
def inspector(redis_client: redis.Redis) -> Inspector:
    """Give an inspector of the locks that begin with ``lock:``."""
    return Inspector(redis_client, PREFIX)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Give a clock in the place of the local one, and of waiters' sleep."""
    fake = FakeTime()
    monkeypatch.setattr(clock, "now", lambda: fake.now)
    monkeypatch.setattr(Mailbox, "sleep", lambda _mailbox, _token, seconds: fake.sleep(seconds))
    return fake
