"""Turns redis-py's errors into :class:`LockUnavailable`."""

from __future__ import annotations

import sys
from itertools import chain
from traceback import walk_tb

from redis import exceptions as redis_exceptions

from ..errors import LockUnavailable, docs_url, subject

_CAUSES = {
    "unreachable": "Redis cannot be reached",
    "timeout": "Redis did not answer in time",
    "pool": "no connection is free in the pool; raise max_connections or hold fewer at once",
    "readonly": "Redis is a read-only replica; point the cache alias at the primary",
    "memory": "Redis is out of memory and refuses writes",
    "wrongtype": "its name in Redis holds something that is no lock; remove or rename one",
    "undeclared": (
        "this server lets scripts touch only the keys that were declared to them: set PROTOCOL in "
        "SETNX_LOCK to 'hosted' (without Django, protocol='hosted' of the lock), see "
        f"{docs_url('redis', 'hosted-servers')}"
    ),
    "replicas": "the primary has fewer replicas than its min-replicas-to-write",
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
# A script reads and writes keys that it was not given, all of the same slot; they may be away.
NOT_HERE = "non local key"
# By words of the error: before Redis 7, a script's errors come wrapped in other text.
_WORDS = {
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
    # Of redis-py's pools.
    "Too many connections": "pool",
    "No connection available": "pool",
}
# Nodes and slots that redis-py cannot find, or that a node misses.
_NOWHERE = (redis_exceptions.RedisClusterException, redis_exceptions.ClusterDownError)
_KINDS = {
    redis_exceptions.OutOfMemoryError: "memory",
    redis_exceptions.ReadOnlyError: "readonly",
    redis_exceptions.AuthenticationError: "denied",
    redis_exceptions.NoPermissionError: "denied",
    redis_exceptions.TimeoutError: "timeout",
    redis_exceptions.ConnectionError: "unreachable",
}


def unavailable(error: Exception, key: str) -> LockUnavailable:
    """Return what callers get for an ``error`` of redis-py about the lock ``key``."""
    _forget_frames(error)
    cause = _cause(error)
    why = _NO_ROOM if _FULL in str(error) else _CAUSES[cause]
    found = LockUnavailable(f"{subject(key)} unavailable: {why} ({error})", key=key, cause=cause)
    found.in_doubt = getattr(error, "in_doubt", False)
    found.__cause__ = error
    return found


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


def _cause(error: Exception) -> str:
    if is_moving(error):
        return "moving"
    if isinstance(error, _NOWHERE):
        return "unreachable"
    words = (cause for word, cause in _WORDS.items() if word in str(error))
    kinds = (cause for kind, cause in _KINDS.items() if isinstance(error, kind))
    return next(chain(words, kinds), "server")


def is_moving(error: BaseException | None) -> bool:
    """Return whether ``error`` says that the slot has moved, or is on its way: nothing was done.

    A script may have begun where its own keys were there and another is not; all of them may be
    sent again.
    """
    is_elsewhere = isinstance(error, (redis_exceptions.AskError, redis_exceptions.TryAgainError))
    return is_elsewhere or NOT_HERE in str(error)
