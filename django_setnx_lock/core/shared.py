"""The ways in which several can hold a lock together: readers of one, and permits of a number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from . import protocol, scripts
from .dialect_base import DialectBase
from .keys import LockKeys
from .protocol import Request

if TYPE_CHECKING:
    from .dialects import Dialect

MOST = 1_000_000
_READ = "read:"


@dataclass(frozen=True, slots=True)
class Shared(DialectBase):
    """Held by any number of readers at a time, or by ``limit`` at the most.

    Who holds it alone is an ordinary holder; all of them wait in one queue.
    """

    limit: int | None = None

    def acquire(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        record: str,
        wait_ms: int,
    ) -> Request:
        return Request(
            scripts.SHARED_ACQUIRE,
            _keys(keys, token, index),
            (token, str(lease_ms), record, str(wait_ms)),
        )

    def release(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.SHARED_RELEASE, _keys(keys, token, index), (token,))

    def leave(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.SHARED_LEAVE, _keys(keys, token, index), (token,))

    def renew(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        how: Literal["replace", "add", "least"],
    ) -> Request:
        args = (token, str(lease_ms), protocol.to_lease(how))
        return Request(scripts.SHARED_RENEW, _keys(keys, token, index), args)

    def check(self, keys: LockKeys, token: str) -> Request:
        return Request(scripts.SHARED_CHECK, _keys(keys, token, None), (token,))

    def force(
        self, keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str
    ) -> Request:
        return force(keys, index, [seen], by, reason)

    def look(self, keys: LockKeys, head: str, *, is_last: bool = False) -> Request:
        return Request(scripts.SHARED_LOOK, _keys(keys, head, None), (str(int(is_last)),))

    def locked(self, keys: LockKeys) -> None:
        """Nothing is to be asked: it is held as long as its name exists."""

    def is_shared(self) -> bool:
        return True

    def new_token(self) -> str:
        # Whoever hands the lock on sees by it who is to be let in.
        kind = _READ if self.limit is None else f"permit:{self.limit}:"
        return kind + protocol.new_token()

    def __str__(self) -> str:
        return "shared=True" if self.limit is None else f"limit={self.limit}"


READERS = Shared()


def is_of_reader(token: str) -> bool:
    """Whether ``token`` is that of one who reads."""
    return token.startswith(_READ)


def chosen(
    dialect: Dialect,
    shared: object,
    limit: object,
    *,
    min_hold: float | None = None,
    reentrant: bool | None = None,
) -> Dialect:
    """``dialect``; that of readers if ``shared``; that of so many permits if ``limit`` is a number.

    Raises TypeError for a ``shared`` that is no bool; ValueError for a ``limit`` that is no number
    from 1 to 1,000,000, for both, for either with ``min_hold`` or the protocol ``timestamp``, and
    for a ``limit`` with ``reentrant``.
    """
    if shared is not True and shared is not False:
        raise TypeError(f"shared is True or False, not {shared!r}")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST):
        raise ValueError(f"limit is a number from 1 to {MOST:,} or None, not {limit!r}")
    if not shared and limit is None:
        return dialect
    if shared and limit is not None:
        raise ValueError("shared lets any number in and limit so many: give one of them")
    if min_hold is not None:
        raise ValueError("min_hold is not to be had with shared or limit: hold it for that time")
    if limit is not None and reentrant:
        raise ValueError(
            "reentrant is not to be had with limit: whoever has a permit and takes again gets "
            "another one"
        )
    if dialect is not protocol:
        raise ValueError(f"shared and limit are not to be had with {dialect}: leave them out")
    return READERS if limit is None else Shared(int(limit))


def downgrade(keys: LockKeys, index: str | None, token: str) -> Request:
    """What lets readers join ``token``, which holds the lock alone and is one of them then."""
    return Request(scripts.SHARED_DOWNGRADE, _keys(keys, token, index), (token,))


def force(keys: LockKeys, index: str | None, seen: list[bytes], by: str, reason: str) -> Request:
    """What takes their shares away from the holders of the tokens ``seen``."""
    first = seen[0].decode("utf-8", "backslashreplace")
    return Request(
        scripts.SHARED_FORCE,
        _keys(keys, first, index),
        (json.dumps({"by": by, "reason": reason}), *seen),
    )


def _keys(keys: LockKeys, token: str, index: str | None) -> tuple[str, ...]:
    own = (
        keys.name,
        keys.waiters,
        keys.alive,
        keys.gone(token),
        keys.meta,
        keys.shares,
        keys.holders,
    )
    return own if index is None else (*own, index)
