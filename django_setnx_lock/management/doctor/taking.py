"""Whether a lock can be taken there at all: one is, renewed, waited for and let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

from ...core.errors import LockError, LockUnavailable
from ...core.lock import RedisLock
from ...core.waiting import Mailbox
from ...locks import lock
from .finding import Finding, Severity
from .patient import ABSENT, Patient

_LEASE = 5
# How long it is waited for; Redis ends that up to 0.1 s late.
_WAIT = 0.02


def examine_taking(patient: Patient) -> Iterator[Finding]:
    """D002, D003, D004, D009: a lock can be had, which takes scripts, rights and replicas.

    Raises LockUnavailable when Redis is not there.
    """
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
    try:
        _try(trial)
    except LockUnavailable as error:
        if error.cause in ABSENT:
            raise
        yield _refusal(patient, error)


def _try(trial: RedisLock) -> None:
    """Take ``trial``, renew it, have another wait for it and be left it. Raises LockUnavailable."""
    held = trial.take()
    following = trial.turn()
    try:
        held.reacquire()
        following.ask(waits=True)
        mailbox = Mailbox(following.target)
        try:
            # A waiter asks first and reads afterwards what woke it, and tries again what failed
            # once: so it hears of a refusal the third time.
            for _ in range(3):
                mailbox.sleep(following.token, _WAIT)
        finally:
            mailbox.close()
        held.release()
        following.ask(waits=True)
    finally:
        with suppress(LockError):
            if not held.released:
                held.release()
        with suppress(LockError):
            following.leave()


def _refusal(patient: Patient, error: LockUnavailable) -> Finding:
    using = patient.using
    if error.cause == "replicas" and error.__cause__ is None:
        return Finding(
            "D009",
            Severity.ERROR,
            using,
            f"Each lock waits for {patient.settings['REPLICAS']} replicas to acknowledge it, and "
            f"fewer do, though {patient.online_replicas} seem to be online: every one is refused.",
            "Look why they are behind, or lower REPLICAS of SETNX_LOCK.",
        )
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
