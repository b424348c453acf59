"""A token that the caller chose, as redis-py's ``acquire(token=...)`` takes.

It may be used again and again, by two callers at once even, so no copy of a request could be told
by it from a request of its own. The lock is therefore taken with a random token as ever, and the
chosen one is put in its place when it is held.
"""

from __future__ import annotations

from contextlib import suppress

from . import protocol, scripts
from .calling import persistently
from .errors import LockError
from .keys import LockKeys
from .target import Target

# What stands at a name while the lock is being handed to a waiter begins with this.
_RESERVED = "baton:"


def checked(token: object) -> str:
    """``token``, a str or bytes, as text.

    Raises TypeError when it is neither; ValueError when it is empty, is no UTF-8, or begins with
    ``baton:``.
    """
    if not isinstance(token, (str, bytes)):
        raise TypeError(f"a token is a str or bytes, not {type(token).__name__}")
    # Without the token itself: it is a secret.
    try:
        text = token.decode() if isinstance(token, bytes) else token
        text.encode()
    except UnicodeError:
        raise ValueError("a token must be UTF-8: for raw bytes give token.hex()") from None
    if not text or text.startswith(_RESERVED):
        raise ValueError(f"a token must not be empty, nor begin with {_RESERVED!r}")
    return text


def put(target: Target, random: str, chosen: str) -> None:
    """Have the lock held by the token ``chosen``; it was taken with ``random``.

    Raises LockLost and LockUnavailable; then, or when interrupted, the lock is given back.
    """
    try:
        reply = target.call(request(target.keys, random, chosen))
        protocol.read_kept(reply, target.key)
    except BaseException:
        with suppress(LockError):
            _give_back(target, random, chosen)
        raise


def request(keys: LockKeys, random: str, chosen: str) -> protocol.Request:
    """The request that puts ``chosen`` in the place of ``random``."""
    return protocol.Request(
        scripts.SWAP,
        (keys.name, keys.meta, keys.gone(random), keys.gone(chosen)),
        (random, chosen, protocol.MEMORY_MS),
    )


def _give_back(target: Target, random: str, chosen: str) -> None:
    keys, client = target.keys, target.client
    target.call(protocol.leave(keys, target.index, random))
    read = persistently(client, lambda: client.hmget(keys.meta, "taken_with"), target.key)
    # Whoever else holds it by the same token took it with another one.
    if protocol.text(read[0]) == random:
        target.call(protocol.release(keys, target.index, chosen))
