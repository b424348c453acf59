"""What the tests of the timestamp protocol share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.protocol.keys import index_for
from tests.support.locks import PREFIX
from tests.support.seams import mutate

if TYPE_CHECKING:
    import pytest

    from django_setnx_lock.core.locks.attempt import AcquireAttempt

SCRIPTS = ("ACQUIRE", "RELEASE", "CANCEL", "RENEW", "CHECK", "LOCKED", "FORCE")
UNITS = {"s": 1_000_000, "ms": 1_000}
# A whole second, in microseconds, that is yet to come: Redis is to remove nothing by itself.
T = 1_900_000_000_000_000


def timed(client: Any, unit: str = "ms", timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` whose value is a time, listed in the index."""
    options = {"index": index_for(PREFIX), "key": "a", **options}
    return RedisLock(client, "lock:a", timeout, protocol=f"timestamp-{unit}", **options)


def asking(client: Any, unit: str = "ms", timeout: float = 10, **options: Any) -> AcquireAttempt:
    return timed(client, unit, timeout, **options).attempt()


class ServerClock:
    """The server's clock as the scripts see it, in microseconds: it stands still until set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
        self._client = client
        self.set(T)
        told = "{redis.call('GET', 'test:seconds'), redis.call('GET', 'test:micros')}"
        for script in [*(f"TIMESTAMP_{name}" for name in SCRIPTS), "INSPECT"]:
            assert hasattr(scripts, script)
            mutate(monkeypatch, script, "redis.call('TIME')", told)

    def set(self, micros: int) -> None:
        self._client.set("test:seconds", micros // 1_000_000)
        self._client.set("test:micros", micros % 1_000_000)


def is_over_for_seconds(value: str, micros: int) -> bool:
    """Tell what a client finds that has ``expires > now`` for a held lock, in whole seconds."""
    return not int(value) > micros // 1_000_000


def is_over_for_milliseconds(value: str, micros: int) -> bool:
    """Tell what a client finds that has ``value < now`` for one that is over, in whole ms."""
    return int(value) < micros // 1_000
