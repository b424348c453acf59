"""``manage.py locks doctor``: what there can cost a lock, and what to do about it.

Each finding has an id and a section in docs/locks-command.md.
"""

from __future__ import annotations

import asyncio
import enum
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partialmethod
from typing import Any, TypeVar
from uuid import uuid4

from django.core.management.base import CommandError, OutputWrapper
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import get_client, socket_timeout_of
from django_setnx_lock.core.connections.cluster import ClusterSession
from django_setnx_lock.core.connections.failures import unavailable
from django_setnx_lock.core.connections.quorum import FEWEST
from django_setnx_lock.core.connections.session import session_of
from django_setnx_lock.core.errors import (
    LockBusy,
    LockError,
    LockUnavailable,
    LockUnsupported,
    docs_url,
)
from django_setnx_lock.core.inspection.inspector import Inspector
from django_setnx_lock.core.locks.layered import RedisLock
from django_setnx_lock.descriptions import problem
from django_setnx_lock.locks import inspector, lock, semaphore
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable, write

from .listing import aliases_of

_T = TypeVar("_T")
_UNREACHABLE = "D001"
# A clock may be so far off, in seconds: less is usual between machines.
_APART = 1.0
# How many keys are looked at, and how many of them named.
_SAMPLE, _FEW = 1000, 3
# Where Redis is not there, there is nothing to be examined.
_ABSENT = frozenset({"unreachable", "timeout"})
_SAMPLES = 5
# What servers and proxies say of a command that they do not have.
_NOT_THERE = ("unknown command", "unsupported command")
# The lease of the lock that is tried, and how long it is waited for: a refusal shows in less.
_USED = """redis.call('GET', KEYS[1])
for command in string.gmatch('LPOS HEXISTS HMGET ZRANK', '%a+') do
  redis.call(command, KEYS[1], 'x')
end"""
_LEASE, _WAIT, _PAUSE = 5, 0.3, 0.005


class Severity(enum.IntEnum):
    """How bad a finding is."""

    # Good to know.
    INFO = 0
    # In some event locks can vanish, or callers wait longer than they were told.
    WARNING = 1
    # Locks cannot be taken, or can vanish while they are held.
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """``seen`` is what there is, ``remedy`` what to do about it, ``using`` the cache alias."""

    id: str
    severity: Severity
    using: str
    seen: str
    remedy: str

    @property
    def docs(self) -> str:
        """Where to read on."""
        return docs_url("locks-command", self.id)


@dataclass(kw_only=True)
class Patient:
    """The Redis behind the cache ``using``, and how the project uses it."""

    using: str
    client: Any
    settings: Mapping[str, Any]
    # Whether it is one of several of a Redlock, or one of the primaries of a cluster.
    is_master: bool = False
    is_node: bool = False
    # What INFO and CONFIG GET answered; where they are refused, nothing.
    info: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    # By how many seconds our clock is ahead of the server's, give or take half of a round trip.
    ahead: float = 0
    round_trip: float = 0

    def question(self) -> None:
        """Ask it what it is. Raises LockUnavailable when nobody can connect, or log in."""
        client = self.client
        try:
            with _translated(""):
                client.ping()
        except LockUnavailable as error:
            # Who may not ask whether it is there has logged in.
            if error.cause != "denied" or isinstance(error.__cause__, AuthenticationError):
                raise
        self.info = self.ask("INFO", client.info) or {}
        self.config = self.ask("CONFIG GET", lambda: client.config_get("*")) or {}
        samples = [self.ask("TIME", lambda: _compared(client)) for _ in range(_SAMPLES)]
        self.round_trip, self.ahead = min(filter(None, samples), default=(0, 0))

    def ask(self, name: str, run: Callable[[], _T]) -> _T | None:
        """Return ``run()``; where Redis refuses it, None, and note ``name`` as refused."""
        try:
            with _translated(""):
                return run()
        except LockUnavailable as error:
            if error.cause in _ABSENT:
                raise
            if name not in self.refused:
                self.refused.append(name)
            return None

    def finding(self, severity: Severity, id_: str, seen: str, remedy: str) -> Finding:
        return Finding(id_, severity, self.using, seen, remedy)

    error = partialmethod(finding, Severity.ERROR)
    warning = partialmethod(finding, Severity.WARNING)
    note = partialmethod(finding, Severity.INFO)

    @property
    def about(self) -> str:
        """Which server it is, without credentials."""
        kind = "valkey" if "valkey_version" in self.info else "redis"
        version = self.info.get(f"{kind}_version", "")
        name = f"{kind} {version}" if version else "a server that does not tell its version"
        at = session_of(self.client).where
        return f"{name} at {at}, {1000 * self.round_trip:.1f} ms a round trip"

    @property
    def online_replicas(self) -> int:
        """How many replicas are up to date but for what is on its way."""
        count = int(self.info.get("connected_slaves", 0))
        replicas = (self.info.get(f"slave{number}", {}) for number in range(count))
        return sum(replica.get("state") == "online" for replica in replicas)


