"""Executes requests, on connections of our own.

Each operation is written once, as a coroutine over a backend (``io``): see :mod:`.backends`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from redis import exceptions as redis_exceptions

from ..errors import LockUnavailable, LockUnsupported, subject
from ..protocol.commands import PlainRequest, Request
from ..protocol.replies import is_ok
from ..values import milliseconds
from . import cluster
from .cluster_routes import is_cluster
from .connection import Command
from .failures import TRANSLATED, translated, unavailable

if TYPE_CHECKING:
    from .backends import Backend

# Causes that all connections to the same server will meet as well.
OF_THE_SERVER = frozenset({"unreachable", "timeout", "readonly"})
# Gives the requests that undo another one.
Undo: TypeAlias = Callable[[], Sequence[Request]]
# How long the undoing of what may have been granted is tried, where it needs a connection of its
# own, in seconds.
UNDO_WITHIN = 2.0
# How long the reply to WAIT may take that nobody is interested in, in seconds.
SOON = 0.005
# How long the replicas have to acknowledge a lock, in seconds.
DEFAULT_REPLICA_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas have to acknowledge a lock, and within how many milliseconds."""

    count: int
    wait_ms: int

    @property
    def command(self) -> tuple[str, ...]:
        """The command sent behind the request for the lock, on the same connection."""
        return ("WAIT", str(self.count), str(self.wait_ms))

    def refuse_too_few(self, acknowledged: Any, key: str) -> None:
        """Raise LockUnavailable unless ``acknowledged``, the reply or an error, is enough."""
        if isinstance(acknowledged, Exception):
            error = (
                acknowledged
                if isinstance(acknowledged, LockUnavailable)
                else unavailable(acknowledged, key)
            )
            # Whatever is wrong, the lock was granted before.
            error.repeated = True
            raise error from (error.__cause__ or acknowledged)
        if int(acknowledged) < self.count:
            raise LockUnavailable(
                f"{subject(key)} unavailable: {acknowledged} of the {self.count} replicas asked "
                f"for acknowledged {'it' if key else 'them'} within {self.wait_ms / 1000:g} s",
                key=key,
                cause="replicas",
            )


def checked_replicas(replicas: object) -> int:
    """``replicas`` as a number; 0 for None. Raises ValueError unless it is None or an int >= 0."""
    if replicas is None:
        return 0
    if type(replicas) is not int or replicas < 0:
        raise ValueError(f"replicas is a number of replicas, 0 or more, or None; not {replicas!r}")
    return replicas


