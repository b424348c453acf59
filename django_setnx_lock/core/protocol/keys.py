"""The names of a lock's keys in Redis."""

from __future__ import annotations

import hashlib
import re

MAX_NAME_BYTES = 256
_KEPT_BYTES = 190
# Redis hashes what stands between the first "{" and the first "}" after it, if anything does.
_HASH_TAG = re.compile(r"\A[^{]*\{([^}]+)\}")
_SHORTENED = re.compile(r"~[0-9a-f]{64}\Z")
# The form of the keys beside a lock; a lock with such a name could be the key of another.
_COMPANION = re.compile(
    r"\{.*:(meta|waiters|waiting|alive|shares|holders|gone|forced|index|history"
    r"|(gone|wake|waits|mail|process):.*)\Z",
    re.DOTALL,
)


def meta_key(name: str) -> str:
    """Return the key of what is known of the lock ``name`` of Redis; others have its beginning.

    It is a string: the last fence, the value it was given to, the holder record. All keys of a lock
    are in one cluster slot.

    Raises ValueError for a name that is empty, cannot be encoded, looks like a key that
    belongs to another lock, or whose braces form no hash tag, as its keys could not share
    one cluster slot; TypeError when it is no string.
    """
    if not isinstance(name, str):
        raise TypeError(f"a lock's name is a str, not {type(name).__name__}")
    # That of an enum member is its value, whatever format() makes of it.
    name = str.__str__(name)
    if not name:
        raise ValueError("a lock's name must not be empty")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the lock name {name!r} has surrogates, which stand for bytes that are not UTF-8"
        ) from None
    if "{" not in name and "}" not in name:
        return f"{{{name}}}:meta"
    if _COMPANION.match(name):
        raise ValueError(f"the lock name {name!r} is like that of a key beside another lock")
    tag = _HASH_TAG.match(name)
    if tag:
        return f"{{{tag[1]}}}:{name}:meta"
    if "}" in name:
        raise ValueError(
            f"the braces in the lock name {name!r} form no hash tag; "
            'write "{tag}" with something between the braces, or leave them out'
        )
    return f"{{{name}}}:meta"


def name_for(prefix: str, key: str) -> str:
    """Return the name in Redis of the lock that a caller calls ``key``.

    A name of more than 256 bytes, or one that looks shortened already, keeps its beginning
    and ends in ``~`` and a SHA-256 of the whole. Raises TypeError when ``key`` is no string,
    ValueError when it is empty, or so long that the cut would fall into its hash tag.
    """
    if not isinstance(key, str):
        raise TypeError(
            f"a lock's key is a str, not {type(key).__name__}: write for example f'order:{{pk}}'"
        )
    if not key:
        raise ValueError("a lock's key must not be empty")
    name = prefix + key
    raw = name.encode("utf-8", "surrogatepass")
    # A name that looks shortened is shortened too, or it could equal one that really was.
    if len(raw) <= MAX_NAME_BYTES and not ("~" in name and _SHORTENED.search(name)):
        return name
    short = raw[:_KEPT_BYTES].decode("utf-8", "ignore") + "~" + hashlib.sha256(raw).hexdigest()
    if hash_tag(short) != hash_tag(name):
        raise ValueError(f"the hash tag of the lock key {key[:40]!r}... is too long")
    return short


def hash_tag(name: str) -> str:
    """Return the part of ``name`` between its first pair of braces, or an empty string."""
    tag = _HASH_TAG.match(name)
    return tag[1] if tag else ""


def index_for(prefix: str) -> str:
    """Return the key of all names held under ``prefix``; no lock can have that name."""
    return f"{{{prefix}}}:index"


def history_for(prefix: str) -> str:
    """Return the key of the history of the locks under ``prefix``, a list."""
    return f"{{{prefix}}}:history"
