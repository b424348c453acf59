"""Whether the times that are configured go together, and the clocks."""

from __future__ import annotations

from collections.abc import Iterator

from ...connection import socket_timeout_of
from .finding import Finding, Severity
from .patient import Patient

# Less is usual between machines, and nothing here goes by it.
_APART = 1.0
_NEARLY = 0.8


def examine_clock(patient: Patient) -> Iterator[Finding]:
    """D012: the clock of this machine agrees with the server's."""
    if abs(patient.ahead) < _APART + patient.round_trip / 2:
        return
    by_the_clock = patient.settings["PROTOCOL"] == "timestamp"
    way = "ahead of" if patient.ahead > 0 else "behind"
    yield Finding(
        "D012",
        Severity.WARNING if by_the_clock else Severity.INFO,
        patient.using,
        f"The clock of this machine is {abs(patient.ahead):.1f} s {way} the server's. "
        + (
            "Older programs that take timestamp locks here go by it, and take them too early or "
            "too late."
            if by_the_clock
            else "No lock goes by it, but times in logs do."
        ),
        "Have both machines keep their clocks by NTP.",
    )


def examine_socket_timeout(patient: Patient) -> Iterator[Finding]:
    """D013: a server that hangs is given up, though not sooner than a caller would."""
    if patient.is_master:
        # A Redlock has times of its own for its masters.
        return
    limit, is_set = socket_timeout_of(patient.client)
    wait = patient.settings["BLOCKING_TIMEOUT"]
    if limit is None:
        yield Finding(
            "D013",
            Severity.WARNING,
            patient.using,
            "There is no socket timeout: when the server hangs, callers of the cache wait for it "
            "without limit, and those of locks for 5 s.",
            "Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in the OPTIONS of the cache.",
        )
    elif wait is None or limit < wait:
        yield Finding(
            "D013",
            # Some versions of redis-py have one that nobody has chosen.
            Severity.WARNING if is_set else Severity.INFO,
            patient.using,
            f"The socket timeout is {limit:g} s, and a caller may wait "
            + ("without limit. " if wait is None else f"for {wait:g} s. ")
            + "A server that stalls for longer than the former ends the wait.",
            "Raise SOCKET_TIMEOUT in the OPTIONS of the cache, or lower BLOCKING_TIMEOUT.",
        )


def examine_pool(patient: Patient) -> Iterator[Finding]:
    """D014: there are connections enough, in the pool and on the server."""
    pool, workers = patient.client.connection_pool, patient.workers
    threads, most = workers.threads or 1, getattr(pool, "max_connections", None)
    seen = remedy = ""
    patience, wait = getattr(pool, "timeout", None), patient.settings["BLOCKING_TIMEOUT"]
    if most is not None and most < threads:
        seen = (
            f"The pool has {most} connections at most for {threads} threads: looking at locks, and "
            "taking several at once, is refused or waits when they are all in use."
        )
        remedy = "Raise max_connections in CONNECTION_POOL_KWARGS to the number of threads."
    elif patience is not None and wait is not None and patience > wait:
        seen = (
            f"A caller waits up to {patience:g} s for a connection of the pool, longer than the "
            f"{wait:g} s of BLOCKING_TIMEOUT."
        )
        remedy = "Lower the timeout of the pool in CONNECTION_POOL_KWARGS."
    if seen:
        yield Finding("D014", Severity.WARNING, patient.using, seen, remedy)
    # Each thread may ask on one connection and wait on another; one renews.
    needed = (workers.count or 1) * (2 * threads + 1)
    there = int(patient.info.get("maxclients", patient.config.get("maxclients", needed)))
    connected = int(patient.info.get("connected_clients", 0))
    if connected > _NEARLY * there:
        yield Finding(
            "D014",
            Severity.WARNING,
            patient.using,
            f"{connected} of {there} connections of the server (maxclients) are in use. When they "
            "all are, who connects is refused.",
            "Raise maxclients of the server, or find out who keeps so many connections.",
        )
    if needed > there:
        yield Finding(
            "D014",
            Severity.WARNING,
            patient.using,
            f"{workers.count or 1} workers of {threads} threads may need {needed} connections, and "
            f"the server has {there} (maxclients).",
            "Raise maxclients of the server.",
        )


def examine_workers(patient: Patient) -> Iterator[Finding]:
    """D015: the server of the site ends no worker that waits or holds, and no lease ends sooner."""
    workers, lease = patient.workers, patient.settings["TIMEOUT"]
    if workers.timeout is None:
        return
    ends = f"A worker is ended after {workers.timeout:g} s ({workers.source})"
    wait = patient.settings["BLOCKING_TIMEOUT"]
    if wait is None or wait >= workers.timeout:
        yield Finding(
            "D015",
            Severity.WARNING,
            patient.using,
            f"{ends}, and a caller may wait for a lock "
            + ("without limit." if wait is None else f"for {wait:g} s."),
            "Lower BLOCKING_TIMEOUT of SETNX_LOCK: who waits is ended before it hears that the "
            "lock is busy.",
        )
    if lease < workers.timeout:
        renews = patient.settings["RENEW"]
        yield Finding(
            "D015",
            Severity.INFO if renews else Severity.WARNING,
            patient.using,
            f"{ends}, and a lease after {lease:g} s: "
            + (
                "a worker that is too stuck to renew its locks works on without them."
                if renews
                else "a request that takes longer works on without its lock, as RENEW is off."
            ),
            "Raise TIMEOUT of SETNX_LOCK above it, or end workers sooner.",
        )
