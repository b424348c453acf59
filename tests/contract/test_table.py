"""Each feature with each protocol and kind of servers, as the table in docs/redis.md has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockUnsupported
from django_setnx_lock.core import RedisLock, Redlock
from tests.contract.features import FEATURES
from tests.redis.clusters import Cluster
from tests.redis.sentinels import sentinel_of
from tests.redis.test_sentinel import client_at
from tests.servers import RealServer, any_binary
from tests.support.kinds import MASTER_TIMEOUT, OF_A_LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("features")

PAGE = Path(__file__).parents[2].joinpath("docs", "redis.md").read_text()
YES, REFUSED = "yes", "refused"


def table() -> dict[tuple[str, str], str]:
    """Return what the docs say, by feature and kind."""
    found = PAGE[PAGE.index("| feature |") :].split("\n\n")[0].splitlines()
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found]
    return {
        (re.sub(r"\[|\]\(.*?\)", "", row[0]), kind): cell
        for row in rows
        for kind, cell in zip(heads[1:], row[1:], strict=True)
    }


TABLE = table()


class OneServer:
    """A lock with certain options, at what one client leads to."""

    def __init__(self, client: Any, **options: Any) -> None:
        self.client = client
        self._options = options
        # Whether those who wait ask again and again.
        self.polls = "protocol" in options

    def requests(self) -> int:
        stats: Any = self.client.info("commandstats")
        return sum(
            stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha")
        )

    def sleepers(self) -> int:
        return int(self.client.info("clients")["blocked_clients"])

    def lock(self, name: str = "lock:a", **options: Any) -> RedisLock:
        return RedisLock(self.client, name, **{**self._options, **options})


class ManyServers(OneServer):
    """A lock on a cluster."""

    def requests(self) -> int:
        stats: Any = self.client.info("commandstats", target_nodes="primaries")
        names = ("cmdstat_eval", "cmdstat_evalsha")
        return sum(one[name]["calls"] for one in stats.values() for name in names if name in one)

    def sleepers(self) -> int:
        nodes: Any = self.client.info("clients", target_nodes="primaries")
        return sum(node["blocked_clients"] for node in nodes.values())


class Masters(OneServer):
    """A lock on three masters."""

    def __init__(self, clients: list[redis.Redis]) -> None:
        super().__init__(clients[0])
        self._clients = clients

    def lock(self, name: str = "lock:a", **options: Any) -> RedisLock:
        # Long, as a busy machine may be slow.
        within = min(MASTER_TIMEOUT, options.get("timeout", 30) / OF_A_LEASE)
        return Redlock(self._clients, name, master_timeout=within, **options)


@pytest.fixture(scope="module")
def binary() -> str:
    return any_binary()


@pytest.fixture(scope="module")
def one(binary: str) -> Iterator[RealServer]:
    with RealServer(binary) as server:
        yield server


@pytest.fixture(scope="module")
def setnx(one: RealServer) -> OneServer:
    return OneServer(one.client())


@pytest.fixture(scope="module")
def timestamp(one: RealServer) -> OneServer:
    return OneServer(one.client(), protocol="timestamp-ms")


@pytest.fixture(scope="module")
def hosted(one: RealServer) -> OneServer:
    return OneServer(one.client(), protocol="hosted")


@pytest.fixture(scope="module")
def redlock(one: RealServer, binary: str) -> Iterator[Masters]:
    with RealServer(binary) as second, RealServer(binary) as third:
        yield Masters([server.client() for server in (one, second, third)])


@pytest.fixture(scope="module")
def sentinel(one: RealServer) -> Iterator[OneServer]:
    with sentinel_of(one) as port, client_at(port) as client:
        yield OneServer(client)


@pytest.fixture(scope="module")
def cluster(binary: str) -> Iterator[ManyServers]:
    with Cluster(binary) as servers:
        yield ManyServers(servers.client())


KINDS = {
    "setnx": "`setnx`",
    "timestamp": "`timestamp-s`, `timestamp-ms`",
    "hosted": "`hosted`",
    "redlock": "Redlock",
    "sentinel": "Sentinel",
    "cluster": "Cluster",
}


def emptied(kind: Any) -> Any:
    for client in getattr(kind, "_clients", [kind.client]):
        client.flushall()
    return kind


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("name", KINDS)
def test_the_table_tells_what_is_to_be_had(
    request: pytest.FixtureRequest, name: str, feature: str
) -> None:
    kind = emptied(request.getfixturevalue(name))
    use = FEATURES[feature]
    # What the table leaves out works everywhere.
    said = TABLE.get((feature, KINDS[name]), YES)

    if said == REFUSED:
        with pytest.raises(LockUnsupported):
            use(kind)
    elif said == "no":
        with pytest.raises((AssertionError, pytest.fail.Exception, LockBusy)):
            use(kind)
    else:
        assert said == YES
        use(kind)


def test_the_table_has_features_that_some_kind_lacks_and_a_column_for_each_kind() -> None:
    assert {feature for feature, _ in TABLE} <= set(FEATURES)
    assert {feature for (feature, _), said in TABLE.items() if said != YES} == {
        feature for feature, _ in TABLE
    }
    assert {kind for _, kind in TABLE} == set(KINDS.values())
