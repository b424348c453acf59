"""Locks that count as taken only when replicas have them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import clock
from ..errors import LockUnavailable, LockUnsupported, subject
from ..options import checked_replicas, milliseconds
from ..protocol.requests import Command, InFull, Request

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..options import Target
    from .grant import Grant

DEFAULT_REPLICA_TIMEOUT = 1.0


def with_replicas(target: Target, replicas: object, replica_timeout: float) -> Target:
    """Return ``target``, of which so many ``replicas`` have to acknowledge each grant.

    That takes ``replica_timeout`` seconds at most, a third of the lease, and half of the client's
    ``socket_timeout``. Raises ValueError for a number or time that is none, LockUnsupported for a
    client of several servers.
    """
    count = checked_replicas(replicas)
    ms = min(milliseconds(replica_timeout, "replica_timeout"), int(target.options.lease_ms) // 3)
    if not count:
        return target
    client = target.client
    if not hasattr(client, "connection_pool"):
        raise LockUnsupported(
            f"replicas= needs a client of one server, which {type(client).__name__} is not"
        )
    return target._replace(confirm=partial(_confirm, count, ms))


async def _confirm(count: int, ms: int, io: Backend, grants: Sequence[Grant]) -> None:
    """Raise LockUnavailable unless so many replicas have the ``grants`` within so many ms."""
    first, key = grants[0], grants[0].key if len(grants) == 1 else ""
    session: Any = copy.copy(first.session)
    # The tasks of an event loop share a line, and none of them is to wait for these replicas.
    session.pipes = vars(first.session).setdefault("pipes_for_replicas", {})
    ms = max(min(ms, int(session.limit * 500)), 1)
    # Replicas that have what is written here have all that was written before. It is sent in full:
    # what is sent behind it waits for it.
    written = [InFull(*grant.renew_request(0)) for grant in grants]
    waiting = Command.of("WAIT", str(count), str(ms))
    asked: list[tuple[Request, str]] = [(one, key) for one in (*written, waiting)]
    until = max(first.sent + 2 * session.limit, clock.now() + ms / 1000)
    for _ in range(2):
        *before, waited = await session.call_many(io, asked, until - clock.now())
        if isinstance(waited, LockUnavailable):
            break
        # One that was sent again alone has waited for nothing.
        if not waited.was_retried or all(getattr(one, "was_retried", False) for one in before):
            break
    if not isinstance(waited, LockUnavailable):
        if int(waited.value) >= count:
            return
        waited = LockUnavailable(
            f"{subject(key)} unavailable: {waited.value} of the {count} replicas asked for "
            f"acknowledged {'it' if key else 'them'} within {ms / 1000:g} s",
            key=key,
            cause="replicas",
        )
    # The request for the lock was answered; what is left is for giving it back.
    waited.in_doubt, waited.time_left = False, max(until - clock.now(), 0)
    raise waited
