"""One Redis, and what the doctor asked it once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...conf import get_config
from ...connection import get_client
from ...core.calling import translated
from ...core.cluster.routes import routes_of
from ...core.cluster.shared import is_cluster
from ...core.errors import LockUnavailable
from ...core.place import place_of
from .workers import Workers

_T = TypeVar("_T")
# Where Redis is not there, there is nothing to be examined.
ABSENT = frozenset({"unreachable", "timeout"})
_SAMPLES = 5


@dataclass(kw_only=True)
class Patient:
    """The Redis behind the cache ``using``, and how the project uses it.

    ``is_master``: whether it is one of several of a Redlock. ``is_node``: whether it is one of the
    primaries of a cluster, each of which is a patient. ``info`` and ``config`` are what INFO
    and CONFIG GET answered, empty where they are refused: then ``refused`` names them. ``ahead``:
    by how many seconds the clock of this machine is ahead of the server's, give or take half of
    ``round_trip``.
    """

    using: str
    client: Any
    settings: Mapping[str, Any]
    workers: Workers
    is_master: bool = False
    is_node: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    ahead: float = 0
    round_trip: float = 0

    @classmethod
    def admit(
        cls,
        using: str,
        workers: Workers,
        *,
        is_master: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> list[Patient]:
        """Ask the Redis behind the cache ``using`` what it is; each primary if it is a cluster.

        Raises LockUnavailable when it cannot be reached, ImproperlyConfigured for a cache that
        cannot hold locks.
        """
        client = get_client(using)
        clients = [client]
        if is_cluster(client):
            with translated(""):
                clients = routes_of(client).primaries()
        return [
            cls(
                using=using,
                client=one,
                settings=get_config(),
                workers=workers,
                is_master=is_master,
                is_node=is_cluster(client),
            )._questioned(clock)
            for one in clients
        ]

    def _questioned(self, clock: Callable[[], float]) -> Patient:
        client = self.client
        self.info = self.ask("INFO", client.info) or {}
        self.config = self.ask("CONFIG GET", lambda: client.config_get("*")) or {}
        samples = [self.ask("TIME", lambda: _compared(client, clock)) for _ in range(_SAMPLES)]
        self.round_trip, self.ahead = min(filter(None, samples), default=(0, 0))
        return self

    def ask(self, name: str, run: Callable[[], _T]) -> _T | None:
        """``run()``; None, and ``name`` among what is refused, where Redis refuses it.

        Raises LockUnavailable when Redis is not there.
        """
        try:
            with translated(""):
                return run()
        except LockUnavailable as error:
            if error.cause in ABSENT:
                raise
            if name not in self.refused:
                self.refused.append(name)
            return None

    @property
    def about(self) -> str:
        """Which server it is, without credentials."""
        kind = "valkey" if "valkey_version" in self.info else "redis"
        version = self.info.get(f"{kind}_version", "")
        name = f"{kind} {version}" if version else "a server that does not tell its version"
        return f"{name} at {place_of(self.client)}, {1000 * self.round_trip:.1f} ms a round trip"

    @property
    def online_replicas(self) -> int:
        """How many replicas are up to date but for what is on its way."""
        count = int(self.info.get("connected_slaves", 0))
        replicas = (self.info.get(f"slave{number}", {}) for number in range(count))
        return sum(replica.get("state") == "online" for replica in replicas)


def _compared(client: Any, clock: Callable[[], float]) -> tuple[float, float]:
    """How long a round trip took, and how far ``clock`` is ahead of the server's in its middle."""
    sent, started = clock(), time.monotonic()
    seconds, micros = client.time()
    took = time.monotonic() - started
    return took, sent + took / 2 - (seconds + micros / 1e6)
