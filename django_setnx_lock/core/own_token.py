"""A token that the caller chose, as redis-py's ``acquire(token=...)`` takes.

It may be used again and again, by two callers at once even, so no copy of a request could be told
by it from a request of its own. The lock is therefore taken with a random token as ever, and the
chosen one is put in its place when it is held.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from . import protocol, scripts
from .errors import LockError

if TYPE_CHECKING:
    from .held import Held
    from .keys import LockKeys
    from .turn import Turn

# What stands at a name while the lock is being handed to a waiter, kept after its release, or held
# by several together, begins with one of these.
_RESERVED = ("baton:", "kept:", "readers:", "permits:")


def checked(token: object) -> str:
    """``token``, a str or bytes, as text.

    Raises TypeError when it is neither; ValueError when it is empty, is no UTF-8, or begins with
    ``baton:``, ``kept:``, ``readers:`` or ``permits:``.
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
        raise ValueError(f"a token must not be empty, nor begin with {' or '.join(_RESERVED)}")
    return text


def put(turn: Turn, held: Held, chosen: str) -> None:
    """Have ``held``, which ``turn`` has just been granted, held by the token ``chosen``.

    Raises LockLost and LockUnavailable; then, or when interrupted, the lock is given back.
    """
    target = turn.target
    swap = request(target.keys, turn.token, chosen, held.fence)
    # By the random token, a renewal meanwhile would find the lock lost.
    renews = held.watchdog.forget(held)
    try:
        protocol.read_kept(target.call(swap), target.key)
    except BaseException:
        with suppress(LockError):
            turn.leave()
            # Nothing can be swapped any more: asks whether it was.
            protocol.read_kept(target.call(swap), target.key)
            held.use_token(chosen)
            held.release_now()
        raise
    held.use_token(chosen)
    if renews:
        held.begin_upkeep()


def request(keys: LockKeys, old: str, new: str, fence: int, record: str = "") -> protocol.Request:
    """The request that puts ``new`` in the place of ``old``, and ``record``, if any, beside it."""
    return protocol.Request(
        scripts.SWAP,
        (keys.name, keys.waiters, keys.alive, keys.gone(old), keys.gone(new), keys.meta),
        (old, new, str(fence), record),
    )
