"""``manage.py locks doctor``: what there can cost a lock, and what to do about it.

A check is a function that yields what it finds at one server, as system checks of Django do of the
settings: with an id, a hint, and a section in docs/troubleshooting.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from timeit import repeat
from typing import Any
from uuid import uuid4

from django.core import checks
from django.core.checks import CheckMessage
from django.core.management.base import CommandError, OutputWrapper
from redis.exceptions import AuthenticationError

from django_setnx_lock.checks import message, of_cache
from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import clock
from django_setnx_lock.core.connections.backend import BLOCKING, run
from django_setnx_lock.core.connections.cluster import ClusterSession
from django_setnx_lock.core.connections.quorum import FEWEST
from django_setnx_lock.core.connections.session import Session, session_of
from django_setnx_lock.core.errors import (
    LockBusy,
    LockError,
    LockUnavailable,
    LockUnsupported,
    docs_url,
)
from django_setnx_lock.core.locks.heartbeat import process_key
from django_setnx_lock.core.protocol.keys import index_for
from django_setnx_lock.core.protocol.requests import Command
from django_setnx_lock.descriptions import problem
from django_setnx_lock.locks import inspector, lock, semaphore
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable, write

from .listing import aliases_of

# Where Redis is not there, there is nothing to be examined.
_ABSENT = frozenset({"unreachable", "timeout"})
# For how many seconds keys are looked through, so many at a time, and how many are named.
_LOOKS_FOR, _STEP, _FEW = 1.0, 1000, 3
_OR_MORE = ("", " or more")
_SAMPLES = 5
# The lease of the lock that is tried, and how long it is waited for: a refusal shows in less.
_LEASE, _WAIT, _PAUSE = 5, 0.3, 0.005
# What locks go without, for worse, if it is refused.
_USED = """redis.call('GET', KEYS[1])
for command in string.gmatch('LPOS HEXISTS HMGET ZRANK', '%a+') do
  redis.call(command, KEYS[1], 'x')
