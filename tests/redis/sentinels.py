"""A primary, its replicas and three Sentinels that watch over them, as real processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import redis
from django.core.cache import caches
from django.test import override_settings

from example_project.server import TIED_TO_ITS_STARTER
from tests.processes import eventually
from tests.servers import IN_MEMORY, ONCE, RealServer, free_port
from tests.support.locks import command

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = "shop"
PAGE = Path(__file__).parents[2].joinpath("docs", "redis.md").read_text()
# How long a primary that is to fail over is not heard of before it is taken to be down, in ms.
DOWN_AFTER = 1000
# On a busy machine a primary is silent for seconds.
_NEVER_DOWN = 600_000
# Settings of the tests for programs that they start, and where those find the Sentinels.
SETTINGS, VARIABLE = "tests.redis.sentinel_settings", "TEST_SENTINELS"


def documented() -> dict[str, Any]:
    """Return CACHES as docs/redis.md tells to write it for Sentinels."""
    found = re.search(r"\n## Sentinel\n\n```python\n(CACHES = .*?)```", PAGE, re.DOTALL)
    assert found
    namespace: dict[str, Any] = {}
    exec(found[1], namespace)  # noqa: S102 - what the page tells to write
    written: dict[str, Any] = namespace["CACHES"]
    return written


def caches_at(ports: list[int]) -> dict[str, Any]:
    """Return the CACHES of the page, of Sentinels on these ports; the locks' alias is the default.

    Nothing else in it is changed.
    """
    locks = documented()["locks"]
    sentinels = [("127.0.0.1", port) for port in ports]
    return {"default": {**locks, "OPTIONS": {**locks["OPTIONS"], "SENTINELS": sentinels}}}


class Watched(NamedTuple):
    """``ports``: those of the Sentinels."""

    primary: RealServer
    replicas: list[RealServer]
    ports: list[int]

    @property
    def variables(self) -> dict[str, str]:
        """What programs are started with that use the same CACHES."""
        return {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            VARIABLE: ",".join(map(str, self.ports)),
            "TEST_SERVER_URL": self.primary.url,
        }

    def _said(self) -> list[Any]:
        """Return what each Sentinel says of the primary."""
        found: list[Any] = []
        for port in self.ports:
            with redis.Redis(port=port, retry=ONCE) as sentinel:
                found.append(sentinel.sentinel_master(SERVICE))
        return found

    def names_another(self) -> bool:
        """Tell whether all Sentinels give another primary to redis-py, as they do at the end."""
        return all(int(one["port"]) != self.primary.port for one in self._said())

    def fails_over(self) -> bool:
        """Order a failover; tell whether the Sentinel knows enough of the replicas for it."""
        with redis.Redis(port=self.ports[0], retry=ONCE) as sentinel:
            try:
                command(sentinel, "SENTINEL", "FAILOVER", SERVICE)
            except redis.exceptions.ResponseError:
                return False
        return True

    def cut_off(self) -> None:
        """Have no replica hear anything of the primary from now on."""
        for replica in self.replicas:
            # The Sentinels set that right, but not within the time for a failover.
            command(replica.client(), "REPLICAOF", "127.0.0.1", 1)

    def settles(self) -> bool:
        """Tell whether all know of one another, and all replicas of the primary."""
        known = {(len(self.replicas), len(self.ports) - 1)}
        try:
            said = {(one["num-slaves"], one["num-other-sentinels"]) for one in self._said()}
            return said == known and self.replicates()
        except redis.exceptions.RedisError:
            return False

    def replicates(self) -> bool:
        client = self.primary.client()
        client.set("heard", 1)
        return int(command(client, "WAIT", len(self.replicas), 2000)) == len(self.replicas)


@contextlib.contextmanager
def watched(binary: str, replicas: int = 1) -> Iterator[Watched]:
    """Give a primary with replicas, watched over by three Sentinels of which two must agree."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(RealServer(binary))
        option = ("--replicaof", "127.0.0.1", str(primary.port))
        followers = [stack.enter_context(RealServer(binary, *option)) for _ in range(replicas)]
        ports = [stack.enter_context(sentinel_of(primary, DOWN_AFTER)) for _ in range(3)]
        found = Watched(primary, followers, ports)
        eventually(found.settles, 30)
        yield found


@contextlib.contextmanager
def sentinel_of(primary: RealServer, down_after: int = _NEVER_DOWN) -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sentinel-", dir=IN_MEMORY) as folder:
        settings = Path(folder, "sentinel.conf")
        settings.write_text(
            f"bind 127.0.0.1\nport {port}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {down_after}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        tie = [sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid())]
        with subprocess.Popen(
            [*tie, primary.binary, str(settings), "--sentinel"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                yield port
            finally:
                process.kill()


@contextlib.contextmanager
def cache_at(deployment: Watched) -> Iterator[None]:
    """Have the default cache be the one that these Sentinels watch over."""
    with override_settings(CACHES=caches_at(deployment.ports)):
        factory: Any = None
        try:
            factory = caches["default"].client.connection_factory  # type: ignore[attr-defined]  # BaseCache has none
            yield
        finally:
            # django-redis keeps its pools for the life of the process, by URL.
            pools = factory._pools
            for url in [url for url in pools if SERVICE in url]:
                pools.pop(url).disconnect()
