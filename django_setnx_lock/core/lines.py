"""Spare lines: those of one process to each server, kept for the next who needs one."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

from .line import Line

_SPARE_AT_MOST = 16


class Lines:
    """Lines that are alike, by the connection pool whose settings they have.

    ``connect_timeout``: as in :class:`Line`, for those whose client sets none itself.
    """

    def __init__(self, *, connect_timeout: float | None = None) -> None:
        self._connect_timeout = connect_timeout
        self._spare: WeakKeyDictionary[Any, list[tuple[int, Line]]] = WeakKeyDictionary()

    def borrow(self, client: Any) -> Line:
        """A line to the server of ``client``: a spare one, or one that is not connected yet."""
        pool = client.connection_pool
        spare = self._spare.get(pool)
        while spare:
            # Another thread may take the last one meanwhile.
            try:
                pid, line = spare.pop()
            except IndexError:
                break
            if pid == os.getpid():
                return line
        if self._connect_timeout is None:
            return Line(client)
        options = pool.connection_kwargs
        limits = (options.get("socket_connect_timeout"), options.get("socket_timeout"))
        return Line(client, connect_timeout=next(filter(None, limits), self._connect_timeout))

    def forget(self, client: Any) -> None:
        """Keep no spare line to the server of ``client``: one has failed, so all may be dead."""
        self._spare.pop(client.connection_pool, None)

    def give_back(self, client: Any, line: Line) -> None:
        """Keep ``line``, which has no reply outstanding, for the next who asks for one."""
        spare = self._spare.get(client.connection_pool)
        if spare is None:
            spare = self._spare.setdefault(client.connection_pool, [])
        if len(spare) < _SPARE_AT_MOST:
            spare.append((os.getpid(), line))
        else:
            line.drop()