def admit(using: str, *, is_master: bool = False) -> list[Patient]:
    """Question the Redis behind the cache ``using``; each primary if it is a cluster.

    Raises LockUnavailable, and ImproperlyConfigured for a cache that cannot hold locks.
    """
    client = get_client(using)
    clients, is_node = [client], ClusterSession.suits(client)
    if is_node:
        with _translated(""):
            nodes = sorted(client.get_primaries(), key=lambda node: str(node.name))
            clients = [client.get_redis_connection(node) for node in nodes]
    common: dict[str, Any] = {"using": using, "settings": get_config()}
    patients = [
        Patient(client=one, is_master=is_master, is_node=is_node, **common) for one in clients
    ]
    for patient in patients:
        patient.question()
    return patients


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Raise redis-py's errors as LockUnavailable."""
    try:
        yield
    except LockError:
        raise
    except (RedisError, RedisClusterException, UnicodeDecodeError) as error:
        raise unavailable(error, key) from error


def _compared(client: Any) -> tuple[float, float]:
    """Return how long a round trip took, and how far our clock was ahead in its middle."""
    sent, started = time.time(), time.monotonic()
    seconds, micros = client.time()
    took = time.monotonic() - started
    return took, sent + took / 2 - (seconds + micros / 1e6)


def examine_taking(patient: Patient) -> Iterator[Finding]:
    """D002, D003, D004, D009: a lock can be had, which takes scripts, rights and replicas."""
    if patient.info.get("role") == "slave":
        # One that takes writes grants locks, too, and its primary does not hear of them.
        yield _replica(patient)
        return
    wanted = patient.settings["REPLICAS"]
    # Where too few are online, or it is a cluster, D009 tells by itself.
    is_known_missing = "connected_slaves" in patient.info and wanted > patient.online_replicas
    can_wait = not (is_known_missing or patient.is_master or patient.is_node)
    error = _trouble(patient, wanted if can_wait else 0)
    if error is not None:
        yield _refusal(patient, error)


def _trouble(patient: Patient, replicas: int) -> LockUnavailable | None:
    """Return why no lock could be had, if so. Raises LockUnavailable when Redis is not there."""
    options: dict[str, Any] = {
        "using": patient.using,
        "timeout": _LEASE,
        "blocking_timeout": 0,
        "reentrant": False,
        "renew": False,
        "label": "locks doctor",
    }
    key, look = f"doctor:{uuid4()}", inspector(patient.using)
    trial = lock(key, replicas=replicas, **options)
    try:
        with _translated(key):
            # The right to send a script shows where the server knows none of ours; and what a
            # lock goes without, for worse, if it is refused.
            used = "return 1" if trial.target.scripts.polls else _USED
            get_client(patient.using).eval(used, 1, trial.name)
        _try(trial, look)
        # Groups need a few rights more, and so does who looks.
        with suppress(LockUnsupported):
            first, second = (semaphore(f"{key}:2", 2, replicas=0, **options) for _ in range(2))
            with first, second:
                look.get(first.name)
        look.find(1, within=1)
    except LockUnavailable as error:
        if error.cause in _ABSENT:
            raise
        return error
    return None


