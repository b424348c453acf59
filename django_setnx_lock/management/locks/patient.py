"""One Redis: what it answers the doctor, and whether a lock can be taken there."""

from __future__ import annotations

import argparse
import enum
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import get_client
from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.connections.cluster_routes import is_cluster, routes_of
from django_setnx_lock.core.connections.endpoints import server_id
from django_setnx_lock.core.connections.failures import translated
from django_setnx_lock.core.docs import docs_url
from django_setnx_lock.core.errors import LockError, LockUnavailable
from django_setnx_lock.core.locks.lock import RedisLock
from django_setnx_lock.core.locks.mailbox import BlockingMailbox
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.protocol.keys import lock_keys, mailbox_beside
from django_setnx_lock.locks import lock


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


# The options of gunicorn that matter here.
_GUNICORN = (("-t", "--timeout"), ("-w", "--workers"), ("--threads",), ("-k", "--worker-class"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The workers of the site's server, which runs in other processes, as far as they are known."""

    # After how many seconds a request is ended together with its worker, and who said so.
    timeout: float | None = None
    source: str = ""
    count: int | None = None
    threads: int | None = None

    @classmethod
    def known(cls, timeout: float | None, environment: Mapping[str, str]) -> Workers:
        """Return what ``--worker-timeout`` says, else what servers read from the environment."""
        gunicorn = _gunicorn_options(environment.get("GUNICORN_CMD_ARGS", ""))
        threads = _number(gunicorn.threads)
        sources = [("--worker-timeout", timeout)]
        # Other kinds of workers only tell by it that they are alive, whatever a request takes.
        if gunicorn.worker_class in (None, "sync") and (threads or 1) == 1:
            sources.append(("GUNICORN_CMD_ARGS", _number(gunicorn.timeout)))
        sources.append(("UWSGI_HARAKIRI", _number(environment.get("UWSGI_HARAKIRI"))))
        source, seconds = next(((name, given) for name, given in sources if given), ("", None))
        return cls(
            timeout=seconds,
            source=source,
            count=_number(gunicorn.workers or environment.get("WEB_CONCURRENCY")),
            threads=threads,
        )


def _gunicorn_options(arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for names in _GUNICORN:
        parser.add_argument(*names, nargs="?", const="")
    words: list[str] = []
    with suppress(ValueError):
        words = shlex.split(arguments)
    return parser.parse_known_args(words)[0]


def _number(text: str | None) -> int | None:
    """Return the whole number that ``text`` is; None when it is none."""
    try:
        return int(text or "")
    except ValueError:
        return None


_T = TypeVar("_T")
# Where Redis is not there, there is nothing to be examined.
_ABSENT = frozenset({"unreachable", "timeout"})
_SAMPLES = 5
# The lease of the lock that is tried, and how long it is waited for; Redis ends that 0.1 s late.
_LEASE, _WAIT = 5, 0.02


@dataclass(kw_only=True)
class Patient:
    """The Redis behind the cache ``using``, and how the project uses it."""

    using: str
    client: Any
    settings: Mapping[str, Any]
    workers: Workers
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
        """Ask it what it is. Raises LockUnavailable when it cannot be reached."""
        client = self.client
        self.info = self.ask("INFO", client.info) or {}
        self.config = self.ask("CONFIG GET", lambda: client.config_get("*")) or {}
        samples = [self.ask("TIME", lambda: _compared(client)) for _ in range(_SAMPLES)]
        self.round_trip, self.ahead = min(filter(None, samples), default=(0, 0))

    def ask(self, name: str, run: Callable[[], _T]) -> _T | None:
        """Return ``run()``; where Redis refuses it, None, and note ``name`` as refused."""
        try:
            with translated(""):
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
        return f"{name} at {server_id(self.client)}, {1000 * self.round_trip:.1f} ms a round trip"

    @property
    def online_replicas(self) -> int:
        """How many replicas are up to date but for what is on its way."""
        count = int(self.info.get("connected_slaves", 0))
        replicas = (self.info.get(f"slave{number}", {}) for number in range(count))
        return sum(replica.get("state") == "online" for replica in replicas)


def admit(using: str, workers: Workers, *, is_master: bool = False) -> list[Patient]:
    """Question the Redis behind the cache ``using``; each primary if it is a cluster.

    Raises LockUnavailable, and ImproperlyConfigured for a cache that cannot hold locks.
    """
    client = get_client(using)
    clients, is_node = [client], is_cluster(client)
    if is_node:
        with translated(""):
            clients = routes_of(client).primaries()
    common: dict[str, Any] = {"using": using, "settings": get_config(), "workers": workers}
    patients = [
        Patient(client=one, is_master=is_master, is_node=is_node, **common) for one in clients
    ]
    for patient in patients:
        patient.question()
    return patients


def _compared(client: Any) -> tuple[float, float]:
    """Return how long a round trip took, and how far our clock was ahead in its middle."""
    sent, started = time.time(), time.monotonic()
    seconds, micros = client.time()
    took = time.monotonic() - started
    return took, sent + took / 2 - (seconds + micros / 1e6)


# How each command is tried without any effect: the first key holds a string, and the second is
# absent. Whether the user may run a command at all is asked before what the key holds.
TRIALS: Mapping[str, str] = {
    "SET": "KEYS[1], '', 'PX', 1000",
    "GET": "KEYS[1]",
    "TYPE": "KEYS[1]",
    "PTTL": "KEYS[1]",
    "EXISTS": "KEYS[1]",
    "TIME": "",
    "LPUSH": "KEYS[1], ''",
    "HSET": "KEYS[1], '', ''",
    "HGET": "KEYS[1], ''",
    "HDEL": "KEYS[1], ''",
    "ZADD": "KEYS[1], 0, ''",
    "ZREM": "KEYS[1], ''",
    "ZCARD": "KEYS[1]",
    "ZSCORE": "KEYS[1], ''",
    "ZRANGE": "KEYS[1], 0, 0",
    "ZRANGEBYSCORE": "KEYS[1], 0, 0",
    "ZREMRANGEBYSCORE": "KEYS[1], 0, 0",
    "PEXPIRE": "KEYS[2], 1",
    "PEXPIREAT": "KEYS[2], 1",
    "XADD": "KEYS[1], '*', '', ''",
    "SCAN": "0",
    "DEL": "KEYS[1]",
}

# A command in Lua; ask() is in asking.lua.
_CALL = re.compile(r"\b(?:redis\.p?call|ask)\('([A-Z]+)'")
# Nothing may be written where the first key holds nothing.
_SOURCE = """
local refused, is_set = {{}}, false
local function try(name, ...)
  if name ~= 'SET' and not is_set then
    return
  end
  local reply = redis.pcall(name, ...)
  local said = type(reply) == 'table' and reply.err or ''
  is_set = is_set or said == ''
  if string.find(said, 'permission') or string.find(said, 'run this command')
    or string.find(said, 'nknown') then
    table.insert(refused, name)
  end
end
{trials}
return refused
"""


def needed(*, polls: bool, has_index: bool, has_history: bool) -> set[str]:
    """Return the commands that scripts send, and those that list the locks.

    Without those that only a search through many locks takes.
    """
    sources = [
        script.source
        for script in vars(scripts).values()
        if isinstance(script, scripts.Script)
        and script is not scripts.SEARCH
        and script.name.startswith("polling_") == polls
    ]
    listing = {"ZCARD", "ZRANGE"} if has_index else {"SCAN"}
    noting = set() if has_history and has_index else {"XADD"}
    return {*_CALL.findall("".join(sources)), *listing} - noting


def refused(patient: Patient, name: str) -> list[str]:
    """Return the commands that are refused, or not there, in lower case, as ACL rules have them.

    ``name``: of a lock that nobody else uses. Where SET is refused, that alone is found.
    """
    settings = patient.settings
    # A cluster has no index.
    wanted = needed(
        polls=settings["POLLING"],
        has_index=settings["INDEX"] and not patient.is_node,
        has_history=settings["HISTORY"] is not None,
    )
    trials = "\n".join(
        f"try({', '.join(filter(None, (repr(command), arguments)))})"
        for command, arguments in TRIALS.items()
        if command in wanted
    )
    source = _SOURCE.format(trials=trials)
    with translated(""):
        # Not by EVALSHA, so that the right to send a script is tried, too.
        found = get_client(patient.using).eval(source, 2, name, lock_keys(name).tombstone("doctor"))
    return [(one.decode() if isinstance(one, bytes) else str(one)).lower() for one in found]


def examine_taking(patient: Patient) -> Iterator[Finding]:
    """D002, D003, D004, D009: a lock can be had, which takes scripts, rights and replicas."""
    wanted = patient.settings["REPLICAS"]
    # Where too few are online, or it is a cluster, D009 tells by itself.
    is_known_missing = "connected_slaves" in patient.info and wanted > patient.online_replicas
    can_wait = not (is_known_missing or patient.is_master or patient.is_node)
    trial = lock(
        f"doctor:{uuid4()}",
        using=patient.using,
        timeout=_LEASE,
        blocking=False,
        replicas=wanted if can_wait else 0,
        reentrant=False,
        renew=False,
        label="locks doctor",
    )
    error, lacking = _trouble(lambda: _try(trial)), list[str]()
    if error is None or _is_refused(error):
        # It may need more than what it stumbled over first, and other kinds of locks, too.
        more = _trouble(lambda: lacking.extend(refused(patient, trial.name)))
        error = error or more
    if lacking:
        yield _lacking(patient, f"the commands {', '.join(lacking)}")
    elif error is not None:
        yield _refusal(patient, error)


def _trouble(run: Callable[[], object]) -> LockUnavailable | None:
    """Return why ``run`` failed, if it did. Raises LockUnavailable when Redis is not there."""
    try:
        run()
    except LockUnavailable as error:
        if error.cause in _ABSENT:
            raise
        return error
    return None


def _try(trial: RedisLock) -> None:
    """Take ``trial``, renew it, have another wait for it and be left it. Raises LockUnavailable."""
    held = trial.take()
    following = trial.attempt()
    try:
        held.reacquire()
        run(following.ask(BLOCKING, waits=True))
        mailbox = BlockingMailbox(following.target)
        try:
            # A waiter asks first and reads afterwards what woke it, and tries again what failed
            # once: so it hears of a refusal the third time.
            for _ in range(3):
                run(mailbox.sleep(following.token, _WAIT))
        finally:
            mailbox.close()
        target = held.grant.target
        if target.index is not None and target.command_set.wakes_waiters:
            # As an event loop does for its tasks.
            with translated(trial.key):
                trial.client.bzpopmin(mailbox_beside(target.index), _WAIT)
        held.release()
        run(following.ask(BLOCKING, waits=True))
    finally:
        with suppress(LockError):
            if not held.released:
                held.release()
        with suppress(LockError):
            run(following.cancel(BLOCKING))


def _refusal(patient: Patient, error: LockUnavailable) -> Finding:
    if error.cause == "replicas" and error.__cause__ is None:
        return patient.error(
            "D009",
            f"Each lock waits for {patient.settings['REPLICAS']} replicas to acknowledge it, and "
            f"fewer do, though {patient.online_replicas} seem to be online: every one is refused.",
            "Look why they are behind, or lower REPLICAS of SETNX_LOCK.",
        )
    said = str(error.__cause__ or error).rstrip(".")
    if _is_refused(error):
        return _lacking(patient, said)
    if error.cause == "readonly":
        return patient.error(
            "D003",
            "It is a replica, which takes no writes.",
            "Point the LOCATION of the cache at the primary, or have Sentinel name it.",
        )
    return patient.error(
        "D004",
        f"No lock can be taken there: {said}.",
        "Remove the cause that Redis names: memory that is full, replicas that are missing for "
        "min-replicas-to-write, a disk it cannot write to.",
    )


def _lacking(patient: Patient, what: str) -> Finding:
    return patient.error(
        "D002",
        f"Redis refuses what locks need: {what}.",
        "Check the user name and password of the cache, and give its user the rights it needs. "
        "A server that has Lua scripts switched off cannot hold locks. "
        f"See {docs_url('redis', 'rights')}",
    )


def _is_refused(error: LockUnavailable) -> bool:
    return error.cause == "denied" or "unknown command" in str(error.__cause__ or error).lower()
