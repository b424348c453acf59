"""Turns redis-py's errors into :class:`LockUnavailable`, and tells what they leave open."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from redis import exceptions as redis_exceptions

from ..docs import docs_url
from ..errors import LockUnavailable, subject
from .shared_cluster import is_moving

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
        "this server lets scripts touch none but the keys that they were told of: set PROTOCOL in "
        "SETNX_LOCK to 'hosted' (without Django, protocol='hosted' of the lock), see "
        f"{docs_url('hosted')}"
    ),
    "replicas": "the primary hears of fewer replicas than its min-replicas-to-write",
    "denied": "Redis refuses the credentials or their ACL lacks a right",
    "moving": "its slot is being moved to another node of the cluster",
    "server": "Redis answered with an error",
}
_OURS = sys.stdlib_module_names | {"redis", __name__.partition(".")[0]}
# How many errors that led to one another are looked at.
_CHAIN = 20
# The errors by which a server refuses a connection.
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
    # redis-py had no classes for these in earlier versions.
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


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Raise redis-py's errors as LockUnavailable."""
    try:
        yield
    except TRANSLATED as error:
        raise unavailable(error, key) from error


def unavailable(error: Exception, key: str) -> LockUnavailable:
    """Return the LockUnavailable for an ``error`` of redis-py. Raises a LockError as it is."""
    if isinstance(error, redis_exceptions.LockError):
        raise error
    _forget_frames(error)
    if isinstance(error, UnicodeDecodeError):
        return LockUnavailable(
            f"{subject(key)} unavailable: Redis answered with bytes that are no text, "
            "which a client with decode_responses cannot read",
            key=key,
        )
    cause = _cause(error)
    why = _NO_ROOM if _FULL in str(error) else _CAUSES[cause]
    return LockUnavailable(f"{subject(key)} unavailable: {why} ({error})", key=key, cause=cause)


def _forget_frames(error: BaseException) -> None:
    """Forget through which frames ``error`` came, and what led to it in redis-py.

    Their variables hold what was sent, with the token, and error pages and reports show them.
    """
    error.__traceback__ = None
    cause = error.__cause__ or error.__context__
    for _ in range(_CHAIN):
        if cause is None or not _is_of_the_call(cause):
            break
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


def _is_of_the_call(error: BaseException) -> bool:
    """Whether redis-py or we have caught it, and not a caller, who may be handling one of his."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    packages = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    return packages[:1] == ["redis"] or _OURS.issuperset(packages)


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
