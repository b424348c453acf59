"""So much of Redis as the scripts of a lock ask for, for one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The time of every moment: what is kept is relative to it.
NOW_MS = 1_700_000_000_000
NOW_US = NOW_MS * 1000 + 900

Content = str | dict[str, Any] | int


class Keyspace:
    """Keys with their content and what is left of their life in ms, None: without end.

    A string is a str, a hash or a sorted set a dict, a list only its length.
    """

    def __init__(self, keys: dict[str, tuple[Content, int | None]], now_us: int = NOW_US) -> None:
        self.keys = keys
        self.now_us = now_us

    def call(self, name: str, *args: Any) -> Any:
        command: Callable[..., Any] = getattr(self, name.lower())
        return command(*map(as_text, args))

    def time(self) -> list[str]:
        return [str(self.now_us // 1_000_000), str(self.now_us % 1_000_000)]

    def exists(self, *keys: str) -> int:
        return sum(key in self.keys for key in keys)

    def delete(self, *keys: str) -> int:
        return sum(self.keys.pop(key, None) is not None for key in keys)

    def get(self, key: str) -> Any:
        found = self.keys.get(key)
        return found[0] if found else False

    def set(self, key: str, value: str, *options: str) -> Any:
        if "NX" in options and key in self.keys:
            return False
        life = int(options[options.index("PX") + 1]) if "PX" in options else None
        if "KEEPTTL" in options:
            life = self._life(key)
        self.keys[key] = (value, life)
        return {"ok": "OK"}

    def pttl(self, key: str) -> int:
        if key not in self.keys:
            return -2
        life = self._life(key)
        return -1 if life is None else life

    def pexpire(self, key: str, life: str) -> int:
        if key not in self.keys:
            return 0
        self.keys[key] = (self.keys[key][0], int(life))
        if int(life) <= 0:
            del self.keys[key]
        return 1

    def pexpireat(self, key: str, end: str) -> int:
        return self.pexpire(key, str(int(end) - NOW_MS))

    def lpush(self, key: str, _: str) -> int:
        length = int(self.get(key) or 0) + 1
        self.keys[key] = (length, self._life(key))
        return length

    def hget(self, key: str, name: str) -> Any:
        return self._read(key).get(name, False)

    def hset(self, key: str, *pairs: str) -> int:
        return sum(
            self._put(key, name, value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)
        )

    def hdel(self, key: str, *names: str) -> int:
        return self._remove(key, *names)

    def zadd(self, key: str, score: str, name: str) -> int:
        return self._put(key, name, int(score))

    def zrem(self, key: str, *names: str) -> int:
        return self._remove(key, *names)

    def zcard(self, key: str) -> int:
        return len(self._read(key))

    def zscore(self, key: str, name: str) -> Any:
        score = self._read(key).get(name)
        return False if score is None else str(score)

    def zrange(self, key: str, first: str, last: str, *scores: str) -> list[str]:
        names = self._sorted(key)
        found = names[int(first) :] if last == "-1" else names[int(first) : int(last) + 1]
        if not scores:
            return found
        return [part for name in found for part in (name, str(self._read(key)[name]))]

    def zrangebyscore(self, key: str, least: str, most: str) -> list[str]:
        values = self._read(key)
        # As the scripts ask: all up to a score, or all above one.
        above = int(least[1:]) if least.startswith("(") else -1
        upto = values[max(values, key=values.__getitem__)] if most == "+inf" and values else most
        return [name for name in self._sorted(key) if above < values[name] <= int(upto)]

    def _sorted(self, key: str) -> list[str]:
        values = self._read(key)
        return sorted(values, key=lambda name: (values[name], name))

    def _life(self, key: str) -> int | None:
        return self.keys[key][1] if key in self.keys else None

    def _read(self, key: str) -> dict[str, Any]:
        found = self.keys.get(key)
        return found[0] if found and isinstance(found[0], dict) else {}

    def _put(self, key: str, name: str, value: Any) -> int:
        values = self._read(key)
        self.keys[key] = ({**values, name: value}, self._life(key))
        return name not in values

    def _remove(self, key: str, *names: str) -> int:
        values = self._read(key)
        left = {name: value for name, value in values.items() if name not in names}
        if not left:
            self.keys.pop(key, None)
        else:
            self.keys[key] = (left, self._life(key))
        return len(values) - len(left)


# "del" cannot be the name of a method.
setattr(Keyspace, "del", Keyspace.delete)


def as_text(value: Any) -> str:
    """As Redis has what a script calls it with."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else repr(value)
