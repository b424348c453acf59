"""How an exchange fails, and redis-py's errors as :class:`LockUnavailable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from redis import exceptions as redis_exceptions

from ...connections import failures
from ...errors import LockUnavailable
from ..protocol.requests import AnyRequest

#: What undoes a request, made when it is needed.
Undo: TypeAlias = Callable[[], AnyRequest] | None


class ExchangeFailed(Exception):
    """A request that was not answered, or refused; ``error`` is redis-py's.

    ``in_doubt``: whether it may be carried out yet, and nothing that undoes it was sent behind it.
    ``is_undone``: whether there is nothing to undo, or that was sent behind it.
    """

    def __init__(
        self, error: redis_exceptions.RedisError, *, in_doubt: bool, is_undone: bool
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.in_doubt = in_doubt
        self.is_undone = is_undone


def unavailable(failed: ExchangeFailed, key: str) -> LockUnavailable:
    """Return the error that callers get for what has ``failed`` with the lock ``key``."""
    error = failures.unavailable(failed.error, key)
    error.in_doubt, error.is_undone = failed.in_doubt, failed.is_undone
    error.__cause__ = failed.error
    return error
