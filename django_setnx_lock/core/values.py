"""The values of a lock's options and arguments, checked; what was not given."""

from __future__ import annotations

import re
from typing import Final

DEFAULT_TIMEOUT = 30.0
PROTOCOLS = ("setnx", "hosted", "timestamp-s", "timestamp-ms")
_LONGEST = 1e9
# A token is text that others may have written: no more digits than the largest limit has.
_PERMIT = re.compile(rb"permit:(\d{1,7}):")
# Words of the scripts that a token must not begin with.
_RESERVED = ("kept:", "readers:", "permits:", "read:", "permit:")


class Unset:
    """The type of :data:`UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


#: The value of a parameter that was not given, where None has a meaning of its own.
UNSET: Final = Unset()


def checked_replicas(replicas: object) -> int:
    """``replicas`` as a number; 0 for None. Raises ValueError unless it is None or an int >= 0."""
    if replicas is None:
        return 0
    if type(replicas) is not int or replicas < 0:
        raise ValueError(f"replicas is a number of replicas, 0 or more, or None; not {replicas!r}")
    return replicas


def milliseconds(seconds: object, what: str) -> int:
    """``seconds`` in whole milliseconds.

    Raises ValueError unless it is a number from 0.001 to 1e9 (some 31 years).
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what} is a number of seconds, not {seconds!r}")
    if not 0.001 <= seconds <= _LONGEST:
        raise ValueError(
            f"{what} must be at least 0.001 and finite, and at most {_LONGEST:g} seconds, "
            f"not {seconds!r}"
        )
    return int(seconds * 1000)


def least_hold(min_hold: object, max_hold: float | None = None) -> int:
    """``min_hold``, seconds or None, in whole milliseconds; 0 for None.

    Raises ValueError as :func:`milliseconds`, and when it is more than ``max_hold``.
    """
    if min_hold is None:
        return 0
    min_hold_ms = milliseconds(min_hold, "min_hold")
    if max_hold is not None and min_hold_ms > milliseconds(max_hold, "max_hold"):
        raise ValueError(f"min_hold, {min_hold!r}, must not be more than max_hold, {max_hold!r}")
    return min_hold_ms


def waiting_time(seconds: object, what: str = "blocking_timeout") -> float | None:
    """``seconds`` as given. Raises ValueError unless it is None or a number from 0 to 1e9."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what} is a number of seconds or None, not {seconds!r}")
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"{what} must be a finite number >= 0 or None, not {seconds!r}")
    return float(seconds)


def checked_token(token: object) -> str:
    """Return ``token``, a str or bytes, as text.

    Raises TypeError when it is neither; ValueError when it is empty, is no UTF-8, or begins with a
    word that the scripts know.
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


def limit_of(token: bytes) -> int | None:
    """Return how many may hold the lock together, as the holder of the permit ``token`` has it."""
    found = _PERMIT.match(token)
    return int(found[1]) if found else None
