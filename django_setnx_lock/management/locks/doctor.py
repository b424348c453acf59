"""``manage.py locks doctor``: what there can cost a lock, and what to do about it.

Each finding has an id and a section in docs/locks-command.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.connection import get_client, socket_timeout_of
from django_setnx_lock.core.connections.quorum import FEWEST
from django_setnx_lock.core.connections.session import session_of
from django_setnx_lock.core.errors import LockUnavailable, docs_url
from django_setnx_lock.descriptions import problem
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable

from .listing import aliases_of
from .patient import Finding, Patient, Severity, admit, examine_taking
from .printing import write

_UNREACHABLE = "D001"
# A clock may be so far off, in seconds: less is usual between machines.
_APART = 1.0
# How many keys are looked at, and how many of them named.
_SAMPLE, _FEW = 1000, 3


@dataclass(kw_only=True, slots=True)
class Report:
    """What was examined, by cache alias what is said of it, and what was found."""

    examined: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs. These names stay."""
        findings = [
            asdict(one) | {"severity": one.severity.name.lower(), "docs": one.docs}
            for one in self.findings
        ]
        return {"examined": self.examined, "findings": findings}

    def as_text(self) -> list[str]:
        """Return the report for people: the findings of each alias below it, the worst first."""
        lines = []
        for using, about in self.examined.items():
            lines += [f"{using}: {about}"]
            own = [one for one in self.findings if one.using == using]
            for one in sorted(own, key=lambda finding: -finding.severity):
                lines.append(f"  {one.severity.name} {one.id}: {one.seen}")
                lines += [f"    {one.remedy}", f"    {one.docs}"]
            lines.append("")
        counts = [sum(one.severity is severity for one in self.findings) for severity in Severity]
        return [*lines, "Errors: {2}. Warnings: {1}. Good to know: {0}.".format(*counts)]


def doctor(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write what was found where the locks are. Raises CommandError when that is bad."""
    report = examine(aliases_of(options["using"]))
    if options["json"]:
        write(out, json.dumps(report.as_json(), indent=2))
    else:
        write(out, "\n".join(map(printable, report.as_text())))
    if any(one.id == _UNREACHABLE for one in report.findings):
        raise CommandError("not all could be reached", returncode=statuses.UNAVAILABLE)
    if any(one.severity is Severity.ERROR for one in report.findings):
        raise CommandError("there are errors", returncode=2)


def examine(aliases: Sequence[str]) -> Report:
    """Examine the Redis behind each of ``aliases``; three or more are the masters of a Redlock.

    Raises ImproperlyConfigured for a cache that cannot hold locks.
    """
    report = Report()
    places: dict[str, str] = {}
    for alias in aliases:
        try:
            patients = admit(alias, is_master=len(aliases) >= FEWEST)
            # One lock is enough, also on a cluster.
            found = [*examine_taking(patients[0]), *_of_all(patients, places)]
        except LockUnavailable as error:
            said = problem(error)
            seen, advice = f"{said['problem']} {said['detail']}", said["advice"]
            if error.cause == "timeout":
                seen += f" It was given {socket_timeout_of(get_client(alias)) or 5:g} s."
            elif error.cause == "server":
                advice = "See what Redis says: LOCATION may name a database that it does not have."
            report.examined[alias] = "not examined"
            found = [Finding(_UNREACHABLE, Severity.ERROR, alias, seen, advice)]
        else:
            report.examined[alias] = "; ".join(patient.about for patient in patients)
        report.findings += found
    return report


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
        "D006",
        Severity.ERROR if limit else Severity.WARNING,
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
        "D008",
        severity,
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
        "D017",
        # Elsewhere somebody promotes a replica by hand, and may see to it.
        Severity.WARNING if watched else Severity.INFO,
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