end"""
# What servers and proxies say of a command that they do not have.
_NOT_THERE = ("unknown command", "unsupported command")


class Server:
    """One server where locks of the cache alias ``using`` are, and what it tells of itself.

    ``refused``: the commands that the user of the cache may not send. ``is_cut``: whether it has
    keys that were not looked at.
    """

    is_cut = False

    def __init__(self, using: str, session: Session) -> None:
        self.using, self.where, self._session = using, session.where, session
        self.refused: list[str] = []
        said = (self._ask("INFO") or b"").decode(errors="replace")
        self.info = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)

    def _ask(self, *words: str) -> Any:
        """Return what it answers; None where it refuses to. Raises LockUnavailable."""
        try:
            return run(self._session.call(BLOCKING, Command.of(*words), "")).value
        except LockUnavailable as error:
            if error.cause in _ABSENT:
                raise
            self.refused.append(words[0])
            return None

    @property
    def about(self) -> str:
        """Which server it is, without credentials."""
        kind = "valkey" if "valkey_version" in self.info else "redis"
        version = self.info.get(f"{kind}_version", "of a version that it does not tell")
        took = min(repeat(lambda: self._ask("TIME"), number=1, repeat=_SAMPLES))
        return f"{kind} {version} at {self.where}, {1000 * took:.1f} ms a round trip"

    @cached_property
    def names(self) -> list[str]:
        """The names of its keys, as many as are seen in a second."""
        names: list[str] = []
        cursor, until = b"0", clock.now() + _LOOKS_FOR
        while answer := self._ask("SCAN", cursor.decode(), "COUNT", str(_STEP)):
            cursor, some = answer
            names += [name.decode(errors="replace") for name in some]
            self.is_cut = cursor != b"0"
            if not self.is_cut or clock.now() > until:
                break
        return names

    @property
    def replicas(self) -> int:
        """How many replicas are up to date but for what is on its way."""
        told = (value for name, value in self.info.items() if name.startswith("slave"))
        return sum(",state=online," in value for value in told)


def servers_of(using: str) -> list[Server]:
    """Return the server behind the cache ``using``; each primary if it is a cluster.

    Raises LockUnavailable where nobody can connect or log in, and ImproperlyConfigured for a cache
    that cannot hold locks.
    """
    session = session_of(get_client(using))
    try:
        run(session.call(BLOCKING, Command.of("EXISTS", "doctor", keys=("doctor",)), ""))
    except LockUnavailable as error:
        # Whoever may not ask that has logged in.
        if error.cause != "denied" or isinstance(error.__cause__, AuthenticationError):
            raise
    sessions = session.nodes() if isinstance(session, ClusterSession) else [session]
    return [Server(using, one) for one in sessions]


def examine(aliases: Sequence[str]) -> tuple[dict[str, str], list[tuple[str, CheckMessage]]]:
    """Examine the Redis behind each of ``aliases``; three or more are the masters of a Redlock.

    Return what is said of each alias, and what was found, beside the alias. Raises
    ImproperlyConfigured for a cache that cannot hold locks.
    """
    examined: dict[str, str] = {}
    found: list[tuple[str, CheckMessage]] = []
    is_master, masters = len(aliases) >= FEWEST, dict[str, str]()
    for alias in aliases:
        try:
            servers = servers_of(alias)
            own = [*of_cache(alias), *_of_each(servers)]
            # One lock is enough, also on a cluster.
            own += check_taking(servers[0], is_master=is_master)
            own += check_own_server(servers[0], masters) if is_master else ()
            examined[alias] = "; ".join([*(server.about for server in servers), _seen(servers)])
        except LockUnavailable as error:
            examined[alias], own = "not examined", [_unreachable(alias, error)]
        found += [(alias, one) for one in own if not one.is_silenced()]
    return examined, found


def _of_each(servers: Sequence[Server]) -> Iterator[CheckMessage]:
    """Yield each finding once for all ``servers``; it says where, if it is not so at all."""
    places: dict[tuple[str, str], tuple[CheckMessage, list[str]]] = {}
    for server in servers:
        for one in (one for check in CHECKS for one in check(server)):
            places.setdefault((str(one.id), one.msg), (one, []))[1].append(server.where)
    for one, where in places.values():
        if len(where) < len(servers):
            one.msg = f"At {', '.join(where)}: {one.msg}"
        yield one


def _seen(servers: Sequence[Server]) -> str:
    """Say how long an answer may take, and how many locks and living processes there are."""
    using = servers[0].using
    said = [f"timeout: {session_of(get_client(using)).limit:g} s"]
    with suppress(LockUnavailable):
        page = inspector(using).find(first=0, within=_LOOKS_FOR)
        said.append(f"locks: {page.total:,}{_OR_MORE[page.is_cut]}")
    prefix = process_key(index_for(get_config()["KEY_PREFIX"]), "")
    lives = sum(name.startswith(prefix) for server in servers for name in server.names)
    if refused := {name for server in servers for name in server.refused}:
        return ", ".join([*said, f"not examined, as Redis refuses {' and '.join(sorted(refused))}"])
    is_cut = any(server.is_cut for server in servers)
    return ", ".join([*said, f"living processes: {lives:,}{_OR_MORE[is_cut]}"])


def _unreachable(using: str, error: LockUnavailable) -> CheckMessage:
    """D001: nobody can connect and log in. Nothing else is examined then."""
    said = problem(error)
    seen, advice = f"{said['problem']} {said['detail']}", said["advice"]
    if error.cause == "timeout":
        seen += f" It was given {session_of(get_client(using)).limit:g} s."
    elif error.cause == "server":
        advice = "See what Redis says: LOCATION may name a database that it does not have."
    return message("D001", seen, advice, kind=checks.Error)


# What is said of a lock that cannot be had, and what to do.
_REFUSALS = {
    "D002": (
        "Redis refuses what locks need: {}.",
        "Give the user of the cache the rights it needs. A server or proxy that has no Lua "
        "scripts cannot hold locks; one that lets nobody wait (BRPOP) can, with PROTOCOL "
        f"'hosted' in SETNX_LOCK. See {docs_url('redis', 'rights')}.",
    ),
    "D003": (
        "It is a replica: its primary does not know of a lock that is taken here.",
        "Point the LOCATION of the cache at the primary, or have Sentinel name it.",
    ),
    "D004": (
        "No lock can be taken there: {}.",
        "Remove the cause: memory that is full, a disk that cannot be written to, replicas that "
        "min-replicas-to-write or REPLICAS of SETNX_LOCK asks for. On a cluster REPLICAS has to "
        "be 0.",
    ),
}


def check_taking(server: Server, *, is_master: bool) -> Iterator[CheckMessage]:
    """D002, D003, D004: a lock can be had, which takes scripts, rights and replicas.

    ``is_master``: whether the server is one of several of a Redlock.
    """
    # One that takes writes grants locks, too, and its primary does not hear of them.
    number, said = "D003", ""
    if server.info.get("role") != "slave":
        try:
            _try(server.using, {"replicas": 0} if is_master else {})
        except LockError as error:
            number, said = _refusal(error), str(error.__cause__ or error).rstrip(".")
        else:
            return
    text, hint = _REFUSALS[number]
    yield message(number, text.format(said), hint, kind=checks.Error)


def _refusal(error: LockError) -> str:
    """Return what kind of a refusal it is. Raises it where Redis is not there."""
    cause, said = getattr(error, "cause", ""), str(error).lower()
    if cause in _ABSENT:
        raise error
    if cause == "denied" or any(one in said for one in _NOT_THERE):
        return "D002"
    return "D003" if cause == "readonly" else "D004"


def _try(using: str, more: dict[str, Any]) -> None:
    """Do in that cache what locks do. Raises LockError where something is refused."""
    key, look = f"doctor:{uuid4()}", inspector(using)
    options: dict[str, Any] = {
        "using": using,
        "timeout": _LEASE,
        "blocking_timeout": 0,
        "reentrant": False,
        "renew": False,
        "label": "locks doctor",
    }
    trial = lock(key, **options, **more)
    polls = trial.target.scripts.polls
    # The right to send a script shows where the server knows none of ours.
    used = Command.of("EVAL", "return 1" if polls else _USED, "1", trial.name, keys=(trial.name,))
    run(session_of(trial.client).call(BLOCKING, used, key))
    with trial as held:
        held.reacquire()
        if not polls:
            with suppress(LockBusy):
                trial.take(_WAIT)
            with ThreadPoolExecutor(1) as pool:
                following = pool.submit(trial.take, _LEASE)
                while not (following.done() or look.get(trial.name).waiting):
                    time.sleep(_PAUSE)
                held.release()
                following.result().release()
    # Groups need a few rights more, and so does who looks.
    with suppress(LockUnsupported):
        first, second = (semaphore(f"{key}:2", 2, **options, replicas=0) for _ in range(2))
        with first, second:
            look.get(first.name)
    look.find(1, within=1)


def check_own_server(server: Server, masters: dict[str, str]) -> Iterator[CheckMessage]:
    """D016: each master of a Redlock is a server of its own.

    ``masters``: the cache alias of each that was met, by what the server calls its run.
    """
    other = masters.setdefault(server.info.get("run_id", server.using), server.using)
    if other != server.using:
        yield message(
            "D016",
            f"The caches {other!r} and {server.using!r} lead to one server, which counts twice "
            "for a Redlock: with it a majority is lost at once.",
            "Give each master of a Redlock a server of its own.",
            kind=checks.Error,
        )


def check_eviction(server: Server) -> Iterator[CheckMessage]:
    """D006: nothing is evicted. Locks have a lease, so that volatile- policies drop them, too."""
    policy = server.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    limit = int(server.info.get("maxmemory", 0))
    when = (
        f"memory is limited to {limit:,} bytes: when it is full, locks that are held are dropped"
        if limit
        else "it has no effect as long as maxmemory is 0; with a limit, locks would be dropped"
    )
    yield message(
        "D006",
        f"maxmemory-policy is {policy}, and {when}.",
        "Set maxmemory-policy to noeviction, or keep the locks on a server of their own: it is "
        "set for a whole server, not for a database.",
        kind=checks.Error if limit else checks.Warning,
    )


def check_persistence(server: Server) -> Iterator[CheckMessage]:
    """D008: a restart does not lose the locks."""
    if server.info.get("aof_enabled") == "0":
        yield message(
            "D008",
            "Writes do not reach the disk at once: a restart loses the locks that were taken "
            "after the last snapshot, if there is one, while their holders work.",
            "Set appendonly to yes, or have the server stay away after a crash for longer than "
            "the leases.",
        )


def check_old_primary(server: Server) -> Iterator[CheckMessage]:
    """D017: a primary that no replica follows any more grants nothing."""
    # It tells how many are good where it needs some.
    is_node = server.info.get("cluster_enabled") == "1"
    if server.replicas and not is_node and "min_slaves_good_slaves" not in server.info:
        yield message(
            "D017",
            f"Replicas are online ({server.replicas}), and min-replicas-to-write is 0: when one "
            "takes the place of the primary while that goes on answering, both grant locks.",
            "Set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds, on all "
            f"servers: see {docs_url('redis', 'sentinel')}. A failover also forgets locks that the "
            "replicas had not heard of, unless REPLICAS of SETNX_LOCK is 1: see "
            f"{docs_url('redis', 'replicas')}.",
        )


def check_keys(server: Server) -> Iterator[CheckMessage]:
    """D011: nothing but locks is in the database."""
    prefix = get_config()["KEY_PREFIX"]
    others = sorted(name for name in server.names if prefix not in name)
    if others:
        few = ", ".join(map(repr, others[:_FEW]))
        yield message(
            "D011",
            f"Other things are in the database of the locks: {len(others):,} of "
            f"{len(server.names):,} keys that were looked at, as {few}. Whoever empties it for "
            "their sake lets go of all locks.",
            "Keep the locks in a database of their own.",
        )


#: What the doctor looks for at each server, in this order.
CHECKS: Sequence[Callable[[Server], Iterator[CheckMessage]]] = (
    check_eviction,
    check_persistence,
    check_old_primary,
    check_keys,
)


def doctor(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write what was found where the locks are. Raises CommandError when that is bad."""
    examined, found = examine(aliases_of(options))
    findings = [
        {
            "id": str(one.id).rpartition(".")[2],
            "level": type(one).__name__.lower(),
            "using": alias,
            "message": one.msg,
            "hint": one.hint,
        }
        for alias, one in sorted(found, key=lambda pair: -pair[1].level)
    ]
    if options["json"]:
        write(out, json.dumps({"examined": examined, "findings": findings}))
    else:
        write(out, "\n".join(map(printable, _lines(examined, findings))))
    if any(one["id"] == "D001" for one in findings):
        raise CommandError("not all could be reached", returncode=statuses.UNAVAILABLE)
    if any(one["level"] == "error" for one in findings):
        raise CommandError("there are errors", returncode=2)


def _lines(examined: dict[str, str], findings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the report: what was found of each alias below it, the worst first."""
    for using, about in examined.items():
        yield f"{using}: {about}"
        for one in findings:
            if one["using"] == using:
                yield f"  {one['level'].upper()} {one['id']}: {one['message']}"
                yield f"    {one['hint']}"
        yield ""
    levels = [one["level"] for one in findings]
    yield f"Errors: {levels.count('error')}. Warnings: {levels.count('warning')}."
