"""Runs a behaviour on each kind of lock, in threads and asyncio, on the servers asked for."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest
import redis
from redis.asyncio.connection import AbstractConnection
from redis.sentinel import Sentinel

from tests.processes import eventually
from tests.redis.clusters import Cluster
from tests.redis.sentinels import SERVICE, sentinel_of
from tests.servers import FakeServer, RealServer, any_binary, server_kinds
from tests.support import seams
from tests.support.drivers import DEADLINE, DRIVERS, Driver
from tests.support.rows import Row
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Server
    from tests.support.kinds import Kind

# The thread that renews, and what it has connected; and the one that asgiref keeps.
OURS = ("setnx-lock", "asyncio_", "ThreadPoolExecutor")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    row: Row | None = getattr(metafunc.function, "row", None)
    if row is None:
        return
    always = row.always(metafunc.function.__name__)
    # To make those that are left out anyway would take each process a while.
    are_all_asked_for = "not matrix" not in metafunc.config.option.markexpr
    cases = [
        pytest.param(
            (kind, DRIVERS[driver]),
            id=f"{kind.name}-{driver}",
            marks=kind.marks if is_usual else [*kind.marks, pytest.mark.matrix],
        )
        for kind in row.kinds
        for driver in row.drivers_of(kind)
        for is_usual in [(kind.name, driver) in always]
        if is_usual or are_all_asked_for
    ]
    metafunc.parametrize("a", cases, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out a lock on other servers than the fake where the one server is that."""
    left_out = [item for item in items if is_impossible(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def is_impossible(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if "a" not in params:
        return False
    kind: Kind = params["a"][0]
    if kind.served_by:
        return params.get("server_kind") != server_kinds()[0]
    return kind.masters > 1 and params.get("server_kind") == "fake"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a behaviour with the driver of its world."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    driver = given["a"].driver
    longer = pyfuncitem.get_closest_marker("timeout")
    driver.longest = longer.args[0] if longer else DEADLINE
    driver.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(scope="session")
def further_masters() -> Iterator[list[RealServer]]:
    """Give two more servers, for a lock on three."""
    binary = any_binary()
    with RealServer(binary) as second, RealServer(binary) as third:
        yield [second, third]


@pytest.fixture(scope="session")
def aio_connections() -> Iterator[WeakSet[AbstractConnection]]:
    """Give all connections for event loops that there are."""
    made: WeakSet[AbstractConnection] = WeakSet()

    def noted(
        self: Any, *args: Any, init: Any = AbstractConnection.__init__, **options: Any
    ) -> None:
        made.add(self)
        init(self, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AbstractConnection, "__init__", noted)
        yield made


@pytest.fixture
def server(server: Server) -> Server:
    """Give each server, with nobody taken for dead at the fake."""
    if isinstance(server, FakeServer):
        seams.nobody_is_dead(server.core)
    return server


@pytest.fixture(scope="session")
def watched_server() -> Iterator[RealServer]:
    """Give a server over which a Sentinel watches."""
    with RealServer(any_binary()) as server, sentinel_of(server) as port:
        server.sentinel = port
        sentinel: Any = Sentinel([("127.0.0.1", port)])  # type: ignore[no-untyped-call]  # redis-py's
        eventually(functools.partial(names, sentinel))
        yield server


def names(sentinel: Any) -> bool:
    with contextlib.suppress(redis.exceptions.ConnectionError):
        return bool(sentinel.discover_master(SERVICE))
    return False


@pytest.fixture(scope="session")
def clustered_server() -> Iterator[RealServer]:
    """Give a server that is a cluster of its own."""
    with Cluster(any_binary(), 1) as cluster:
        yield cluster.nodes[0]


@pytest.fixture
def a(
    request: pytest.FixtureRequest,
    server_kind: str,
    aio_connections: WeakSet[AbstractConnection],
    running_server: Callable[[str], RealServer],
    fake_server: FakeServer,
) -> Iterator[World]:
    kind: Kind
    driver: Driver
    kind, driver = request.param
    if server_kind == "fake":
        request.getfixturevalue("fake_connections")
        servers: list[Server] = [fake_server]
    elif kind.served_by:
        servers = [request.getfixturevalue(kind.served_by)]
    else:
        servers = [running_server(server_kind)]
    if kind.masters > 1:
        servers += request.getfixturevalue("further_masters")
    for server in servers:
        server.flush()
    before = set(threading.enumerate())
    with World(kind, driver, servers) as world:
        yield world
    if isinstance(servers[0], RealServer):
        # Each loop has ended.
        assert [one for one in aio_connections if one.is_connected] == []
        leaves_servers_as_they_should_be(servers)
    leaves_no_thread(before)
    for server in servers:
        if isinstance(server, RealServer):
            server.close_clients()


def leaves_servers_as_they_should_be(servers: list[Any]) -> None:
    """Have each key of a name end by itself, but the index; and nobody sleep there any more."""
    for server in servers:
        server.resume()
        for key in server.admin.scan_iter(count=1000):
            ttl = server.admin.ttl(key)
            assert ttl != -1 or key.endswith(":index"), f"{key} never expires"
        eventually(functools.partial(nobody_sleeps, server.admin))


def nobody_sleeps(client: Any) -> bool:
    return not client.info("clients")["blocked_clients"]


def leaves_no_thread(before: set[threading.Thread]) -> None:
    def others() -> list[str]:
        return [
            thread.name
            for thread in threading.enumerate()
            if thread not in before and not thread.name.startswith(OURS)
        ]

    eventually(lambda: not others(), seconds=5)
