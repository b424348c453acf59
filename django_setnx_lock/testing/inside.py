"""What the kit for tests of projects needs of the inside of the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Any

from ..core.connections.backend import BLOCKING, Backend, run
from ..core.errors import LockLost
from ..core.locks.attempt import Attempt
from ..core.locks.heartbeat import Heartbeat
from ..core.process import Owner, here
from ..core.protocol import requests
from ..core.protocol.replies import lost, text

_scripts = [one for one in vars(requests).values() if isinstance(one, requests.Script)]
# In memory a waiter fetches its mail only once its thread runs, and nobody is dead: who looks
# whether those have come whom a lock was given to is told that they have.
SCRIPTS = {one.sha: "return false" if one is requests.LOOK else one.source for one in _scripts}


def _renewals() -> list[Any]:
    """Return what renews locks here, of threads and of event loops."""
    sessions = list(here().sessions.values())
    found = [one for session in sessions for one in (session.renewal, *session.renewals.values())]
    return [renewal for renewal in found if renewal is not None]


def held_here(name: str) -> list[Any]:
    """Return the grants of this process for the lock ``name``."""
    grants = [grant for renewal in _renewals() for grant in renewal._held()]
    return [grant for grant in grants if grant.target.keys[0] == name and not grant.is_over]


def next_due() -> float:
    """Return when the next renewal or the end of a lease is due; ``inf`` for never."""
    grants = [grant for renewal in _renewals() for grant in renewal._held()]
    return min([min(grant.due, grant.end) for grant in grants], default=math.inf)


def renew_now() -> None:
    """Do at once what is due of the locks that threads hold."""
    for renewal in _renewals():
        if not renewal.io.is_asyncio:
            run(renewal._run_once())


async def arenew_now() -> None:
    """Do the same, and for the locks that tasks of this event loop hold."""
    await asyncio.to_thread(renew_now)
    for renewal in _renewals():
        if renewal.io.is_asyncio and renewal._loop is asyncio.get_running_loop():
            await renewal._run_once()


def forget(servers: Collection[int]) -> None:
    for session in list(here().sessions.values()):
        if session.place[0] in servers and session.renewal is not None:
            session.renewal._grants.clear()
            session.renewal._heartbeat = Heartbeat()


def take_as(lock: Any, record: str, owner: Owner) -> Any:
    """Take ``lock`` for the holder of ``record``, which ``owner`` lets go. Raises LockBusy."""
    attempt = Attempt(lock.target, lock.session_for(BLOCKING), owner, None)
    attempt._record = record
    return run(attempt.take(BLOCKING, 0))


def loss_of(grant: Any) -> LockLost | None:
    """Return why ``grant`` is lost, by what its server says."""
    reply = run(grant.session.call(BLOCKING, grant.renew_request(-1), grant.key))
    return None if reply.value[0] == b"OK" else lost(grant.key, reply.value[1])


async def may_be_let_go(io: Backend, attempt: Any) -> bool:
    """Return whether somebody else may be at work here who holds what ``attempt`` waits for."""

    def is_at_work(owner: Owner | None) -> bool:
        if owner is None:
            return True
        # A thread that waits lets nothing go, in whatever context it has taken it.
        is_me = owner is attempt.owner or (
            owner.kind == attempt.owner.kind == "thread" and owner.thread is attempt.owner.thread
        )
        return not is_me and not owner.has_ended

    name = attempt.target.keys[0]
    grants = held_here(name)
    if not grants:
        # Whoever has it, and is not known yet, is about to work; but what ``min_hold`` keeps.
        asked = requests.Command.of("GET", name, keys=(name,))
        reply = await attempt.session.call(io, asked, attempt.target.key)
        return not text(reply.value).startswith("kept:")
    return any(is_at_work(grant.owner) for grant in grants)
