"""Requests that the network keeps back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock.core import protocol, scripts
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lock import RedisLock
from tests.core.helpers import send_sha

if TYPE_CHECKING:
    from django_setnx_lock.core.turn import Turn
    from tests.faults.proxy import Proxy


def load(client: redis.Redis) -> None:
    for script in (scripts.ACQUIRE, scripts.RELEASE, scripts.LEAVE, scripts.RENEW):
        client.script_load(script.source)


def keep_back(proxy: Proxy, request: protocol.Request) -> None:
    """Send ``request`` and let the network keep it."""
    impatient = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.1)
    proxy.hold(request.script.sha.encode())
    with pytest.raises(redis.exceptions.TimeoutError):
        send_sha(impatient, request)
    assert proxy.holds.wait(10)


def kept_back_then_granted(proxy: Proxy, direct: redis.Redis) -> tuple[Turn, Held]:
    """Take the lock with a second copy of a request whose first is kept back."""
    turn = RedisLock(direct, "lock:a").turn()
    keep_back(proxy, turn.request(waits=False))
    held = turn.ask(waits=False)
    assert isinstance(held, Held)
    return turn, held
