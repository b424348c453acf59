"""Spare lines, kept for the next who waits."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

from .line import Line

_SPARE_AT_MOST = 16
_CONNECT_WITHIN = 5.0

_spare: WeakKeyDictionary[Any, list[tuple[int, Line]]] = WeakKeyDictionary()


def borrow(client: Any) -> Line:
    """A line to the server of ``client``: a spare one, or else one that is not connected yet."""
    spare = _spare.get(client.connection_pool, [])
    while spare:
        pid, line = spare.pop()
        if pid == os.getpid():
            return line
    options = client.connection_pool.connection_kwargs
    limits = (options.get("socket_connect_timeout"), options.get("socket_timeout"))
    return Line(client, connect_timeout=next(filter(None, limits), _CONNECT_WITHIN))


def give_back(client: Any, line: Line) -> None:
    """Keep ``line``, which has no reply outstanding, for the next who asks for one."""
    spare = _spare.setdefault(client.connection_pool, [])
    if len(spare) < _SPARE_AT_MOST:
        spare.append((os.getpid(), line))
    else:
        line.drop()
