"""Renewal on several servers, some of which stand still: the locks on the others are kept."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import RedisLock
from tests.faults.proxy import Proxy
from tests.processes import eventually, figure, until
from tests.servers import RealServer, any_binary
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face, Threads, stepped
from tests.support.renewals import end_of, is_longer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import LockHandle

LEASE = 3.0
TEN_MINUTES = 600.0
# Of a lock that is to be renewed in vain all the time.
LONG = 3600.0

# One process starts the four servers.
pytestmark = pytest.mark.xdist_group("renewal on several servers")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    """Give four servers."""
    binary = any_binary()
    with contextlib.ExitStack() as running:
        yield [running.enter_context(RealServer(binary)) for _ in range(4)]


@pytest.fixture(autouse=True)
def fresh(servers: list[RealServer]) -> Iterator[None]:
    """Begin without keys, threads and connections of earlier tests; leave no server standing."""
    seams.end_renewals()
    for server in servers:
        server.flush()
    yield
    for server in servers:
        server.resume()
        server.close_clients()


def taken(client: Any, name: str = "lock:a", lease: float = LEASE, **options: Any) -> LockHandle:
    return RedisLock(client, name, lease, renew=True, **options).take(0)


class Upkeep:
    """What became of the locks ``kept`` meanwhile.

    ``renewals``: how many there were; ``least``: the smallest part that was left of a lease.
    """

    def __init__(self, kept: list[LockHandle]) -> None:
        self.kept = kept
        self.renewals = 0
        self.least = 1.0
        self._ends = [end_of(held) for held in kept]

    @property
    def is_lost(self) -> bool:
        return any(held.lost for held in self.kept)

    def look(self) -> None:
        before, self._ends = self._ends, [end_of(held) for held in self.kept]
        self.renewals += sum(map(is_longer, self.kept, before))
        left = min(held.remaining() for held in self.kept)
        self.least = min(self.least, left / self.kept[0].timeout)

    @property
    def is_over(self) -> bool:
        """Whether each was renewed three times, or one is lost."""
        return self.is_lost or self.renewals >= 3 * len(self.kept)

    async def watch(self, driver: Driver, seconds: float = 0) -> Upkeep:
        """Look on until that is over, but for so long at least, if none is lost."""
        least = time.monotonic() + seconds
        while not self.is_over or (time.monotonic() < least and not self.is_lost):
            await driver.sleep(0.01)
            self.look()
        return self

    def was_done(self) -> bool:
        """Whether none was lost."""
        figure(f"{self.renewals} renewals, {self.least:.0%} of a lease left at the least")
        return not self.is_lost


@pytest.mark.timeout(TEN_MINUTES + 120)
@pytest.mark.parametrize(
    ("frozen", "seconds", "driver"),
    [
        *((3, 0, driver) for driver in DRIVERS.values()),
        pytest.param(1, TEN_MINUTES / 10, Threads(), marks=pytest.mark.storm),
        pytest.param(1, TEN_MINUTES, Threads(), marks=pytest.mark.marathon),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_no_lock_is_lost_on_servers_that_answer_while_others_are_frozen(
    servers: list[RealServer], frozen: int, seconds: float, driver: Driver
) -> None:
    async def take(server: RealServer, name: str, lease: float) -> Any:
        lock = RedisLock(server.client(), name, lease, renew=True)
        return (await Face(lock, driver).take(0)).raw

    async def work() -> None:
        stuck = [await take(server, "lock:a", LONG) for server in servers[:frozen]]
        kept = [
            await take(server, f"lock:{number}", LEASE)
            for server in servers[frozen:]
            for number in range(3)
        ]
        for server in servers[:frozen]:
            server.pause()
        seams.renew_now(*stuck)
        upkeep = await Upkeep(kept).watch(driver, seconds)
        await driver.eventually(lambda: all(map(seams.fails, stuck)) or upkeep.is_lost)
        for server in servers[:frozen]:
            server.resume()

        assert upkeep.was_done()
        if seconds:
            assert upkeep.renewals > 0.8 * len(kept) * seconds / (LEASE / 3)
            # Else it is luck that none was lost.
            assert upkeep.least > 0.3
        for held in kept + stuck:
            await Face(held, driver).check()
            await Face(held, driver).release()

    driver.run(work())


@pytest.mark.parametrize("by", ["port", "path"])
def test_a_renewal_that_fails_says_at_which_server_and_no_password(
    servers: list[RealServer], by: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers[0]
    path = f"{server.directory}/redis.sock"
    where = {"port": f"127.0.0.1:{server.port}/0", "path": f"{path}/0"}[by]
    server.client().config_set("requirepass", "sesame")
    try:
        if by == "port":
            client = server.client(password="sesame")
        else:
            client = redis.Redis(unix_socket_path=path, password="sesame")
        held = taken(client, lease=LONG)
        server.pause()
        with caplog.at_level(logging.DEBUG, "django_setnx_lock.renewal"):
            seams.renew_now(held)
            eventually(lambda: where in caplog.text)
    finally:
        server.resume()
        server.client(password="sesame").config_set("requirepass", "")

    assert "sesame" not in caplog.text
    client.close()


class SlowNames:
    """The look-up of the names that end in ``.slow`` takes until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.under_way = 0
        self._look_up = socket.getaddrinfo

    def __call__(self, host: Any, *args: Any, **options: Any) -> Any:
        if not str(host).endswith(".slow"):
            return self._look_up(host, *args, **options)
        self.under_way += 1
        try:
            self.gate.wait(30)
        finally:
            self.under_way -= 1
        return self._look_up("127.0.0.1", *args, **options)


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowNames]:
    names = SlowNames()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    names.gate.set()
    eventually(lambda: not names.under_way)


