"""Whether the server may drop or refuse locks for want of memory."""

from __future__ import annotations

from collections.abc import Iterator

from .finding import Finding, Severity
from .patient import Patient

_NEARLY = 0.9


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
    yield Finding(
        "D006",
        Severity.ERROR if limit else Severity.WARNING,
        patient.using,
        f"maxmemory-policy is {policy}, and {when}.",
        "Set maxmemory-policy to noeviction, or keep the locks on a server of their own: it is "
        "set for a whole server, not for a database.",
    )


def examine_memory(patient: Patient) -> Iterator[Finding]:
    """D007: there is memory left, without which a server that evicts nothing grants no locks."""
    limit, used = (int(patient.info.get(name, 0)) for name in ("maxmemory", "used_memory"))
    if patient.info.get("maxmemory_policy") != "noeviction" or not limit or used < _NEARLY * limit:
        return
    yield Finding(
        "D007",
        Severity.WARNING,
        patient.using,
        f"{used:,} of {limit:,} bytes of memory are used. When they all are, no lock can be taken.",
        "Raise maxmemory, or move what fills it to another server.",
    )
