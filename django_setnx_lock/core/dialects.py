"""The ways in which a lock can stand in Redis. Each lock has one, chosen when it is made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, Protocol

from . import protocol, scripts
from .dialect_base import DialectBase
from .keys import LockKeys
from .polling import POLLING
from .protocol import Request

PROTOCOLS = ("setnx", "timestamp")
UNITS = ("ms", "s")


class Dialect(Protocol):
    """What to send for each operation. How to read the replies is the same for all.

    The module :mod:`~django_setnx_lock.core.protocol` is one: that of ``setnx``.
    """

    def acquire(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        record: str,
        wait_ms: int,
    ) -> Request: ...
    def release(self, keys: LockKeys, index: str | None, token: str) -> Request: ...
    def leave(self, keys: LockKeys, index: str | None, token: str) -> Request: ...
    def renew(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        how: Literal["replace", "add", "least"],
    ) -> Request: ...
    def check(self, keys: LockKeys, token: str) -> Request: ...
    def force(
        self, keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str
    ) -> Request: ...

    def look(self, keys: LockKeys, head: str, *, is_last: bool = False) -> Request: ...
    def new_token(self) -> str: ...
    def is_shared(self) -> bool: ...

    def locked(self, keys: LockKeys) -> Request | None:
        """What asks whether anybody holds it; None if it is held as long as its name exists."""

    def takes_tokens(self) -> bool:
        """Whether the caller may choose the token."""

    def keeps(self) -> bool:
        """Whether a lock that is let go can be kept from others for a time."""

    def wakes(self) -> bool:
        """Whether who waits has a mailbox, which is looked into."""


@dataclass(frozen=True, slots=True)
class Timestamp(DialectBase):
    """The value at the name is the time, in ``unit``, at which the lock stops being valid.

    The token, which tells whose it is, stands beside it. ``expire``: whether Redis removes the
    value a second after it is over. Nobody is woken: a holder counts as foreign for who waits.
    """

    unit: str = "ms"
    expire: bool = True

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
            scripts.TIMESTAMP_ACQUIRE,
            _keys(keys, token, index),
            (token, str(lease_ms), self.unit, self._vanishes, record, str(wait_ms)),
        )

    def release(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.TIMESTAMP_RELEASE, _keys(keys, token, index), (token,))

    def leave(self, keys: LockKeys, index: str | None, token: str) -> Request:
        return Request(scripts.TIMESTAMP_LEAVE, _keys(keys, token, index), (token,))

    def renew(
        self,
        keys: LockKeys,
        index: str | None,
        token: str,
        lease_ms: int,
        how: Literal["replace", "add", "least"],
    ) -> Request:
        return Request(
            scripts.TIMESTAMP_RENEW,
            _keys(keys, token, index),
            (token, str(lease_ms), protocol.to_lease(how), self._vanishes),
        )

    def check(self, keys: LockKeys, token: str) -> Request:
        return Request(scripts.TIMESTAMP_CHECK, _keys(keys, token, None), (token,))

    def force(
        self, keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str
    ) -> Request:
        return Request(
            scripts.TIMESTAMP_FORCE,
            _keys(keys, seen.decode("utf-8", "backslashreplace"), index),
            (seen, json.dumps({"by": by, "reason": reason}), self.unit),
        )

    def locked(self, keys: LockKeys) -> Request:
        return Request(scripts.TIMESTAMP_LOCKED, (keys.name, keys.meta), (self.unit,))

    def __str__(self) -> str:
        return "protocol='timestamp'"

    @property
    def _vanishes(self) -> str:
        return "1" if self.expire else "0"


def _keys(keys: LockKeys, token: str, index: str | None) -> tuple[str, ...]:
    own = (keys.name, keys.meta, keys.gone(token))
    return own if index is None else (*own, index)


# Made once: locks are made often.
_TIMESTAMPS = {
    (unit, expire): Timestamp(unit, expire) for unit in UNITS for expire in (True, False)
}


def chosen(
    name: object, unit: object = "ms", expire: object = True, polling: object = False
) -> Dialect:
    """The dialect called ``name``, one of ``PROTOCOLS``, for values in ``unit``, one of ``UNITS``.

    ``expire``: as in :class:`Timestamp`. Both are without effect for ``setnx``. ``polling``: that
    of servers which know no mailboxes. Raises ValueError for a name or unit that does not exist
    and for ``polling`` with ``timestamp``, TypeError for ``expire`` or ``polling`` that is no bool.
    """
    if name not in PROTOCOLS:
        raise ValueError(f"protocol is one of {', '.join(map(repr, PROTOCOLS))}, not {name!r}")
    if unit not in UNITS:
        raise ValueError(f"unit is one of {', '.join(map(repr, UNITS))}, not {unit!r}")
    if expire is not True and expire is not False:
        raise TypeError(f"expire is True or False, not {expire!r}")
    if polling is not True and polling is not False:
        raise TypeError(f"polling is True or False, not {polling!r}")
    if polling and name != "setnx":
        raise ValueError("polling is for protocol='setnx': with 'timestamp' nobody is woken anyway")
    if polling:
        return POLLING
    return protocol if name == "setnx" else _TIMESTAMPS[str(unit), expire]
