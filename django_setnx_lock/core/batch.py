"""Many locks in one round trip, each for itself. All of them or none: :mod:`.many`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import blocking, clock
from .calling import call_many, refuse_too_few, worth_undoing
from .cluster.target import ClusterTarget
from .errors import LockBusy, LockError, LockUnavailable
from .held import Held
from .lock import RedisLock
from .protocol import Request
from .replicas import is_grant, strictest
from .target import AsyncOnly, Target
from .turn import Turn

logger = logging.getLogger("django_setnx_lock.lock")

# What is asked through its client alone.
_PLAIN = (Target, AsyncOnly, ClusterTarget)


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
    shares: dict[int, Held | None] = {}
    turns: list[Turn] = []
    try:
        return _take_each(locks, shares, turns)
    except BaseException as error:
        # Interrupts too. A share that is on its way up in a traceback would count as held.
        release_each([share for share in shares.values() if share is not None], now=True)
        if turns and worth_undoing(error):
            with suppress(LockError):
                leave_each(turns)
        raise


def _take_each(
    locks: Sequence[RedisLock], shares: dict[int, Held | None], turns: list[Turn]
) -> list[Taken]:
    """Do so, with all that is to be undone in ``shares`` and ``turns`` at any moment."""
    ordered = sorted({id(lock): lock for lock in locks}.values(), key=lambda lock: lock.name)
    for lock in ordered:
        number = id(lock)
        # At once: an interrupt must not leave one that nobody counts out.
        shares[number] = lock.again()
    missing = [lock for lock in ordered if shares[id(lock)] is None]
    turns.extend([lock.turn() for lock in missing])
    asked = _ask_for(missing, turns) if missing else []
    taken = {id(lock): Taken(lock, held=shares[id(lock)]) for lock in ordered}
    taken |= {id(one.lock): one for one in asked}
    return [taken[id(lock)] for lock in locks]


def _ask_for(locks: Sequence[RedisLock], turns: Sequence[Turn]) -> list[Taken]:
    """What comes of asking for ``locks``, which are in the order of their names, by ``turns``."""
    replicas = [turn.replicas for turn in turns]
    then = strictest([asked for asked in replicas if asked is not None])
    sent = clock.now()
    replies = call_many(
        locks[0].client,
        [turn.request(waits=False) for turn in turns],
        [lock.key for lock in locks],
        then,
        undo=lambda: [turn.leaving() for turn in turns],
    )
    acknowledged = replies.pop() if then is not None else None
    for lock, reply, asked in zip(locks, replies, replicas, strict=True):
        if asked is not None and not isinstance(reply, LockUnavailable) and is_grant(reply):
            refuse_too_few(asked, acknowledged, lock.key)
    taken = [
        _read(lock, turn, reply, sent)
        for lock, turn, reply in zip(locks, turns, replies, strict=True)
    ]
    unsure = [turn for turn, one in zip(turns, taken, strict=True) if is_unsure(one.error)]
    if unsure:
        # On a cluster, a part of the nodes.
        with suppress(LockError):
            leave_each(unsure)
    return taken


def is_unsure(error: LockError | None) -> bool:
    """Whether ``error`` leaves open what became of the request."""
    return isinstance(error, LockUnavailable) and error.cause in ("unreachable", "timeout")


def is_one_server(targets: Sequence[Target]) -> bool:
    """Whether all ``targets`` are on one server, which is asked for them through one client."""
    has_pool = getattr(targets[0].client, "connection_pool", None) is not None
    return has_pool and _is_one_client(targets)


def _is_one_client(targets: Sequence[Target]) -> bool:
    """Whether all ``targets`` are asked for through one client, of a server or a cluster."""
    client = targets[0].client
    return all(type(one) in _PLAIN and one.client is client for one in targets)


def ask_each(targets: Sequence[Target], requests: Sequence[Request]) -> list[Any]:
    """Send the request of each of ``targets``: in one round trip for each server where that can be.

    Each result is a reply, or a LockUnavailable for that request alone. Raises LockUnavailable
    when a round trip for all failed as a whole.
    """
    if _is_one_client(targets):
        return call_many(targets[0].client, requests, [target.key for target in targets])
    replies: list[Any] = []
    for target, request in zip(targets, requests, strict=True):
        try:
            replies.append(target.call(request))
        except LockUnavailable as error:
            replies.append(error)
    return replies


def leave_each(turns: Sequence[Turn]) -> None:
    """Give up each of ``turns``, in one round trip. Raises LockUnavailable."""
    replies = ask_each([turn.target for turn in turns], [turn.leaving() for turn in turns])
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
    release = Release(held)
    if release.requests:
        try:
            release.read(ask_each(release.targets, release.requests))
        except LockUnavailable as error:
            release.errors.append(error)
    return release.errors


class Release:
    """The release of several: ``requests``, to be sent to ``targets``, and ``errors`` so far.

    What is not here, or released, is left out, and what others share is only counted out.
    """

    def __init__(self, held: Sequence[Held]) -> None:
        self.requests: list[Request] = []
        self.errors: list[LockError] = []
        self._todo: list[Held] = []
        for one in held:
            if not one.is_here or one.released:
                continue
            try:
                request = one.to_release()
            except LockError as error:
                self.errors.append(error)
            else:
                if request is not None:
                    self._todo.append(one)
                    self.requests.append(request)

    @property
    def targets(self) -> list[Target]:
        return [one.target for one in self._todo]

    def read(self, replies: Sequence[Any]) -> None:
        """Take note of the ``replies``."""
        for one, reply in zip(self._todo, replies, strict=True):
            try:
                one.read_release(reply)
            except LockError as error:
                self.errors.append(error)


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
        replies = ask_each([one.target for one in asked], [one.checking() for one in asked])
    except LockUnavailable as error:
        replies = [error] * len(asked)
    for one, reply in zip(asked, replies, strict=True):
        if isinstance(reply, LockUnavailable):
            logger.warning("%s; its lease still runs", reply)
            one.refuse_if_over("check")
        else:
            one.read_check(reply)
