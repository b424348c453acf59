"""What the kit for tests of projects needs of the inside of the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable
from typing import Any

from ..core.connections.backend import BLOCKING, run
from ..core.errors import LockLost
from ..core.locks.attempt import Attempt
from ..core.locks.heartbeat import Heartbeat
from ..core.process import Owner, here
from ..core.protocol import requests
from ..core.protocol.replies import lost

__all__ = ["SCRIPTS", "forget", "held_here", "loss_of", "name_of", "renewals", "take_as"]

_scripts = [one for one in vars(requests).values() if isinstance(one, requests.Script)]
# In memory a waiter fetches its mail only once its thread runs, and nobody is dead: who looks
# whether those have come whom a lock was given to is told that they have.
SCRIPTS = {one.sha: "return false" if one is requests.LOOK else one.source for one in _scripts}


class Renewals:
    """What renews the locks that were taken at the servers of some sessions."""

    def __init__(self, each: Iterable[Any]) -> None:
        self._each = [one for one in each if one is not None]

    def grants(self) -> list[Any]:
        """Return what is renewed, or looked after."""
        found = [reference() for one in self._each for reference in list(one._grants)]
        return [grant for grant in found if grant is not None]

    def next_due(self) -> float:
        """Return when the next renewal or the end of a lease is due; ``inf`` for never."""
        at_work = [one for one in self._each if one._worker is not None]
        beats = [one._heartbeat.next_due(one._held()) for one in at_work]
        return min([*beats, *(min(one.due, one.end) for one in self.grants())], default=math.inf)

    def wake(self) -> None:
        """Have what is due done now."""
        for one in self._each:
            one.wake()


def _sessions() -> list[Any]:
    return list(here().sessions.values())


def _everywhere() -> Renewals:
    return Renewals(
        [one for each in _sessions() for one in (each.renewal, *each.renewals.values())]
    )


def take_as(lock: Any, record: str) -> Any:
    attempt = Attempt(lock.target, lock.session_for(BLOCKING), Owner(), None)
    attempt._record = record
    return run(attempt.take(BLOCKING, 0))


def held_here(name: str) -> list[Any]:
    grants = _everywhere().grants()
    return [one for one in grants if one.target.keys[0] == name and not one.is_over]


def loss_of(grant: Any) -> LockLost | None:
    reply = run(grant.session.call(BLOCKING, grant.renew_request(-1), grant.key))
    return None if reply.value[0] == b"OK" else lost(grant.key, reply.value[1])


def name_of(grant: Any) -> str:
    name: str = grant.target.keys[0]
    return name


def renewals(*, of_loop: bool = False) -> list[Any]:
    sessions = _sessions()
    threads = Renewals([one.renewal for one in sessions])
    if not of_loop:
        return [threads]
    loop = asyncio.get_running_loop()
    return [Renewals([one.renewals.get(loop) for one in sessions]), threads]


def forget(servers: Collection[int]) -> None:
    for session in _sessions():
        if session.place[0] in servers and session.renewal is not None:
            session.renewal._grants.clear()
            session.renewal._heartbeat = Heartbeat()
