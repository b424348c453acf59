"""Many locks in one round trip."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import blocking, clock
from .calling import call_many, refuse_too_few, worth_undoing
from .errors import LockBusy, LockError, LockUnavailable
from .held import Held
from .lock import RedisLock
from .protocol import Request
from .replicas import is_grant, strictest
from .turn import Turn

logger = logging.getLogger("django_setnx_lock.lock")


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of taking one of several locks: ``held``, or ``error`` telling why not."""

    lock: RedisLock
    held: Held | None = None
    error: LockBusy | LockUnavailable | None = None


def take_each(locks: Sequence[RedisLock]) -> list[Taken]:
    """Take each of ``locks`` that is free, without waiting, in one round trip.

    Those that are reentrant and held by the caller already are had again.

    All must share one client. They are asked for in the order of their names; the results
    are in the order given. Raises LockUnavailable, holding nothing, when the round trip as
    a whole failed.
    """
    blocking.check()
    ordered = sorted(locks, key=lambda lock: lock.name)
    turns = {id(lock): lock.turn() for lock in ordered}
    taken: dict[int, Taken] = {}
    for lock in ordered:
        share = lock.again()
        if share is not None:
            taken[id(lock)] = Taken(lock, held=share)
    ordered = [lock for lock in ordered if id(lock) not in taken]
    if not ordered:
        return [taken[id(lock)] for lock in locks]
    client = ordered[0].client
    replicas = [turns[id(lock)].replicas for lock in ordered]
    then = strictest([asked for asked in replicas if asked is not None])
    sent = clock.now()
    try:
        replies = call_many(
            client,
            [turns[id(lock)].request(waits=False) for lock in ordered],
            [lock.key for lock in ordered],
            then,
        )
        acknowledged = replies.pop() if then is not None else None
        for lock, reply, asked in zip(ordered, replies, replicas, strict=True):
            if asked is not None and not isinstance(reply, LockUnavailable) and is_grant(reply):
                refuse_too_few(asked, acknowledged, lock.key)
        for lock, reply in zip(ordered, replies, strict=True):
            taken[id(lock)] = _read(lock, turns[id(lock)], reply, sent)
    except BaseException as error:
        if worth_undoing(error):
            with suppress(LockError):
                _leave_each([turns[id(lock)] for lock in ordered])
        raise
    return [taken[id(lock)] for lock in locks]


def _leave_each(turns: Sequence[Turn]) -> None:
    replies = call_many(
        turns[0].target.client,
        [turn.leaving() for turn in turns],
        [turn.target.key for turn in turns],
    )
    for turn, reply in zip(turns, replies, strict=True):
        if not isinstance(reply, LockUnavailable):
            turn.read_left(reply)


def _read(lock: RedisLock, turn: Turn, reply: Any, sent: float) -> Taken:
    if isinstance(reply, LockUnavailable):
        return Taken(lock, error=reply)
    answer = turn.read(reply, sent)
    if isinstance(answer, Held):
        return Taken(lock, held=answer)
    return Taken(lock, error=turn.busy(answer))


def release_each(held: Sequence[Held], *, now: bool = False) -> list[LockError]:
    """Release each of ``held`` in one round trip; the errors of those that could not be.

    All must share one client. ``now``: even what would be put off (False). Raises nothing, unless
    it is interrupted: what Redis did not hear of ends with its lease.
    """
    blocking.check()
    try:
        return _release_each(held if now else _not_put_off(held))
    except BaseException:
        # As by Ctrl-C. Releasing twice is as good as once.
        _release_each(held if now else _not_put_off(held))
        raise


def _not_put_off(held: Sequence[Held]) -> list[Held]:
    return [one for one in held if not one.is_let_go and not one.puts_off()]


def _release_each(held: Sequence[Held]) -> list[LockError]:
    todo: list[Held] = []
    requests: list[Request] = []
    errors: list[LockError] = []
    for one in held:
        if not one.is_here or one.released:
            continue
        try:
            request = one.to_release()
        except LockError as error:
            errors.append(error)
        else:
            if request is not None:
                todo.append(one)
                requests.append(request)
    if not todo:
        return errors
    try:
        replies = _ask_each(todo, requests)
    except LockUnavailable as error:
        return [*errors, error]
    for one, reply in zip(todo, replies, strict=True):
        try:
            one.read_release(reply)
        except LockError as error:
            errors.append(error)
    return errors


def _ask_each(held: Sequence[Held], requests: Sequence[Request]) -> list[Any]:
    if len(held) == 1:
        return [held[0].target.call(requests[0])]
    return call_many(held[0].client, requests, [one.key for one in held])


def check_each(held: Sequence[Held]) -> None:
    """Raise LockLost if one of ``held`` is no longer ours, by Redis' word. One round trip.

    All must share one client. Where Redis cannot say, the lease counts by the local clock.
    """
    asked = list({id(one.root): one for one in held if one.is_here and not one.released}.values())
    if not asked:
        return
    for one in asked:
        one.refuse_if_over("check")
    replies: Sequence[Any]
    try:
        replies = _ask_each(asked, [one.checking() for one in asked])
    except LockUnavailable as error:
        replies = [error] * len(asked)
    for one, reply in zip(asked, replies, strict=True):
        if isinstance(reply, LockUnavailable):
            logger.warning("%s; its lease still runs", reply)
            one.refuse_if_over("check")
        else:
            one.read_check(reply)
