"""The commands of Redis that the scripts use, at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# In ms; every script runs at this moment.
NOW = 2_000_000_000


class Keyspace:
    """``db``: text, list, or dict of a hash or zset by key. ``ends``: when a key ends, in ms."""

    def __init__(self, table: Callable[[Any], Any]) -> None:
        self.table = table
        self.db: dict[str, Any] = {}
        self.ends: dict[str, int] = {}
        # Of the time now. No two scripts run in one µs: later than all that was done in this tick.
        self.micro = 0
        self._commands: dict[str, Callable[..., Any]] = {
            "TIME": self._time,
            "GET": self.db_get,
            "SET": self._set,
            "DEL": lambda *keys: sum(self.drop(key) for key in keys),
            "EXISTS": lambda *keys: sum(key in self.db for key in keys),
            "PTTL": self._pttl,
            "PEXPIRE": self._pexpire,
            "ZADD": self._zadd,
            "ZREM": self._remove,
            "ZSCORE": self._zscore,
            "ZCARD": lambda key: len(self.db.get(key, ())),
            "ZRANGE": self._zrange,
            "ZREVRANGE": lambda key, *at: self._zrange(key, *at, back=True),
            "ZRANGEBYSCORE": self._between,
            "ZREMRANGEBYSCORE": lambda *args: self._remove(args[0], *self._between(*args)),
            "HSET": self._hset,
            "HDEL": self._remove,
            "HGET": lambda key, field: self.db.get(key, {}).get(field),
            "HMGET": lambda key, *fields: [self.db.get(key, {}).get(f) or False for f in fields],
            "LPUSH": self._lpush,
            "LPOS": self._lpos,
        }

    def call(self, name: str, *args: Any) -> Any:
        texts = [
            arg if isinstance(arg, str) else str(int(arg)) if arg == int(arg) else repr(arg)
            for arg in args
        ]
        reply = self._commands[name](*texts)
        if reply is None:
            return False
        return self.table(reply) if isinstance(reply, list) else reply

    def drop(self, key: str) -> bool:
        self.ends.pop(key, None)
        return self.db.pop(key, None) is not None

    def db_get(self, key: str) -> Any:
        return self.db.get(key)

    def _time(self) -> list[str]:
        return [str(NOW // 1000), str(self.micro)]

    def _set(self, key: str, value: str, *options: str) -> Any:
        old = self.db.get(key)
        if "NX" in options and old is not None:
            return None
        self.db[key] = value
        if "PX" in options:
            self.ends[key] = NOW + int(options[options.index("PX") + 1])
        elif "KEEPTTL" not in options:
            self.ends.pop(key, None)
        return old if "GET" in options else self.table({"ok": "OK"})

    def _pttl(self, key: str) -> int:
        return -2 if key not in self.db else self.ends[key] - NOW if key in self.ends else -1

    def _pexpire(self, key: str, ms: str) -> int:
        if key not in self.db:
            return 0
        if int(ms) <= 0:
            self.drop(key)
        else:
            self.ends[key] = NOW + int(ms)
        return 1

    def _zadd(self, key: str, score: str, member: str) -> int:
        self.db.setdefault(key, {})[member] = int(score)
        return 1

    def _hset(self, key: str, field: str, value: str) -> int:
        self.db.setdefault(key, {})[field] = value
        return 1

    def _remove(self, key: str, *members: str) -> int:
        found = self.db.get(key, {})
        count = sum(found.pop(member, None) is not None for member in members)
        if not found:
            self.drop(key)
        return count

    def _zscore(self, key: str, member: str) -> str | None:
        score = self.db.get(key, {}).get(member)
        return None if score is None else str(score)

    def _ordered(self, key: str) -> list[tuple[int, str]]:
        return sorted((score, member) for member, score in self.db.get(key, {}).items())

    def _zrange(
        self, key: str, first: str, last: str, *options: str, back: bool = False
    ) -> list[str]:
        rows, end = self._ordered(key)[:: -1 if back else 1], int(last)
        rows = rows[int(first) : end + 1 if end != -1 else None]
        return [
            x for score, member in rows for x in ((member, str(score)) if options else (member,))
        ]

    def _between(self, key: str, low: str, high: str) -> list[str]:
        return [m for score, m in self._ordered(key) if float(low) <= score <= float(high)]

    def _lpush(self, key: str, value: str) -> int:
        self.db.setdefault(key, []).insert(0, value)
        return len(self.db[key])

    def _lpos(self, key: str, value: str) -> int | None:
        found = self.db.get(key, [])
        return found.index(value) if value in found else None
