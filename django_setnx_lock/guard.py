"""Runs a view under its lock, or answers in its place."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import connections, transaction

from . import responses
from .core.aio.block import Block
from .core.batch import check_each
from .core.errors import LockBusy, LockError, LockLost, LockUnavailable
from .core.lock import RedisLock

if TYPE_CHECKING:
    from typing import Literal

    from django.http import HttpResponseBase

    # Awaitable for async views only.
    _Response = HttpResponseBase | Awaitable[HttpResponseBase]
    OnBusy = Callable[[Any, LockBusy], _Response] | Literal["raise"] | None
    OnUnavailable = Callable[[Any, LockUnavailable | LockLost], _Response] | Literal["raise"] | None
    OnLost = Callable[[Any, LockLost], _Response] | Literal["raise"] | None


class Answers(Protocol):
    """What is answered in the place of a view. See :func:`redis_lock`."""

    @property
    def on_busy(self) -> OnBusy: ...
    @property
    def on_unavailable(self) -> OnUnavailable: ...
    @property
    def on_lost(self) -> OnLost: ...


logger = logging.getLogger("django_setnx_lock.views")


def guard(
    one: RedisLock,
    request: Any,
    view: Callable[[], Any],
    answers: Answers,
    databases: Sequence[str] = (),
) -> Any:
    """What ``view()`` gives under the lock, or else what ``redis_lock`` says is answered.

    ``databases``: those that it runs in a transaction of. They roll back when the lock was lost.
    """
    try:
        held = one.take(one.blocking_timeout)
    except (LockBusy, LockUnavailable) as error:
        return _answer(one, answers, error)(request, error)
    is_done = False
    try:
        with ExitStack() as transactions:
            for alias in databases:
                transactions.enter_context(transaction.atomic(using=alias))
            response = view()
            if databases:
                is_done = True
                check_each([held])
    except BaseException as error:
        held.finish(error)
        # The view, too, may find out that its lock is lost: by a check, by a write with its fence.
        if not (isinstance(error, LockLost) and (is_done or error.key == one.key)):
            raise
        answer = _answer(one, answers, error)
        if not databases:
            _roll_back_atomic_requests()
        return answer(request, error)
    try:
        held.finish(None)
        if held.is_put_off:
            # Of what is found out at the commit Django tells, not the view.
            check_each([held])
    except LockLost as error:
        answer = _answer(one, answers, error)
        _roll_back_atomic_requests()
        return answer(request, error)
    except LockUnavailable as error:
        # The view has done its work in time; the lease ends by itself.
        logger.error("%s", error)
    return response


async def aguard(
    one: RedisLock, request: Any, view: Callable[[], Awaitable[Any]], answers: Answers
) -> Any:
    """As :func:`guard` for an async view, which is cancelled when its lock is lost."""
    try:
        held = await one.atake(one.blocking_timeout)
    except (LockBusy, LockUnavailable) as error:
        return await _aanswered(_answer(one, answers, error), request, error)
    block = Block(held)
    try:
        response = await view()
    except BaseException as error:
        try:
            await block.leave(error)
        except LockLost as lost:
            return await _aanswered(_answer(one, answers, lost), request, lost)
        if not (isinstance(error, LockLost) and error.key == one.key):
            raise
        return await _aanswered(_answer(one, answers, error), request, error)
    try:
        await block.leave(None)
    except LockLost as error:
        return await _aanswered(_answer(one, answers, error), request, error)
    except LockUnavailable as error:
        logger.error("%s", error)
    return response


async def _aanswered(answer: Callable[..., Any], request: Any, error: LockError) -> Any:
    if iscoroutinefunction(answer):
        return await answer(request, error)
    # It may ask the database, as the context processors of a page do.
    result = await sync_to_async(answer)(request, error)
    return await result if isawaitable(result) else result


def _answer(one: RedisLock, answers: Answers, error: LockError) -> Callable[..., Any]:
    """What answers the request. Raises ``error`` where that is asked for, and else logs it."""
    chosen: Any
    if isinstance(error, LockBusy):
        chosen = answers.on_busy
        ours: Callable[..., Any] = partial(responses.busy, timeout=one.timeout)
    else:
        is_lost = isinstance(error, LockLost) and answers.on_lost is not None
        chosen = answers.on_lost if is_lost else answers.on_unavailable
        ours = responses.unavailable
    if chosen == "raise":
        raise error
    if not isinstance(error, LockBusy):
        logger.error("%s", error)
    return ours if chosen is None else cast("Callable[..., Any]", chosen)


def _roll_back_atomic_requests() -> None:
    """Do to the transactions of ATOMIC_REQUESTS what the error would, had it been raised."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
            connection.set_rollback(True)
