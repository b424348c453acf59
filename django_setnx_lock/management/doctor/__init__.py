"""``manage.py locks doctor``: what there can cost a lock, and what to do about it.

Each finding has an id and a section in docs/locks-command.md. An examination looks for one kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...core.errors import LockUnavailable
from ...core.masters.masters import FEWEST
from ...core.place import place_of
from ...words import problem
from .finding import Examination, Finding, Severity
from .keeping import (
    examine_clear,
    examine_keys,
    examine_old_primary,
    examine_persistence,
    examine_replicas,
)
from .memory import examine_eviction, examine_memory
from .patient import Patient
from .taking import examine_taking
from .times import examine_clock, examine_pool, examine_socket_timeout, examine_workers
from .workers import Workers

_EXAMINATIONS: Sequence[Examination] = (
    examine_eviction,
    examine_memory,
    examine_persistence,
    examine_replicas,
    examine_old_primary,
    examine_clear,
    examine_keys,
    examine_clock,
    examine_socket_timeout,
    examine_pool,
    examine_workers,
)


@dataclass(kw_only=True, slots=True)
class Report:
    """What was examined, by cache alias what is said of it, and what was found."""

    examined: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def worst(self) -> Severity:
        """The worst severity there is."""
        return max((one.severity for one in self.findings), default=Severity.INFO)

    @property
    def is_complete(self) -> bool:
        """Whether all could be reached."""
        return not any(one.id == "D001" for one in self.findings)

    def as_json(self) -> dict[str, Any]:
        """It for programs. These names stay."""
        return {
            "examined": self.examined,
            "findings": [
                {
                    "id": one.id,
                    "severity": one.severity.name.lower(),
                    "using": one.using,
                    "seen": one.seen,
                    "remedy": one.remedy,
                    "docs": one.docs,
                }
                for one in self.findings
            ],
        }

    def as_text(self) -> list[str]:
        """It for people: those of each alias below it, the worst first."""
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


def examine(aliases: Sequence[str], workers: Workers) -> Report:
    """Examine the Redis behind each of ``aliases``; three or more are the masters of a Redlock.

    Raises ImproperlyConfigured for a cache that cannot hold locks.
    """
    report = Report()
    places: dict[str, str] = {}
    for alias in aliases:
        try:
            patients = Patient.admit(alias, workers, is_master=len(aliases) >= FEWEST)
            # One lock is enough, also on a cluster.
            found = list(examine_taking(patients[0]))
            found += _of_all(patients, places)
        except LockUnavailable as error:
            report.examined[alias] = "not examined"
            report.findings.append(_absent(alias, error))
            continue
        report.examined[alias] = "; ".join(patient.about for patient in patients)
        report.findings += found
    return report


def _of_all(patients: Sequence[Patient], places: dict[str, str]) -> Iterator[Finding]:
    """What is found at each of ``patients``, once; what is not so at all of them says where."""
    found: dict[Finding, list[str]] = {}
    for patient in patients:
        here = [one for examination in _EXAMINATIONS for one in examination(patient)]
        for one in [*_unseen(patient), *here, *_same_server(patient, places)]:
            found.setdefault(one, []).append(place_of(patient.client))
    for one, where in found.items():
        is_everywhere = len(where) >= len(patients)
        yield one if is_everywhere else replace(one, seen=f"At {', '.join(where)}: {one.seen}")


def _absent(alias: str, error: LockUnavailable) -> Finding:
    """D001: it can be asked."""
    said = problem(error)
    seen = f"{said['problem']} {said['detail']}"
    return Finding("D001", Severity.ERROR, alias, seen, said["advice"])


def _unseen(patient: Patient) -> Iterator[Finding]:
    """D005: the doctor may look at everything."""
    if patient.refused:
        yield Finding(
            "D005",
            Severity.WARNING,
            patient.using,
            f"Redis refuses {', '.join(patient.refused)}, so not everything was examined.",
            "Have the doctor look at it by an alias whose user has +info +config|get +scan +time "
            "besides, given with --using.",
        )


def _same_server(patient: Patient, places: dict[str, str]) -> Iterator[Finding]:
    """D016: the masters of a Redlock are servers of their own."""
    run_id = patient.info.get("run_id") if patient.is_master else None
    if run_id and (other := places.setdefault(run_id, patient.using)) != patient.using:
        yield Finding(
            "D016",
            Severity.ERROR,
            patient.using,
            f"The caches {other!r} and {patient.using!r} lead to one server, which counts twice "
            "for a Redlock: with it a majority is lost at once.",
            "Give each master of a Redlock a server of its own.",
        )
