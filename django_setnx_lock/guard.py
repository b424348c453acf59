"""Runs a view under its lock, or answers in its place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import connections

from . import responses
from .core.errors import LockBusy, LockLost, LockUnavailable
from .core.lock import RedisLock

if TYPE_CHECKING:
    from typing import Literal

    from django.http import HttpResponseBase

    OnBusy = Callable[[Any, LockBusy], HttpResponseBase] | Literal["raise"] | None
    OnUnavailable = (
        Callable[[Any, LockUnavailable | LockLost], HttpResponseBase] | Literal["raise"] | None
    )
    OnLost = Callable[[Any, LockLost], HttpResponseBase] | Literal["raise"] | None

logger = logging.getLogger("django_setnx_lock.views")


def guard(
    one: RedisLock,
    request: Any,
    view: Callable[[], Any],
    *,
    on_busy: OnBusy,
    on_unavailable: OnUnavailable,
    on_lost: OnLost,
) -> Any:
    """What ``view()`` gives under the lock, or else what ``redis_lock`` says is answered."""
    try:
        held = one.take(one.blocking_timeout)
    except LockBusy as error:
        if on_busy == "raise":
            raise
        if on_busy is None:
            return responses.busy(request, error, timeout=one.timeout)
        return on_busy(request, error)
    except LockUnavailable as error:
        return _unavailable(request, error, on_unavailable)
    try:
        response = view()
    except BaseException as error:
        held.finish(error)
        raise
    try:
        held.finish(None)
    except LockLost as error:
        return _unavailable(request, error, on_unavailable if on_lost is None else on_lost)
    except LockUnavailable as error:
        # The view has done its work in time; the lease ends by itself.
        logger.error("%s", error)
    return response


def _unavailable(request: Any, error: LockUnavailable | LockLost, answer: Any) -> Any:
    if answer == "raise":
        raise error
    logger.error("%s", error)
    if isinstance(error, LockLost):
        _roll_back_atomic_requests()
    if answer is None:
        return responses.unavailable(request, error)
    return answer(request, error)


def _roll_back_atomic_requests() -> None:
    """Do to the transactions of ATOMIC_REQUESTS what the error would, had it been raised."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
            connection.set_rollback(True)
