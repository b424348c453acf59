"""One Redis: what it answers the doctor, and whether a lock can be taken there."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from redis.exceptions import AuthenticationError, RedisClusterException, RedisError

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import get_client
from django_setnx_lock.core.connections.cluster import ClusterSession
from django_setnx_lock.core.connections.failures import unavailable
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
from django_setnx_lock.locks import inspector, lock, semaphore


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


_T = TypeVar("_T")
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

    def finding(self, id_: str, severity: Severity, seen: str, remedy: str) -> Finding:
        return Finding(id_, severity, self.using, seen, remedy)

    def error(self, id_: str, seen: str, remedy: str) -> Finding:
        return self.finding(id_, Severity.ERROR, seen, remedy)

    def warning(self, id_: str, seen: str, remedy: str) -> Finding:
        return self.finding(id_, Severity.WARNING, seen, remedy)

    def note(self, id_: str, seen: str, remedy: str) -> Finding:
        return self.finding(id_, Severity.INFO, seen, remedy)

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
