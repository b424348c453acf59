"""Several locks in few round trips, each for itself. All of them or none: :mod:`.multi_lock`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..connections import execute
from ..connections.backends import BLOCKING, Backend, run
from ..connections.endpoints import AsyncOnly, ClusterTarget, Target
from ..connections.execute import strictest
from ..connections.failures import worth_undoing
from ..errors import LockBusy, LockError, LockUnavailable
from ..protocol.commands import Request
from ..protocol.replies import is_ok
from .attempt import AcquireAttempt
from .handle import LockHandle
from .lock import RedisLock

logger = logging.getLogger("django_setnx_lock.lock")

# Locks that are asked for through their own client only.
_PLAIN = (Target, AsyncOnly, ClusterTarget)
# Causes that leave open what became of the request.
_UNSURE = ("unreachable", "timeout")


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking one of several locks: ``held``, or ``error`` telling why not."""

    lock: RedisLock
    held: LockHandle | None = None
    error: LockBusy | LockUnavailable | None = None


def take_each(locks: Sequence[RedisLock]) -> list[Taken]:
    """Take each of ``locks`` that is free, without waiting, in one round trip.

    A reentrant lock that the caller holds already is entered again.

    All must share one client. They are asked for in the order of their names; the results
    are in the order given. Raises LockUnavailable, holding nothing, when the round trip as
    a whole failed.
    """
    return run(_take_each(BLOCKING, locks))


async def _take_each(io: Backend, locks: Sequence[RedisLock]) -> list[Taken]:
    shares: dict[RedisLock, LockHandle | None] = {}
    attempts: list[AcquireAttempt] = []
    try:
        return await _taken(io, locks, shares, attempts)
    except BaseException as error:
        # Interrupts too. A share that is on its way up in a traceback would count as held.
        await release_all(io, [one for one in shares.values() if one is not None], now=True)
        if attempts and worth_undoing(error):
            with suppress(LockError):
                await cancel_each(io, attempts)
        raise


async def _taken(
    io: Backend,
    locks: Sequence[RedisLock],
    shares: dict[RedisLock, LockHandle | None],
    attempts: list[AcquireAttempt],
) -> list[Taken]:
    """Take each of ``locks``, with all that is to be undone in ``shares`` and ``attempts``.

    In a function of its own: from Python 3.12 on, an interrupt in a comprehension passes by the
    ``except`` of the function that the comprehension stands in.
    """
    missing = await share_each(io, locks, shares)
    attempts.extend([lock.attempt() for lock in missing])
    asked = await _ask_for(io, missing, attempts) if missing else []
    taken = {lock: Taken(lock, held=share) for lock, share in shares.items()}
    taken |= {one.lock: one for one in asked}
    return [taken[lock] for lock in locks]


async def share_each(
    io: Backend, locks: Sequence[RedisLock], shares: dict[RedisLock, LockHandle | None]
) -> list[RedisLock]:
    """Enter again those of ``locks`` that the caller holds already, and return the others.

    Both are in the order of their names, in which everybody takes them: a caller that holds one
    waits for later ones only. Puts the handle of each, or None, into ``shares``.
    """
    ordered = sorted(dict.fromkeys(locks), key=lambda lock: lock.name)
    for lock in ordered:
        # At once: an interrupt must not leave one that nobody counts out.
        shares[lock] = await lock._again(io)
    return [lock for lock in ordered if shares[lock] is None]


async def _ask_for(
    io: Backend, locks: Sequence[RedisLock], attempts: Sequence[AcquireAttempt]
) -> list[Taken]:
    """Ask for ``locks``, which are in the order of their names, by ``attempts``."""
    replicas = [attempt.replicas for attempt in attempts]
    then = strictest([asked for asked in replicas if asked is not None])
    sent = clock.now()
    replies = await execute.call_many(
        io,
        locks[0].client,
        [attempt.request(waits=False) for attempt in attempts],
        [lock.key for lock in locks],
        then,
        undo=lambda: [attempt.cancelling() for attempt in attempts],
        repeated=lambda: note_repeat(attempts),
    )
    acknowledged = replies.pop() if then is not None else None
    for lock, reply, asked in zip(locks, replies, replicas, strict=True):
        if asked is not None and not isinstance(reply, LockUnavailable) and is_ok(reply):
            asked.refuse_too_few(acknowledged, lock.key)
    taken = [
        await _read(io, lock, attempt, reply, sent)
        for lock, attempt, reply in zip(locks, attempts, replies, strict=True)
    ]
    unsure = [
        attempt
        for attempt, one in zip(attempts, taken, strict=True)
        if isinstance(one.error, LockUnavailable) and one.error.cause in _UNSURE
    ]
    if unsure:
        # On a cluster, a part of the nodes.
        with suppress(LockError):
            await cancel_each(io, unsure)
    return taken


