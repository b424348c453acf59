"""The history of holds as it stands in Redis."""

from __future__ import annotations

import json
from typing import Any

from django.core.cache import caches

from tests.processes import eventually

KEY = "{lock:}:history"
HOLDER = json.dumps({"host": "web1", "pid": 7, "user": "ann", "label": "import"})


def client(using: str = "default") -> Any:
    """Return the redis-py client of the cache."""
    return caches[using].client.get_client(write=True)  # type: ignore[attr-defined]  # django-redis's


def note(key: str, end: str = "released", using: str = "default", **about: Any) -> None:
    """Have an entry stand in the history, as holders write it."""
    entry = {"at": 1_700_000_000 + client(using).llen(KEY), "key": key, "end": end}
    about = {"held_for": 90.0, "holder": HOLDER, **about}
    client(using).lpush(KEY, json.dumps({**entry, **about}))


def noted(count: int) -> None:
    """Wait until the history has so many entries."""
    eventually(lambda: client().llen(KEY) >= count)
