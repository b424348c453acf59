"""Requests that the network keeps back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.protocol import commands, scripts
from tests.wire.helpers import ask, send_sha

if TYPE_CHECKING:
    from django_setnx_lock.core.locks.attempt import AcquireAttempt
    from tests.faults.proxy import Proxy


def load(client: redis.Redis) -> None:
    for script in (scripts.ACQUIRE, scripts.RELEASE, scripts.CANCEL, scripts.RENEW):
        client.script_load(script.source)


def keep_back(proxy: Proxy, request: commands.Request) -> None:
    """Send ``request`` and let the network keep it."""
    impatient = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.1)
    proxy.hold(request.script.sha.encode())
    with pytest.raises(redis.exceptions.TimeoutError):
        send_sha(impatient, request)
    assert proxy.holds.wait(10)


def kept_back_then_granted(proxy: Proxy, direct: redis.Redis) -> tuple[AcquireAttempt, LockHandle]:
    """Take the lock with a second copy of a request whose first is kept back."""
    turn = RedisLock(direct, "lock:a").attempt()
    keep_back(proxy, turn.request(waits=False))
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    return turn, held
