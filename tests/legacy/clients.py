"""Clients of the older kind, in which the value at a name is the time until which it is held.

Written from descriptions of such clients in PHP and Java; they share nothing with the package.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

SUFFIX = "_lock"

# Answers 0: taken; 1: it went away meanwhile; 2: held; 3: somebody else was quicker.
TRY = """
local expires, now, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('SETNX', KEYS[1], expires) == 1 then
  redis.call('EXPIRE', KEYS[1], ttl + 1)
  return 0
end
local read = redis.call('GET', KEYS[1])
if not read then
  return 1
end
if tonumber(read) > now then
  return 2
end
if redis.call('GETSET', KEYS[1], expires) == read then
  redis.call('EXPIRE', KEYS[1], ttl + 1)
  return 0
end
return 3
"""


@dataclass
class LegacyClient:
    """What the two kinds share: letting go of what is still their own and not over."""

    client: Any
    name: str
    pause: float = 0.1
    value: str = ""

    @property
    def key(self) -> str:
        return self.name + SUFFIX

    def now(self) -> int:
        """Tell the time in the unit of the values, whole."""
        raise NotImplementedError

    def acquire(self) -> bool:
        raise NotImplementedError

    def release(self) -> None:
        value = self.client.get(self.key)
        if value is not None and value.decode() == self.value and int(self.value) > self.now():
            self.client.delete(self.key)


@dataclass
class SecondsClient(LegacyClient):
    """One Lua script, with the time of the caller, in seconds; at most ``tries`` of it."""

    ttl: int = 10
    tries: int = 40

    def now(self) -> int:
        return int(time.time())

    def acquire(self) -> bool:
        for _ in range(self.tries):
            now = self.now()
            self.value = str(now + self.ttl)
            answer = self.client.eval(TRY, 1, self.key, self.value, now, self.ttl)
            if answer == 0:
                return True
            if answer == 2:
                time.sleep(self.pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load
        return False


@dataclass
class MillisecondsClient(LegacyClient):
    """One command after another, in milliseconds, until ``deadline`` seconds have passed."""

    lease_ms: int = 60_000
    deadline: float = 10

    def now(self) -> int:
        return int(time.time() * 1000)

    def acquire(self) -> bool:
        give_up_at = time.monotonic() + self.deadline
        while time.monotonic() < give_up_at:
            self.value = str(self.now() + self.lease_ms)
            if self.client.setnx(self.key, self.value):
                return True
            read = self.client.get(self.key)
            if read is not None and int(read) < self.now():
                # Strings are compared, as whoever was quicker has put another one there.
                old = self.client.getset(self.key, self.value)
                if old is not None and old == read:
                    return True
            time.sleep(self.pause)
        return False


KINDS: dict[str, Any] = {"s": SecondsClient, "ms": MillisecondsClient}
