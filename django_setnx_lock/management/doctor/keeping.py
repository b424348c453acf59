"""Whether locks outlast a restart, a failover and a clear()."""

from __future__ import annotations

from collections.abc import Iterator

from ...connection import database_of, get_client, redis_aliases
from ...core.calling import translated
from ...core.cluster.shared import is_cluster
from ...core.errors import LockUnavailable
from .finding import Finding, Severity
from .patient import Patient

_SAMPLE = 1000
_FEW = 3


def examine_persistence(patient: Patient) -> Iterator[Finding]:
    """D008: a restart does not forget the locks."""
    if "aof_enabled" not in patient.info:
        return
    if patient.info["aof_enabled"]:
        if patient.config.get("appendfsync", "always") == "always":
            return
        severity, seen = (
            Severity.INFO,
            f"appendfsync is {patient.config['appendfsync']}: a crash of the machine forgets the "
            "locks of the last second or more.",
        )
    elif patient.config.get("save"):
        severity, seen = (
            Severity.INFO,
            "There are snapshots only: a crash forgets all locks that were taken after the last.",
        )
    elif "save" in patient.config:
        severity, seen = (
            Severity.WARNING,
            "Nothing is written to disk: a restart lets go of all locks, while their holders work.",
        )
    else:
        return
    yield Finding(
        "D008",
        severity,
        patient.using,
        seen,
        "Set appendonly to yes (with appendfsync always nothing is forgotten, and each lock waits "
        "for the disk), or have the server stay away after a crash for longer than the leases.",
    )


def examine_replicas(patient: Patient) -> Iterator[Finding]:
    """D009: as many replicas are there as locks wait for, and locks wait for those there are."""
    wanted, there = patient.settings["REPLICAS"], patient.online_replicas
    if patient.is_node and wanted:
        yield Finding(
            "D009",
            Severity.ERROR,
            patient.using,
            f"REPLICAS is {wanted}, which cannot be had on a cluster: every lock is refused.",
            "Set REPLICAS of SETNX_LOCK to 0, or give the locks a cache with one primary.",
        )
    if "connected_slaves" not in patient.info or patient.is_master or patient.is_node:
        return
    if wanted > there:
        yield Finding(
            "D009",
            Severity.ERROR,
            patient.using,
            f"Each lock waits for {wanted} replicas to acknowledge it, and {there} are online: "
            "every one is refused.",
            "Start the replicas, or lower REPLICAS of SETNX_LOCK.",
        )
    elif there and not wanted:
        yield Finding(
            "D009",
            Severity.INFO,
            patient.using,
            f"{there} replicas are online, and no lock waits for any: a failover forgets the locks "
            "that they had not heard of.",
            "Where that matters, set REPLICAS of SETNX_LOCK to 1: see docs/replicas.md.",
        )


def examine_old_primary(patient: Patient) -> Iterator[Finding]:
    """D017: a primary that no replica follows any more grants nothing."""
    least = patient.config.get("min-replicas-to-write")
    if least is None or int(least) or not patient.online_replicas or patient.is_node:
        return
    watched = getattr(patient.client.connection_pool, "sentinel_manager", None) is not None
    yield Finding(
        "D017",
        # Elsewhere somebody promotes a replica by hand, and may see to it.
        Severity.WARNING if watched else Severity.INFO,
        patient.using,
        "min-replicas-to-write is 0: when another primary takes its place while it goes on "
        "answering, it grants locks that are granted there, too.",
        "Set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds, on all servers: "
        "see docs/sentinel.md.",
    )


def examine_clear(patient: Patient) -> Iterator[Finding]:
    """D010: no cache that something else is kept in can be cleared together with the locks."""
    clearing = [alias for alias in redis_aliases() if _shares_database(patient, alias)]
    if patient.using == "default":
        clearing.insert(0, "default")
    if not clearing:
        return
    yield Finding(
        "D010",
        Severity.WARNING,
        patient.using,
        f"clear() of the cache {clearing[0]!r} empties the database that the locks are in.",
        "Give the locks an alias of their own with a database of its own (…/1 in its LOCATION), "
        "and name it in CACHE of SETNX_LOCK.",
    )


def _shares_database(patient: Patient, alias: str) -> bool:
    if alias == patient.using:
        return False
    if database_of(alias) == database_of(patient.using):
        return True
    # One server may have two names.
    client = get_client(alias)
    if is_cluster(client):
        return False
    try:
        with translated(""):
            run_id = client.info("server").get("run_id")
    except LockUnavailable:
        return False
    databases = [
        one.connection_pool.connection_kwargs.get("db") or 0 for one in (client, patient.client)
    ]
    return bool(run_id) and run_id == patient.info.get("run_id") and len(set(databases)) == 1


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
    yield Finding(
        "D011",
        Severity.WARNING,
        patient.using,
        f"Other things are in the database of the locks: {len(others)} of {len(names)} keys that "
        f"were looked at, as {few}. Whoever empties it for their sake lets go of all locks.",
        "Keep the locks in a database of their own.",
    )
