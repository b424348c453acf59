"""Spare lines: those of one process to each server, kept for the next who needs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from .cluster.asking import kind_of_line
from .errors import LockUnavailable
from .line import Unanswered
from .primitives import kind as kind_now
from .sentinel import leads_elsewhere

_SPARE_AT_MOST = 16
# What one line has met, all to the same server will.
_OF_THE_SERVER = frozenset({"unreachable", "timeout", "readonly"})


class _Line(Protocol):
    @property
    def address(self) -> tuple[str, int] | None: ...

    def drop(self) -> None: ...


_AnyLine = TypeVar("_AnyLine", bound=_Line)


class Lines(Generic[_AnyLine]):
    """Lines that are alike, by the connection pool whose settings they have.

    ``line``: what makes one. ``connect_timeout``: as in :class:`Line`, for those whose client
    sets none itself.
    """

    def __init__(
        self, line: Callable[..., _AnyLine], *, connect_timeout: float | None = None
    ) -> None:
        self._line = line
        self._connect_timeout = connect_timeout
        self._spare: WeakKeyDictionary[Any, list[tuple[object, _AnyLine]]] = WeakKeyDictionary()
        self._is_closed = False
        self.unanswered = Unanswered()

    def borrow(self, client: Any) -> _AnyLine:
        """A line to the server of ``client``: a spare one, or one that is not connected yet."""
        pool = client.connection_pool
        kind = kind_of_line(client, self._line)
        spare = self._spare.get(pool)
        while spare:
            # Another thread may take the last one meanwhile.
            try:
                made, line = spare.pop()
            except IndexError:
                break
            if made == kind_now():
                if not leads_elsewhere(client, line):
                    return line
                line.drop()
        if self._connect_timeout is None:
            return kind(client)  # type: ignore[no-any-return]  # one that is alike
        options = pool.connection_kwargs
        limits = (options.get("socket_connect_timeout"), options.get("socket_timeout"))
        limit = next(filter(None, limits), self._connect_timeout)
        return kind(client, connect_timeout=limit)  # type: ignore[no-any-return]  # as above

    def forget(self, client: Any) -> None:
        """Keep no spare line to the server of ``client``: one has failed, so all may be dead."""
        for made, line in self._spare.pop(client.connection_pool, ()):
            if made == kind_now():
                line.drop()

    def forget_after(self, client: Any, error: BaseException) -> None:
        """Do as :meth:`forget` if ``error``, which a line failed with, says that the server did."""
        if isinstance(error, LockUnavailable) and error.cause in _OF_THE_SERVER:
            self.forget(client)

    def give_back(self, client: Any, line: _AnyLine) -> None:
        """Keep ``line``, which has no reply outstanding, for the next who asks for one."""
        self.unanswered.expire()
        spare = self._spare.get(client.connection_pool)
        if spare is None:
            spare = self._spare.setdefault(client.connection_pool, [])
        if len(spare) < _SPARE_AT_MOST and not self._is_closed:
            spare.append((kind_now(), line))
        else:
            line.drop()

    def close(self) -> None:
        """Close those that are spare, and keep none from now on."""
        self._is_closed = True
        self.unanswered.close()
        spare, self._spare = list(self._spare.values()), WeakKeyDictionary()
        for lines in spare:
            for _, line in lines:
                line.drop()