def _try(trial: RedisLock, look: Inspector) -> None:
    """Take ``trial``, renew it, and have others wait for it. Raises LockUnavailable."""
    held = trial.take()
    try:
        held.reacquire()
        if trial.target.scripts.polls:
            return
        with suppress(LockBusy):
            trial.take(_WAIT)
        with suppress(LockBusy):
            # Tasks wait at another list.
            asyncio.run(_wait_for(trial))
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(trial.take, _LEASE)
            while not (following.done() or look.get(trial.name).waiting):
                time.sleep(_PAUSE)
            held.release()
            following.result().release()
    finally:
        with suppress(LockError):
            if not held.released:
                held.release()


async def _wait_for(trial: RedisLock) -> None:
    await (await trial.atake(_WAIT)).arelease()


def _refusal(patient: Patient, error: LockUnavailable) -> Finding:
    if error.cause == "replicas" and error.__cause__ is None:
        return patient.error(
            "D009",
            f"Each lock waits for {patient.settings['REPLICAS']} replicas to acknowledge it, and "
            f"fewer do, though {patient.online_replicas} seem to be online: every one is refused.",
            "Look why they are behind, or lower REPLICAS of SETNX_LOCK.",
        )
    said = str(error.__cause__ or error).rstrip(".")
    if error.cause == "denied" or any(one in said.lower() for one in _NOT_THERE):
        return patient.error(
            "D002",
            f"Redis refuses what locks need: {said}.",
            "Give the user of the cache the rights it needs. A server or proxy that has no Lua "
            "scripts cannot hold locks; one that lets nobody wait (BRPOP) can, with PROTOCOL "
            f"'hosted' in SETNX_LOCK. See {docs_url('redis', 'rights')}",
        )
    if error.cause == "readonly":
        return _replica(patient)
    return patient.error(
        "D004",
        f"No lock can be taken there: {said}.",
        "Remove the cause that Redis names: memory that is full, replicas that are missing for "
        "min-replicas-to-write, a disk it cannot write to.",
    )


def _replica(patient: Patient) -> Finding:
    return patient.error(
        "D003",
        "It is a replica: its primary does not know of a lock that is taken here.",
        "Point the LOCATION of the cache at the primary, or have Sentinel name it.",
    )