def look_up_anew(server: RealServer, slow_names: SlowNames) -> None:
    """Have the next request look the name up, which takes long."""
    slow_names.gate.clear()
    server.client().client_kill_filter(_type="normal", skipme=True)


def test_a_name_that_takes_long_to_look_up_loses_no_lock_elsewhere(
    servers: list[RealServer], slow_names: SlowNames
) -> None:
    stuck = taken(servers[0].client(host="redis.slow"), lease=LONG)
    kept = [taken(server.client()) for server in servers[1:]]
    look_up_anew(servers[0], slow_names)
    seams.renew_now(stuck)
    eventually(lambda: slow_names.under_way)

    upkeep = stepped(Upkeep(kept).watch(Threads()))
    under_way = slow_names.under_way

    assert upkeep.was_done()
    # However often it was tried.
    assert under_way == 1


def test_a_connection_that_took_long_is_used_when_it_is_there(
    servers: list[RealServer], slow_names: SlowNames
) -> None:
    held = taken(servers[0].client(host="redis.slow"), lease=LONG)
    look_up_anew(servers[0], slow_names)
    seams.renew_now(held)
    eventually(lambda: slow_names.under_way)
    end = end_of(held)

    slow_names.gate.set()

    eventually(lambda: is_longer(held, end))


def test_an_answer_of_which_the_rest_does_not_come_loses_no_lock_elsewhere(
    servers: list[RealServer],
) -> None:
    with Proxy(servers[0].port) as proxy:
        stuck = taken(proxy.client(), lease=LONG)
        kept = [taken(server.client(), lease=1.2) for server in servers[1:]]
        proxy.halve_replies(seams.script("RENEW").sha.encode())
        seams.renew_now(stuck)

        upkeep = stepped(Upkeep(kept).watch(Threads()))
        has_halved = proxy.holds.is_set()
        seams.reset()

    assert has_halved
    assert upkeep.was_done()


def test_an_answer_of_which_the_rest_comes_later_counts(servers: list[RealServer]) -> None:
    with Proxy(servers[0].port) as proxy:
        held = taken(proxy.client(), lease=LONG)
        proxy.halve_replies(seams.script("RENEW").sha.encode())
        end = end_of(held)
        seams.renew_now(held)
        assert proxy.holds.wait(10)
        time.sleep(0.2)

        proxy.let_go()

        eventually(lambda: is_longer(held, end))
        assert not seams.fails(held)


def test_a_loop_that_ends_beside_a_frozen_server_leaves_no_task(
    servers: list[RealServer], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        held = await RedisLock(servers[0].client(), "lock:a", LONG, renew=True).atake(0)
        servers[0].pause()
        before = asyncio.all_tasks()
        seams.renew_now(held)
        await until(lambda: asyncio.all_tasks() - before)
        loops.append(asyncio.get_running_loop())

    loops: list[asyncio.AbstractEventLoop] = []
    asyncio.run(work())
    assert asyncio.all_tasks(loops[0]) == set()
    gc.collect()

    assert "was destroyed" not in caplog.text
    assert "never retrieved" not in caplog.text
