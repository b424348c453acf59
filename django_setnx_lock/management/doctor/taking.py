"""Whether a lock can be taken there at all: one is, and let go."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from ...core.errors import LockUnavailable
from ...locks import lock
from .finding import Finding, Severity
from .patient import ABSENT, Patient

_LEASE = 5


def examine_taking(patient: Patient) -> Iterator[Finding]:
    """D002, D003, D004: a lock can be taken and let go, which takes scripts and rights.

    Raises LockUnavailable when Redis is not there.
    """
    trial = lock(
        f"doctor:{uuid4()}",
        using=patient.using,
        timeout=_LEASE,
        blocking=False,
        replicas=0,
        renew=False,
        label="locks doctor",
    )
    try:
        trial.take().release()
    except LockUnavailable as error:
        if error.cause in ABSENT:
            raise
        yield _refusal(patient.using, error)


def _refusal(using: str, error: LockUnavailable) -> Finding:
    said = str(error.__cause__ or error).rstrip(".")
    if error.cause == "denied" or "unknown command" in said.lower():
        return Finding(
            "D002",
            Severity.ERROR,
            using,
            f"Redis refuses what a lock needs: {said}.",
            "Check the user name and password of the cache, and give its user the rights in "
            "docs/redis.md#rights. A server that has Lua scripts switched off cannot hold locks.",
        )
    if error.cause == "readonly":
        return Finding(
            "D003",
            Severity.ERROR,
            using,
            "It is a replica, which takes no writes.",
            "Point the LOCATION of the cache at the primary, or have Sentinel name it.",
        )
    return Finding(
        "D004",
        Severity.ERROR,
        using,
        f"No lock can be taken there: {said}.",
        "Remove the cause that Redis names: memory that is full, replicas that are missing for "
        "min-replicas-to-write, a disk it cannot write to.",
    )
