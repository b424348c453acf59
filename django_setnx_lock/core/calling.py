"""Runs requests on a redis-py client and turns its errors into :class:`LockUnavailable`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, NoReturn, TypeAlias, TypeVar

from redis import exceptions as redis_exceptions

from . import blocking
from .cluster import scanning
from .cluster.routes import is_moving
from .cluster.routing import exchange, routed
from .cluster.shared import is_cluster
from .errors import LockUnavailable, subject
from .line import Command, Line
from .lines import Lines
from .protocol import Request
from .replicas import Replicas, is_grant
from .sentinel import follow

_Result = TypeVar("_Result")
# Gives the requests that undo another one.
Undo: TypeAlias = Callable[[], Sequence[Request]]
_LINES = Lines(Line)
# How long the undoing of what may have been granted is tried, where it needs a connection of its
# own, in seconds.
UNDO_WITHIN = 2.0
# How long the reply to WAIT may take that nobody is interested in, in seconds.
SOON = 0.005
TRANSLATED = (
    redis_exceptions.RedisError,
    redis_exceptions.RedisClusterException,
    UnicodeDecodeError,
)

_CAUSES = {
    "unreachable": "Redis cannot be reached",
    "timeout": "Redis did not answer in time",
    "pool": "no connection is free in the pool; raise max_connections or hold fewer at once",
    "readonly": "Redis is a read-only replica; point the cache alias at the primary",
    "memory": "Redis is out of memory and refuses writes",
    "wrongtype": "its name in Redis holds something that is no lock; remove or rename one",
    "undeclared": (
        "this server lets scripts touch none but the keys that they were told of: set POLLING in "
        "SETNX_LOCK to True (without Django, polling=True of the lock), see docs/polling.md"
    ),
    "replicas": "the primary hears of fewer replicas than its min-replicas-to-write",
    "denied": "Redis refuses the credentials or their ACL lacks a right",
    "moving": "its slot is being moved to another node of the cluster",
    "server": "Redis answered with an error",
}
# What a server refuses a connection with.
_FULL = "max number of clients"
_NO_ROOM = "the server has no connection free; raise its maxclients or open fewer"
_REFUSALS = frozenset({"pool", "readonly", "memory", "wrongtype", "denied", "moving"})
# Error replies, by a word of theirs: before Redis 7, a script's errors come wrapped in other text.
_REPLIES = {
    "WRONGTYPE": "wrongtype",
    "READONLY": "readonly",
    "OOM ": "memory",
    # Dragonfly's, and that of clusters of Tair and ApsaraDB.
    "undeclared key": "undeclared",
    "bad lua script for redis cluster": "undeclared",
    "NOREPLICAS": "replicas",
    # Those of redis-py before it had classes for them.
    "CLUSTERDOWN": "unreachable",
    "MASTERDOWN": "unreachable",
    "NOPERM": "denied",
    "NOAUTH": "denied",
    "unauthenticated": "denied",
    "WRONGPASS": "denied",
    "ACL failure": "denied",
    "can't run this command or subcommand": "denied",
    "can't access at least one of the keys": "denied",
}


def call(
    client: Any,
    request: Request,
    key: str,
    *,
    repeated: Callable[[], None] | None = None,
    patience: float | None = None,
    within: float | None = None,
    undo: Undo | None = None,
) -> Any:
    """Run ``request`` and give its reply: EVALSHA, and EVAL where the server lacks the script.

    ``repeated`` is called before the reply is given if a copy may be still under way.
    ``patience``: see :func:`routed`; of no effect but on a cluster. ``within``: the seconds that it
    may take, if that is less than the client's limits, see :class:`Limits`. ``undo`` gives what
    undoes it: that is sent behind it when it has no answer in time, so that a server that goes on
    later carries out both.

    On a line of its own, so that neither a pool that others have emptied nor its overhead
    stands in the way; through ``client`` where that cannot be, or where its calls are traced.
    A NOSCRIPT answer means nothing was applied, so sending again is safe; so it is after a
    lost connection, as every script recognises a copy of a request it has seen.
    Raises LockUnavailable.
    """
    blocking.check()
    until = None if within is None else time.monotonic() + within
    if is_cluster(client):
        with translated(key):
            return routed(
                client,
                request.keys[0],
                lambda node: _call(node, request, key, repeated, until, undo),
                patience=patience,
                repeated=repeated,
                until=until,
            )
    follow(client)
    return _call(client, request, key, repeated, until, undo)


def _call(
    client: Any,
    request: Request,
    key: str,
    repeated: Callable[[], None] | None,
    until: float | None,
    undo: Undo | None,
) -> Any:
    if not _is_plain(client):
        if repeated:
            repeated()
        return _call_through(client, request, key)
    line = _LINES.borrow(client)
    line.sent_again = False
    try:
        reply = _ask(line, request, until)
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        # Interrupts too: the reply may be still to come.
        give_up(_LINES, client, line, error, key, undo)
    if line.sent_again:
        _LINES.forget(client)
        if repeated:
            repeated()
    _LINES.give_back(client, line)
    return reply


def _ask(line: Line, request: Request, until: float | None, then: Command | None = None) -> Any:
    try:
        return line.ask(*request.by_sha, then=then, until=until)
    except redis_exceptions.NoScriptError:
        if then is not None and not _has_ended(line):
            # Nothing was granted that replicas could have to know of.
            line.drop()
        return line.ask(*request.in_full, then=then, until=until)


def give_up(
    lines: Lines[Any],
    client: Any,
    line: Any,
    error: BaseException,
    key: str,
    undo: Undo | None,
) -> NoReturn:
    """Use ``line`` of ``lines`` no more, as asking on it ended in ``error``, and raise that.

    If it has no answer yet, ``undo`` is sent behind it, and the line is kept open. A
    LockUnavailable tells whether there is something left to be undone.
    """
    failure = error
    if isinstance(error, TRANSLATED) and not isinstance(error, LockUnavailable):
        failure = unavailable(error, key)
    is_undone = undo is not None and line.send_behind(_in_full_once(undo()))
    if isinstance(failure, LockUnavailable):
        failure.repeated |= line.sent_again
        failure.is_undone = is_undone
        # Where there is no connection to be had, there would be none for the undoing.
        failure.is_unsent = not (line.has_sent and line.has_connected)
    if is_undone:
        lines.unanswered.keep(line)
    else:
        line.drop()
    lines.forget_after(client, failure)
    if failure is error:
        raise error
    raise failure from error


def _in_full_once(requests: Sequence[Request]) -> list[Command]:
    """The commands for ``requests``, each script in full where it comes first."""
    known: set[str] = set()
    commands: list[Command] = []
    for request in requests:
        commands.append(request.by_sha if request.script.sha in known else request.in_full)
        known.add(request.script.sha)
    return commands


def call_replicated(
    client: Any,
    request: Request,
    key: str,
    replicas: Replicas,
    *,
    within: float | None = None,
    undo: Undo | None = None,
) -> Any:
    """Run ``request`` as :func:`call` does and give its reply; if that is a grant, when enough
    of ``replicas`` have acknowledged it. One round trip.

    Raises LockUnavailable, also when they are too few: then the grant is to be given back.
    """
    blocking.check()
    if not _is_plain(client):
        reply, acknowledged = call_many(client, [request], [key], replicas.command)
        if isinstance(reply, LockUnavailable):
            raise reply
        if is_grant(reply):
            refuse_too_few(replicas, acknowledged, key)
        return reply
    follow(client)
    line = _LINES.borrow(client)
    line.sent_again = False
    until = None if within is None else time.monotonic() + within
    try:
        reply = _ask(line, request, until, replicas.command)
        if is_grant(reply):
            refuse_too_few(replicas, _read(line, replicas.wait_ms / 1000), key)
        elif not _has_ended(line):
            # A busy answer need not wait for replicas that are not there.
            line.drop()
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        give_up(_LINES, client, line, error, key, undo)
    _LINES.give_back(client, line)
    return reply


def _has_ended(line: Line) -> bool:
    """Whether the last reply, which nobody is interested in, has come."""
    try:
        if line.wait(SOON):
            line.read()
            return True
    except TRANSLATED:
        pass
    return False


def _read(line: Line, seconds: float) -> Any:
    """The reply to WAIT, which takes so long, or the error in its place."""
    try:
        if not line.wait(seconds + line.limits.answer):
            raise redis_exceptions.TimeoutError("no answer to WAIT")
        return line.read()
    except TRANSLATED as error:
        return error


def refuse_too_few(replicas: Replicas, acknowledged: Any, key: str) -> None:
    """Raise LockUnavailable unless ``acknowledged``, the reply to WAIT or an error, is enough."""
    if isinstance(acknowledged, Exception):
        error = (
            acknowledged
            if isinstance(acknowledged, LockUnavailable)
            else unavailable(acknowledged, key)
        )
        # Whatever is wrong, the lock was granted before.
        error.repeated = True
        raise error from (error.__cause__ or acknowledged)
    replicas.refuse_too_few(int(acknowledged), key)


def _is_plain(client: Any) -> bool:
    # Tracing wraps this method, of the class or of an instance.
    execute = getattr(client, "execute_command", None)
    if type(execute) is MethodType:
        # What a method lacks itself it takes long to say.
        execute = execute.__func__
    # What stands for several masters has a pool, too, but makes no connections.
    pool = getattr(client, "connection_pool", None)
    return hasattr(pool, "connection_class") and not hasattr(execute, "__wrapped__")


def _call_through(client: Any, request: Request, key: str) -> Any:
    def run() -> Any:
        try:
            return client.evalsha(request.script.sha, *request.arguments)
        except redis_exceptions.NoScriptError:
            return client.eval(request.script.source, *request.arguments)

    return persistently(client, run, key)


def call_many(
    client: Any,
    requests: Sequence[Request],
    keys: Sequence[str],
    then: Command | None = None,
    *,
    undo: Undo | None = None,
) -> list[Any]:
    """Run ``requests`` in one round trip, and those whose script is missing in a second one.

    ``keys`` names the lock of each. Each result is a reply, or a LockUnavailable for that
    request alone. ``then``: a command that is sent behind them; its reply is the last result.
    ``undo`` and the connection: as in :func:`call`. More than some hundred take more than one
    round trip.
    Raises LockUnavailable when the round trip as a whole failed.
    """
    blocking.check()
    if is_cluster(client):
        replies = exchange(client, requests)
        return [
            unavailable(reply, key) if isinstance(reply, TRANSLATED) else reply
            for key, reply in zip(keys, replies, strict=True)
        ]
    follow(client)
    if _is_plain(client):
        line = _LINES.borrow(client)
        line.sent_again = False
        try:
            replies = _ask_all(line.ask_all, requests, then)
        except BaseException as error:  # noqa: BLE001 - raised by what is called
            # Interrupts too: replies may be still to come.
            give_up(_LINES, client, line, error, "", undo)
        _LINES.give_back(client, line)
    else:
        through = partial(_ask_all_through, client)
        replies = persistently(client, lambda: _ask_all(through, requests, then), "")
    return [
        unavailable(reply, key) if isinstance(reply, redis_exceptions.RedisError) else reply
        for key, reply in zip(_and_last(keys, then), replies, strict=True)
    ]


def _ask_all(
    ask: Callable[[Sequence[Command]], list[Any]], requests: Sequence[Request], then: Command | None
) -> list[Any]:
    if then is not None:
        # What is sent behind them may take its time: it is to be sent once.
        return ask([*_in_full_once(requests), then])
    replies = ask([one.by_sha for one in requests])
    missing = [
        number
        for number, reply in enumerate(replies)
        if isinstance(reply, redis_exceptions.NoScriptError)
    ]
    if missing:
        in_full = _in_full_once([requests[number] for number in missing])
        for number, reply in zip(missing, ask(in_full), strict=True):
            replies[number] = reply
    return replies


def _ask_all_through(client: Any, commands: Sequence[Command]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(pipeline.execute(raise_on_error=False))


def _and_last(keys: Sequence[str], then: Command | None) -> Sequence[str]:
    return keys if then is None else [*keys, ""]


def exists(client: Any, name: str, key: str) -> bool:
    """Whether anything stands at ``name``. Raises LockUnavailable."""
    blocking.check()
    if is_cluster(client):
        with translated(key):
            return routed(client, name, lambda node: _exists(node, name, key))
    return _exists(client, name, key)


def _exists(client: Any, name: str, key: str) -> bool:
    if not _is_plain(client):
        return bool(persistently(client, lambda: client.exists(name), key))
    line = _LINES.borrow(client)
    try:
        found = line.ask("EXISTS", name)
    except BaseException as error:  # noqa: BLE001 - raised by what is called
        give_up(_LINES, client, line, error, key, None)
    _LINES.give_back(client, line)
    return bool(found)


def scan(client: Any, pattern: str) -> Iterable[Any]:
    """The names of all strings that match ``pattern``. Raises LockUnavailable."""
    blocking.check()
    with translated(""):
        if is_cluster(client):
            yield from scanning.scan(client, pattern)
            return
        yield from client.scan_iter(match=pattern, count=1000, _type="string")


def persistently(client: Any, run: Callable[[], _Result], key: str) -> _Result:
    """``run()``, and once more when its connection broke and the client itself does not retry.

    Raises LockUnavailable.
    """
    try:
        return run()
    except TRANSLATED as error:
        return _once_more(client, run, key, error)


def _once_more(client: Any, run: Callable[[], _Result], key: str, error: Exception) -> _Result:
    first = unavailable(error, key)
    if first.cause != "unreachable" or retries(client):
        raise first from error
    try:
        return run()
    except TRANSLATED as again:
        second = unavailable(again, key)
        second.repeated = True
        raise second from again


def retries(client: Any) -> int:
    """How often the client itself sends a command again; django-redis' do not by default."""
    options = client.get_connection_kwargs()
    retry = options.get("retry")
    if retry is None:
        return 0
    if hasattr(retry, "get_retries"):
        return int(retry.get_retries())
    # Before redis-py 6 a client sends a command again only after errors it was told of.
    told = tuple(options.get("retry_on_error") or ())
    return int(retry._retries) if issubclass(redis_exceptions.ConnectionError, told) else 0


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Raise redis-py's errors as LockUnavailable."""
    try:
        yield
    except TRANSLATED as error:
        raise unavailable(error, key) from error