async def _read(
    io: Backend, lock: RedisLock, attempt: AcquireAttempt, reply: Any, sent: float
) -> Taken:
    if isinstance(reply, LockUnavailable):
        return Taken(lock, error=reply)
    answer = await attempt.read(io, reply, sent)
    if isinstance(answer, LockHandle):
        return Taken(lock, held=answer)
    return Taken(lock, error=attempt.busy(answer))


def is_one_client(targets: Sequence[Target]) -> bool:
    """Return whether ``targets`` are asked for through one client, of a server or a cluster."""
    client = targets[0].client
    return all(type(one) in _PLAIN and one.client is client for one in targets)


async def ask_each(
    io: Backend, targets: Sequence[Target], requests: Sequence[Request]
) -> list[Any]:
    """Send the request of each of ``targets``: in one round trip where one server is asked.

    Each result is a reply, or a LockUnavailable for that request alone. Raises LockUnavailable
    when a round trip for all failed as a whole.
    """
    if is_one_client(targets):
        return await execute.call_many(
            io, targets[0].client, requests, [target.key for target in targets]
        )
    replies: list[Any] = []
    for target, request in zip(targets, requests, strict=True):
        try:
            replies.append(await target.call(io, request))
        except LockUnavailable as error:
            replies.append(error)
    return replies


def note_repeat(attempts: Sequence[AcquireAttempt]) -> None:
    """Take note that what was sent for all of them was sent more than once."""
    for attempt in attempts:
        attempt.note_repeat()


async def cancel_each(io: Backend, attempts: Sequence[AcquireAttempt]) -> None:
    """Give up each of ``attempts``, in one round trip. Raises LockUnavailable."""
    replies = await ask_each(
        io, [attempt.target for attempt in attempts], [attempt.cancelling() for attempt in attempts]
    )
    for attempt, reply in zip(attempts, replies, strict=True):
        if not isinstance(reply, LockUnavailable):
            attempt.read_cancelled(reply)


def release_each(held: Sequence[LockHandle], *, now: bool = False) -> list[LockError]:
    """Release each of ``held`` in one round trip; return the errors of those that could not be.

    All must share one client. ``now``: whether a lock that waits for the end of a transaction is
    released before that, too (False). Raises nothing, unless it is interrupted: a lock of which
    Redis got no request ends with its lease.
    """
    return run(release_all(BLOCKING, held, now=now))


async def release_all(
    io: Backend, held: Sequence[LockHandle], *, now: bool = False
) -> list[LockError]:
    """Release each as :func:`release_each` does. In asyncio no release waits for a transaction."""
    now = now or io.is_asyncio
    try:
        return await _release(io, held, now=now)
    except BaseException as error:
        # Ctrl-C or a cancellation, for instance. To release twice is as good as once.
        async def again() -> None:
            for failure in await _release(io, held, now=now):
                logger.warning("%s", failure)

        await io.shield(again, held[0].client, error)
        raise


async def _release(io: Backend, held: Sequence[LockHandle], *, now: bool) -> list[LockError]:
    """Release those that are here and not released; what others share is only counted out."""
    errors: list[LockError] = []
    asked: list[tuple[LockHandle, Request]] = []
    for one in held:
        if not one.is_here or one.released or (not now and (one.is_put_off or one.defers())):
            continue
        try:
            request = one.to_release()
        except LockError as error:
            errors.append(error)
        else:
            if request is not None:
                asked.append((one, request))
    if not asked:
        return errors
    try:
        replies = await ask_each(
            io, [one.target for one, _ in asked], [request for _, request in asked]
        )
    except LockError as error:
        return [*errors, error]
    for (one, _), reply in zip(asked, replies, strict=True):
        try:
            one.read_release(reply)
        except LockError as error:
            errors.append(error)
    return errors


def check_each(held: Sequence[LockHandle]) -> None:
    """Raise LockLost if one of ``held`` is no longer ours, by Redis' word. One round trip.

    All must share one client. Where Redis cannot say, the lease counts by the local clock.
    """
    asked = list({id(one.grant): one for one in held if one.is_here and not one.released}.values())
    if not asked:
        return
    for one in asked:
        one.refuse_if_over("check")
    replies: Sequence[Any]
    try:
        replies = run(
            ask_each(
                BLOCKING, [one.target for one in asked], [one.grant.checking() for one in asked]
            )
        )
    except LockUnavailable as error:
        replies = [error] * len(asked)
    for one, reply in zip(asked, replies, strict=True):
        if isinstance(reply, LockUnavailable):
            logger.warning("%s; its lease still runs", reply)
            one.refuse_if_over("check")
        else:
            one.kept(reply)
