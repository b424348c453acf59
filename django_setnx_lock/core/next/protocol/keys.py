"""The names of a lock's keys in Redis."""

from __future__ import annotations

from functools import lru_cache

from ...protocol.keys import lock_keys


@lru_cache(maxsize=1024)
def keys_of(name: str, index: str | None) -> tuple[str, ...]:
    """Return name, meta and, unless it is None, ``index``: the KEYS of each script.

    The scripts make the names of the other keys out of that of meta. Raises ValueError and
    TypeError for a name that no lock can have.
    """
    meta = lock_keys(name).meta
    return (name, meta) if index is None else (name, meta, index)