def unavailable(error: Exception, key: str) -> LockUnavailable:
    """The LockUnavailable for what redis-py raised. Raises LockErrors as they are."""
    if isinstance(error, redis_exceptions.LockError):
        raise error
    if isinstance(error, UnicodeDecodeError):
        return LockUnavailable(
            f"{subject(key)} unavailable: Redis answered with bytes that are no text, "
            "which a client with decode_responses cannot read",
            key=key,
        )
    cause = _cause(error)
    why = _NO_ROOM if _FULL in str(error) else _CAUSES[cause]
    return LockUnavailable(f"{subject(key)} unavailable: {why} ({error})", key=key, cause=cause)


def worth_undoing(error: BaseException) -> bool:
    """Whether to ask for the undoing of a request that ended in ``error``.

    Not where that was sent behind it, or the server refused it, nor where no connection was to be
    had: then no other one would be, and what an earlier copy of the request may have taken ends
    with its lease.
    """
    if not isinstance(error, LockUnavailable):
        return True
    if error.is_undone or error.is_unsent:
        return False
    unconnected = any(text in str(error.__cause__) for text in ("connecting to", _FULL))
    return error.repeated or (error.cause not in _REFUSALS and not unconnected)


def _cause(error: Exception) -> str:
    if is_moving(error):
        return "moving"
    not_there = (redis_exceptions.RedisClusterException, redis_exceptions.ClusterDownError)
    if isinstance(error, not_there):
        # Nodes and slots that redis-py cannot find, or that a node misses.
        return "unreachable"
    message = str(error)
    for word, cause in _REPLIES.items():
        if word in message:
            return cause
    if isinstance(error, redis_exceptions.OutOfMemoryError):
        return "memory"
    if isinstance(error, redis_exceptions.ReadOnlyError):
        return "readonly"
    refused = (redis_exceptions.AuthenticationError, redis_exceptions.NoPermissionError)
    if isinstance(error, refused):
        return "denied"
    if isinstance(error, redis_exceptions.TimeoutError):
        return "timeout"
    if isinstance(error, redis_exceptions.ConnectionError):
        # Older redis-py has no MaxConnectionsError, and the blocking pool never raises it.
        full = ("Too many connections", "No connection available", "MaxConnectionsError")
        return "pool" if any(text in message for text in full) else "unreachable"
    return "server"