def wanted_replicas(
    client: Any, replicas: object, replica_timeout: float, lease_ms: int
) -> Replicas | None:
    """Return what the replicas of the server of ``client`` have to do, or None for nothing.

    It takes a third of the lease at most, and half of the client's ``socket_timeout``. Raises
    ValueError for a number or time that is none, LockUnsupported for the client of a cluster.
    """
    count = checked_replicas(replicas)
    limit_ms = milliseconds(replica_timeout, "replica_timeout")
    if not count:
        return None
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise LockUnsupported(
            f"replicas= needs a client of one server, which {type(client).__name__} is not"
        )
    # WAIT takes 0 as without limit.
    wait_ms = max(min(limit_ms, lease_ms // 3), 1)
    socket_timeout = pool.connection_kwargs.get("socket_timeout")
    if socket_timeout:
        wait_ms = max(min(wait_ms, int(socket_timeout * 500)), 1)
    return Replicas(count, wait_ms)


def strictest(asked: Sequence[Replicas]) -> tuple[str, ...] | None:
    """Return the WAIT for as many replicas, and as long, as any of ``asked``; None for none."""
    if not asked:
        return None
    most = max(one.count for one in asked)
    return Replicas(most, max(one.wait_ms for one in asked)).command


async def call(
    io: Backend,
    client: Any,
    request: Request | PlainRequest,
    key: str,
    *,
    repeated: Callable[[], None] | None = None,
    patience: float | None = None,
    within: float | None = None,
    undo: Undo | None = None,
    replicas: Replicas | None = None,
) -> Any:
    """Run ``request`` and return its reply: EVALSHA, and EVAL where the server lacks the script.

    ``repeated`` is called before the reply is given if a copy may be still under way.
    ``patience``: see :func:`.cluster.routed`; of no effect but on a cluster. ``within``: the
    seconds that it may take, if that is less than the client's limits, see :class:`Limits`.
    ``undo`` gives what undoes it: that is sent behind it when it has no answer in time, so that a
    server that goes on later carries out both. ``replicas``: how many of them have to acknowledge
    a reply that is a grant, in the same round trip; on one server only.

    It goes over a connection of our own, so that neither a pool that others have emptied nor its
    overhead stands in the way. A NOSCRIPT answer means nothing was applied, so sending again is
    safe; so it is after a lost connection, as every script recognises a copy of a request.
    Raises LockUnavailable, also when too few replicas have acknowledged a grant: then it is to be
    given back; for asyncio, TypeError as :func:`aio_connection_of`.
    """
    until = None if within is None else time.monotonic() + within
    if is_cluster(client):
        copies = chain([request], repeat(request.repeat))
        with translated(key):
            return await cluster.routed(
                io,
                client,
                request.keys[0],
                lambda node: call(
                    io,
                    node,
                    next(copies),
                    key,
                    repeated=repeated,
                    within=None if until is None else until - time.monotonic(),
                    undo=undo,
                ),
                patience=patience,
                repeated=repeated,
                until=until,
            )
    then = () if replicas is None else (replicas.command,)
    pool, connection = await io.checkout(client)
    connection.sent_again = False
    try:
        (reply,) = await connection.ask(*_asked(request, then, until))
        if isinstance(reply, redis_exceptions.NoScriptError):
            if then and isinstance(await _acknowledged(io, connection, SOON), Exception):
                # Nothing was granted that replicas could have to know of.
                connection.close()
            again = (request.repeat.in_full, *then)
            first = again if connection.sent_again else (request.first_in_full, *then)
            (reply,) = await connection.ask(first, 1, until, again)
        if isinstance(reply, redis_exceptions.ResponseError):
            raise reply
        if replicas is not None and is_ok(reply):
            seconds = replicas.wait_ms / 1000 + connection.answer_within
            replicas.refuse_too_few(await _acknowledged(io, connection, seconds), key)
        elif then and isinstance(await _acknowledged(io, connection, SOON), Exception):
            # A busy answer need not wait for replicas that are not there.
            connection.close()
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        # Interrupts and cancellations too: the reply may be still to come.
        give_up(pool, client, connection, error, key, undo)
    if connection.sent_again:
        pool.forget(client)
        if repeated:
            repeated()
    pool.checkin(client, connection)
    return reply


# In functions of their own: in the frames of a traceback, tokens would be shown on error pages.


def _asked(
    request: Request | PlainRequest, then: Sequence[Command], until: float | None
) -> tuple[Any, ...]:
    """Return what to ask a connection: the first copy of ``request``, and what later ones are."""
    first, again = _copies(request)
    return (first, *then), 1, until, None if again is None else (again, *then)


def _asked_each(requests: Sequence[Request]) -> tuple[Any, ...]:
    copies = [_copies(one) for one in requests]
    again = [other or first for first, other in copies]
    return [first for first, _ in copies], len(requests), None, again


def _copies(request: Request | PlainRequest) -> tuple[Command, Command | None]:
    """Return the command for the first copy of ``request``, and for later ones if they differ."""
    if request.once is None:
        return request.by_sha, None
    return request.by_sha_with(request.once), request.by_sha_with(request.again or request.args)


def give_up(
    pool: Any,
    client: Any,
    connection: Any,
    error: BaseException,
    key: str,
    undo: Undo | None,
) -> NoReturn:
    """Use ``connection`` of ``pool`` no more, as asking on it ended in ``error``, and raise that.

    If it has no answer yet, ``undo`` is sent behind it, and the connection is kept open. A
    LockUnavailable tells whether there is something left to be undone.
    """
    failure = error
    if isinstance(error, TRANSLATED) and not isinstance(error, LockUnavailable):
        failure = unavailable(error, key)
    is_undone = undo is not None and connection.send_behind(_in_full_once(undo()))
    if isinstance(failure, LockUnavailable):
        failure.repeated |= connection.sent_again
        failure.is_undone = is_undone
        # Where there is no connection to be had, there would be none for the undoing.
        failure.is_unsent = not connection.has_sent
    if is_undone:
        pool.keep(connection)
    else:
        connection.close()
    if isinstance(failure, LockUnavailable) and failure.cause in OF_THE_SERVER:
        pool.forget(client)
    if failure is error:
        raise error
    raise failure from error


def _in_full_once(requests: Sequence[Request]) -> list[Command]:
    """Return the commands for ``requests``, each script in full where it comes first."""
    known: set[str] = set()
    commands: list[Command] = []
    for request in requests:
        commands.append(request.by_sha if request.script.sha in known else request.in_full)
        known.add(request.script.sha)
    return commands


async def _acknowledged(io: Backend, connection: Any, seconds: float) -> Any:
    """Return the reply to WAIT, or the error in its place."""
    try:
        reply = await io.read(connection, seconds)
    except TRANSLATED as error:
        return error
    return redis_exceptions.TimeoutError("no answer to WAIT") if reply is None else reply


async def call_many(
    io: Backend,
    client: Any,
    requests: Sequence[Request],
    keys: Sequence[str],
    then: Command | None = None,
    undo: Undo | None = None,
    repeated: Callable[[], None] | None = None,
) -> list[Any]:
    """Run ``requests`` in one round trip, and those whose script is missing in a second one.

    ``keys`` names the lock of each. Each result is a reply, or a LockUnavailable for that
    request alone. ``then``: a command that is sent behind them; its reply is the last result.
    ``undo``, ``repeated`` and the connection: as in :func:`call`. More than some hundred take more
    than one round trip.
    Raises LockUnavailable when the round trip as a whole failed.
    """
    if is_cluster(client):
        replies = await cluster.exchange(io, client, requests)
        if repeated:
            # Some may have been.
            repeated()
        return [
            unavailable(reply, key) if isinstance(reply, TRANSLATED) else reply
            for key, reply in zip(keys, replies, strict=True)
        ]
    pool, connection = await io.checkout(client)
    connection.sent_again = False
    try:
        replies = await _ask_all(connection, requests, then)
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        # Interrupts and cancellations too: replies may be still to come.
        give_up(pool, client, connection, error, "", undo)
    if connection.sent_again and repeated:
        repeated()
    pool.checkin(client, connection)
    return [
        unavailable(reply, key) if isinstance(reply, redis_exceptions.RedisError) else reply
        for key, reply in zip(keys if then is None else [*keys, ""], replies, strict=True)
    ]


async def _ask_all(connection: Any, requests: Sequence[Request], then: Command | None) -> list[Any]:
    if then is not None:
        # The command behind them may take its time, so it has to be sent once only.
        in_full = [*_in_full_once(requests), then]
        return await connection.ask(in_full, len(in_full))  # type: ignore[no-any-return]  # of either kind
    replies: list[Any] = await connection.ask(*_asked_each(requests))
    missing = [
        number
        for number, reply in enumerate(replies)
        if isinstance(reply, redis_exceptions.NoScriptError)
    ]
    if missing:
        in_full = _in_full_once([requests[number].repeat for number in missing])
        again = await connection.ask(in_full, len(in_full))
        for number, reply in zip(missing, again, strict=True):
            replies[number] = reply
    return replies


def scan(client: Any, pattern: str) -> Iterable[Any]:
    """Yield the names of all keys that match ``pattern``. Raises LockUnavailable."""
    with translated(""):
        if is_cluster(client):
            yield from cluster.scan(client, pattern)
            return
        yield from client.scan_iter(match=pattern, count=1000)


def scan_step(client: Any, cursor: str, pattern: str, count: int) -> tuple[str, list[Any]]:
    """Look through some ``count`` keys of one server from ``cursor`` on, ``"0"`` at the beginning.

    Return the cursor that follows, ``"0"`` at the end, and the names that match ``pattern``.
    Raises LockUnavailable.
    """
    with translated(""):
        onward, names = client.scan(int(cursor), match=pattern, count=count)
    return str(onward), names