def doctor(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write what was found where the locks are. Raises CommandError when that is bad."""
    examined, findings = examine(aliases_of(options["using"]))
    if options["json"]:
        found = [
            asdict(one) | {"severity": one.severity.name.lower(), "docs": one.docs}
            for one in findings
        ]
        write(out, json.dumps({"examined": examined, "findings": found}, indent=2))
    else:
        write(out, "\n".join(map(printable, _as_text(examined, findings))))
    if any(one.id == _UNREACHABLE for one in findings):
        raise CommandError("not all could be reached", returncode=statuses.UNAVAILABLE)
    if any(one.severity is Severity.ERROR for one in findings):
        raise CommandError("there are errors", returncode=2)


def _as_text(examined: Mapping[str, str], findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines of the report: the findings of each alias below it, the worst first."""
    for using, about in examined.items():
        yield f"{using}: {about}"
        own = [one for one in findings if one.using == using]
        for one in sorted(own, key=lambda finding: -finding.severity):
            yield f"  {one.severity.name} {one.id}: {one.seen}"
            yield f"    {one.remedy}"
            yield f"    {one.docs}"
        yield ""
    counts = [sum(one.severity is severity for one in findings) for severity in Severity]
    yield "Errors: {2}. Warnings: {1}. Good to know: {0}.".format(*counts)


def examine(aliases: Sequence[str]) -> tuple[dict[str, str], list[Finding]]:
    """Examine the Redis behind each of ``aliases``; three or more are the masters of a Redlock.

    Return what is said of each alias, and what was found. Raises ImproperlyConfigured for a cache
    that cannot hold locks.
    """
    examined: dict[str, str] = {}
    findings: list[Finding] = []
    places: dict[str, str] = {}
    for alias in aliases:
        try:
            patients = admit(alias, is_master=len(aliases) >= FEWEST)
            # One lock is enough, also on a cluster.
            findings += [*examine_taking(patients[0]), *_of_all(patients, places)]
            examined[alias] = "; ".join(patient.about for patient in patients)
        except LockUnavailable as error:
            said = problem(error)
            seen, advice = f"{said['problem']} {said['detail']}", said["advice"]
            if error.cause == "timeout":
                seen += f" It was given {socket_timeout_of(get_client(alias)) or 5:g} s."
            elif error.cause == "server":
                advice = "See what Redis says: LOCATION may name a database that it does not have."
            examined[alias] = "not examined"
            findings.append(Finding(_UNREACHABLE, Severity.ERROR, alias, seen, advice))
    return examined, findings


def _of_all(patients: Sequence[Patient], places: dict[str, str]) -> Iterator[Finding]:
    """Yield each finding once for all ``patients``; it says where, if it is not so at all."""
    found: dict[Finding, list[str]] = {}
    for patient in patients:
        here = [one for examination in EXAMINATIONS for one in examination(patient)]
        for one in [*here, *_same_server(patient, places)]:
            found.setdefault(one, []).append(session_of(patient.client).where)
    for one, where in found.items():
        is_everywhere = len(where) >= len(patients)
        yield one if is_everywhere else replace(one, seen=f"At {', '.join(where)}: {one.seen}")


def _same_server(patient: Patient, places: dict[str, str]) -> Iterator[Finding]:
    """D016: the masters of a Redlock are servers of their own."""
    run_id = patient.info.get("run_id") if patient.is_master else None
    if run_id and (other := places.setdefault(run_id, patient.using)) != patient.using:
        yield patient.error(
            "D016",
            f"The caches {other!r} and {patient.using!r} lead to one server, which counts twice "
            "for a Redlock: with it a majority is lost at once.",
            "Give each master of a Redlock a server of its own.",
        )


def examine_rights(patient: Patient) -> Iterator[Finding]:
    """D005: the doctor may look at everything."""
    if patient.refused:
        yield patient.warning(
            "D005",
            f"Redis refuses {', '.join(patient.refused)}, so not everything was examined.",
            "Have the doctor look at it by an alias whose user has +info +config|get +scan +time "
            "besides, given with --using.",
        )


def examine_eviction(patient: Patient) -> Iterator[Finding]:
    """D006: nothing is evicted. Locks have a lease, so that volatile- policies drop them, too."""
    policy = patient.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    limit = int(patient.info.get("maxmemory", 0))
    when = (
        f"memory is limited to {limit:,} bytes: when it is full, locks that are held are dropped"
        if limit
        else "it has no effect as long as maxmemory is 0; with a limit, locks would be dropped"
    )
    yield patient.finding(
        Severity.ERROR if limit else Severity.WARNING,
        "D006",
        f"maxmemory-policy is {policy}, and {when}.",
        "Set maxmemory-policy to noeviction, or keep the locks on a server of their own: it is "
        "set for a whole server, not for a database.",
    )


def examine_persistence(patient: Patient) -> Iterator[Finding]:
    """D008: a restart does not forget the locks."""
    if "aof_enabled" not in patient.info:
        return
    severity = Severity.INFO
    if patient.info["aof_enabled"]:
        policy = patient.config.get("appendfsync", "always")
        if policy == "always":
            return
        seen = (
            f"appendfsync is {policy}: a crash of the machine forgets the locks of the last second "
            "or more."
        )
    elif patient.config.get("save"):
        seen = "There are snapshots only: a crash forgets all locks that were taken after the last."
    elif "save" in patient.config:
        severity = Severity.WARNING
        seen = (
            "Nothing is written to disk: a restart lets go of all locks, while their holders work."
        )
    else:
        return
    yield patient.finding(
        severity,
        "D008",
        seen,
        "Set appendonly to yes (with appendfsync always nothing is forgotten, and each lock waits "
        "for the disk), or have the server stay away after a crash for longer than the leases.",
    )


def examine_replicas(patient: Patient) -> Iterator[Finding]:
    """D009: as many replicas are there as locks wait for, and locks wait for those there are."""
    wanted, there = patient.settings["REPLICAS"], patient.online_replicas
    if patient.is_node and wanted:
        yield patient.error(
            "D009",
            f"REPLICAS is {wanted}, which cannot be had on a cluster: every lock is refused.",
            "Set REPLICAS of SETNX_LOCK to 0, or give the locks a cache with one primary.",
        )
    if "connected_slaves" not in patient.info or patient.is_master or patient.is_node:
        return
    if wanted > there:
        yield patient.error(
            "D009",
            f"Each lock waits for {wanted} replicas to acknowledge it, and {there} are online: "
            "every one is refused.",
            "Start the replicas, or lower REPLICAS of SETNX_LOCK.",
        )
    elif there and not wanted:
        yield patient.note(
            "D009",
            f"{there} replicas are online, and no lock waits for any: a failover forgets the locks "
            "that they had not heard of.",
            f"Where that matters, set REPLICAS of SETNX_LOCK to 1: see {docs_url('replicas')}",
        )


def examine_old_primary(patient: Patient) -> Iterator[Finding]:
    """D017: a primary that no replica follows any more grants nothing."""
    least = patient.config.get("min-replicas-to-write")
    if least is None or int(least) or not patient.online_replicas or patient.is_node:
        return
    watched = getattr(patient.client.connection_pool, "sentinel_manager", None) is not None
    yield patient.finding(
        # Elsewhere somebody promotes a replica by hand, and may see to it.
        Severity.WARNING if watched else Severity.INFO,
        "D017",
        "min-replicas-to-write is 0: when another primary takes its place while it goes on "
        "answering, it grants locks that are granted there, too.",
        "Set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds, on all servers: "
        f"see {docs_url('sentinel')}",
    )


def examine_keys(patient: Patient) -> Iterator[Finding]:
    """D011: nothing but locks is in the database."""
    answer = patient.ask("SCAN", lambda: patient.client.scan(count=_SAMPLE))
    if answer is None:
        return
    names = [
        name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        for name in answer[1]
    ]
    others = sorted(name for name in names if patient.settings["KEY_PREFIX"] not in name)
    if not others:
        return
    few = ", ".join(map(repr, others[:_FEW]))
    yield patient.warning(
        "D011",
        f"Other things are in the database of the locks: {len(others)} of {len(names)} keys that "
        f"were looked at, as {few}. Whoever empties it for their sake lets go of all locks.",
        "Keep the locks in a database of their own.",
    )


def examine_clock(patient: Patient) -> Iterator[Finding]:
    """D012: where locks hold times, the clock of this machine agrees with the server's."""
    ahead = abs(patient.ahead)
    has_times = patient.settings["PROTOCOL"].startswith("timestamp")
    if not has_times or ahead < _APART + patient.round_trip / 2:
        return
    way = "ahead of" if patient.ahead > 0 else "behind"
    yield patient.warning(
        "D012",
        f"The clock of this machine is {ahead:.1f} s {way} the server's. Older programs that take "
        "timestamp locks here go by it, and take them too early or too late.",
        "Have both machines keep their clocks by NTP.",
    )


def examine_socket_timeout(patient: Patient) -> Iterator[Finding]:
    """D013: a server that hangs is given up. A Redlock has times of its own for its masters."""
    if not patient.is_master and socket_timeout_of(patient.client) is None:
        yield patient.warning(
            "D013",
            "There is no socket timeout: when the server hangs, callers of the cache wait for it "
            "without limit, and those of locks for 10 s.",
            "Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in the OPTIONS of the cache.",
        )


#: What the doctor looks for at each server, in this order; :func:`examine_taking` comes before.
EXAMINATIONS: Sequence[Callable[[Patient], Iterator[Finding]]] = (
    examine_eviction,
    examine_persistence,
    examine_replicas,
    examine_old_primary,
    examine_keys,
    examine_clock,
    examine_socket_timeout,
    # Last: the others ask the server, too.
    examine_rights,
)
