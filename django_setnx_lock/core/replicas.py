"""Whether enough replicas know of a lock that was just taken. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import protocol
from .errors import LockUnavailable, subject

DEFAULT_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas have to acknowledge a lock, and within how many milliseconds."""

    count: int
    wait_ms: int

    @property
    def command(self) -> tuple[str, ...]:
        """What is sent behind the request for the lock, on the same connection."""
        return ("WAIT", str(self.count), str(self.wait_ms))

    def refuse_too_few(self, acknowledged: int, key: str) -> None:
        """Raise LockUnavailable unless ``acknowledged`` are enough."""
        if acknowledged < self.count:
            raise LockUnavailable(
                f"{subject(key)} unavailable: {acknowledged} of the {self.count} replicas asked "
                f"for acknowledged {'it' if key else 'them'} within {self.wait_ms / 1000:g} s",
                key=key,
                cause="replicas",
            )


def checked(replicas: object) -> int:
    """``replicas`` as a number; 0 for None. Raises ValueError unless it is None or an int >= 0."""
    if replicas is None:
        return 0
    if type(replicas) is not int or replicas < 0:
        raise ValueError(f"replicas is a number of replicas, 0 or more, or None; not {replicas!r}")
    return replicas


def wanted(client: Any, replicas: object, replica_timeout: float, lease_ms: int) -> Replicas | None:
    """What is asked of the replicas of the server of ``client``; None for nothing.

    It takes a third of the lease at most, and half of the client's ``socket_timeout``. Raises
    ValueError for a number or time that is none, NotImplementedError for the client of a cluster.
    """
    count = checked(replicas)
    limit_ms = protocol.milliseconds(replica_timeout, "replica_timeout")
    if not count:
        return None
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise NotImplementedError(
            f"replicas= needs a client of one server, which {type(client).__name__} is not"
        )
    # WAIT takes 0 as without limit.
    wait_ms = max(min(limit_ms, lease_ms // 3), 1)
    socket_timeout = pool.connection_kwargs.get("socket_timeout")
    if socket_timeout:
        wait_ms = max(min(wait_ms, int(socket_timeout * 500)), 1)
    return Replicas(count, wait_ms)


def strictest(asked: Sequence[Replicas]) -> tuple[str, ...] | None:
    """The command that waits for as many, and as long, as any of ``asked``; None for none."""
    if not asked:
        return None
    most = max(one.count for one in asked)
    return Replicas(most, max(one.wait_ms for one in asked)).command


def is_grant(reply: Any) -> bool:
    """Whether ``reply`` to the request for a lock grants it, so that replicas have to know."""
    return protocol.text(reply[0]) == "OK"
