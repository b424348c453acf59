"""The search for a deadlock by a caller that waits for a lock while it holds others."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Protocol

from .. import clock
from ..connections.backends import Backend
from ..connections.endpoints import Target, server_id
from ..errors import LockUnavailable, WaitStep
from ..protocol import commands, replies
from . import parent_process, reentrancy
from .mailbox import ANSWER_WITHIN

logger = logging.getLogger("django_setnx_lock.lock")

# What a caller says of itself is believed until it has had time to say it twice, and a while.
_LATE = 0.5


class Waiter(Protocol):
    """The part of an :class:`.attempt.AcquireAttempt` that the search reads."""

    target: Target
    token: str
    record: str


class DeadlockSearch:
    """Looks for a deadlock each ``every`` seconds of one wait. None: never."""

    def __init__(self, every: float | None) -> None:
        self._every = every
        self._due = math.inf if every is None else clock.now() + every

    def due_in(self, awaited: Waiter, partly: Sequence[Waiter]) -> float:
        """Return how many seconds to sleep at most, so that the search comes in time.

        ``awaited``: the attempt at the lock that is waited for. ``partly``: those at locks that are
        held meanwhile, but of use only with that one.
        """
        if self._every is None or not _held(awaited.target, partly):
            return math.inf
        return max(self._due - clock.now(), 0.0)

    async def cycle(
        self, io: Backend, awaited: Waiter, partly: Sequence[Waiter]
    ) -> tuple[WaitStep, ...]:
        """Return who waits for whom if the caller is refused, else nothing. Asks if it is due.

        The last to begin to wait finds a deadlock: all others have said by then that they wait.
        Once one is refused, nobody else finds it.
        """
        if self._every is None or clock.now() < self._due:
            return ()
        self._due = clock.now() + self._every
        target = awaited.target
        held = _held(target, partly)
        if not held:
            return ()
        request = commands.deadlock(
            target.keys,
            awaited.token,
            int((2 * self._every + _LATE) * 1000),
            awaited.record,
            held,
        )
        try:
            reply = await target.call(io, request, within=ANSWER_WITHIN)
        except LockUnavailable as error:
            # It is told of where it asks for the lock itself.
            logger.debug("cannot look for a deadlock at the lock %r: %s", target.key, error)
            return ()
        found = replies.read_deadlock(reply)
        names = [_key(name, target) for _, name in found]
        return tuple(
            WaitStep(who, holds, waits_for)
            for (who, _), holds, waits_for in zip(
                found, [*names[-1:], *names[:-1]], names, strict=True
            )
        )


def _held(target: Target, partly: Sequence[Waiter]) -> list[tuple[str, str]]:
    """Return name and token of all that the caller holds on the server where it waits.

    Nothing where the search cannot be: for a lock without a queue or an index, on a cluster or on
    several masters.
    """
    is_on_one = getattr(target.client, "connection_pool", None) is not None
    if target.index is None or not is_on_one or not target.command_set.has_queue:
        return []
    place = server_id(target.client)
    held = [
        *((one.target.keys.name, one.token) for one in partly),
        *((grant.name, grant.token) for grant in reentrancy.held_at(place)),
        *parent_process.held_around(place),
    ]
    # What is had again in here is held around as well.
    return list(dict.fromkeys(held))


def _key(name: str, target: Target) -> str:
    """Return what a caller calls the lock ``name``, which has the prefix of ``target``."""
    return name.removeprefix(target.keys.name.removesuffix(target.key))
