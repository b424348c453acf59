"""A lock that counts as taken only when replicas know of it, on a real primary and its replica."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import MultiLock, RedisLock
from tests.faults.proxy import Proxy
from tests.processes import eventually
from tests.servers import ONCE, RealServer, any_binary
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.locks import command
from tests.support.seams import take_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle


# Where they answer, and where they do not, in seconds.
PATIENCE, SOON = 5, 0.1


class Pair(NamedTuple):
    """``link``: what the replica hears of the primary through."""

    primary: RealServer
    replica: RealServer
    link: Proxy

    def replicates(self) -> bool:
        client = self.primary.client()
        client.set("heard", 1)
        # As long as a machine may take that does other things: each try has a write of its own.
        return int(command(client, "WAIT", 1, 2000)) == 1


@contextlib.contextmanager
def paired(binary: str) -> Iterator[Pair]:
    with RealServer(binary) as primary, Proxy(primary.port) as link:
        option = ("--replicaof", "127.0.0.1", str(link.port))
        with RealServer(binary, *option) as replica:
            pair = Pair(primary, replica, link)
            eventually(pair.replicates)
            yield pair


@pytest.fixture(scope="module")
def lasting() -> Iterator[Pair]:
    with paired(any_binary()) as pair:
        yield pair


@pytest.fixture
def pair(lasting: Pair) -> Iterator[Pair]:
    """Give a primary and its replica that stay what they are."""
    lasting.primary.client().flushall()
    lasting.primary.client().script_flush()
    yield lasting
    lasting.primary.close_clients()
    lasting.link.accept()
    eventually(lasting.replicates)


@pytest.fixture
def cut_off(pair: Pair) -> Pair:
    """Give a pair whose replica hears nothing."""
    pair.link.refuse()
    return pair


def lock(client: redis.Redis, replicas: int = 1, **options: Any) -> RedisLock:
    given = {"blocking": False, "replica_timeout": PATIENCE, **options}
    return RedisLock(client, "lock:a", replicas=replicas, **given)


# The primary is killed right after a grant, and the replica takes its place


@pytest.mark.parametrize(
    ("replicas", "is_cut", "hold"),
    [(0, True, [True, True]), (1, True, [False, True]), (1, False, [True, False])],
    ids=["none asked for: two hold it", "never heard: not granted", "granted: held there"],
)
def test_what_the_new_primary_knows_after_a_failover(
    replicas: int, is_cut: bool, hold: list[bool]
) -> None:
    def take(server: RealServer, replicas: int) -> list[LockHandle]:
        patience = SOON if is_cut else PATIENCE
        with contextlib.suppress(LockBusy, LockUnavailable):
            return [lock(server.client(retry=ONCE), replicas, replica_timeout=patience).take()]
        return []

    with paired(any_binary()) as pair:
        if is_cut:
            pair.link.refuse()
        before = take(pair.primary, replicas)
        # It takes the place of the primary.
        pair.primary.kill()
        command(pair.replica.client(), "REPLICAOF", "NO", "ONE")
        after = take(pair.replica, 0)

        assert [any(not one.lost for one in held) for held in (before, after)] == hold


# Taking


def several(client: redis.Redis, **options: Any) -> MultiLock:
    given = {"blocking": False, "replica_timeout": PATIENCE, **options}
    return MultiLock(client, ["lock:a", "lock:b"], replicas=1, **given)


drivers = pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)


@drivers
@pytest.mark.parametrize("way", [lock, several])
def test_a_grant_is_on_the_replica_when_it_is_given(
    pair: Pair, way: Callable[..., Any], driver: Driver
) -> None:
    lock = Face(way(pair.primary.client()), driver)

    async def work() -> None:
        async with lock.block() as held:
            count = len(held.values()) if way is several else 1
            assert pair.replica.client().exists("lock:a", "lock:b") == count
            await held.check()

    driver.run(work())


@drivers
@pytest.mark.parametrize("way", [lock, several])
def test_too_few_are_named_and_nothing_stays_held(
    cut_off: Pair, way: Callable[..., Any], driver: Driver
) -> None:
    client = cut_off.primary.client(retry=ONCE)
    lock = Face(way(client, replica_timeout=1), driver)

    async def work() -> None:
        with pytest.raises(LockUnavailable, match=r"0 of the 1 replicas asked for") as caught:
            await lock.take(0)
        assert caught.value.cause == "replicas"

    # They are waited for once where the script is unknown, too.
    client.script_flush()
    began = seams.clock.now()
    driver.run(work())

    assert 1 <= seams.clock.now() - began < 1.9
    assert not client.exists("lock:a", "lock:b")


@drivers
@pytest.mark.parametrize("way", [lock, several])
def test_a_busy_answer_does_not_wait_for_replicas(
    cut_off: Pair, way: Callable[..., Any], driver: Driver
) -> None:
    client = cut_off.primary.client(retry=ONCE)
    client.script_load(seams.script("SEVERAL").source)
    RedisLock(client, "lock:b" if way is several else "lock:a").take()
    lock = Face(way(client), driver)
    began = seams.clock.now()

    async def work() -> None:
        # The connection it was asked on is of no use any more; the next call has another.
        for _ in range(2):
            with pytest.raises(LockBusy):
                await lock.take(0)

    driver.run(work())
    assert seams.clock.now() - began < PATIENCE / 2
    assert client.exists("lock:a", "lock:b") == 1


def test_more_replicas_than_there_are_is_too_few(pair: Pair) -> None:
    with pytest.raises(LockUnavailable, match="1 of the 2 replicas"):
        lock(pair.primary.client(), 2, replica_timeout=2).take()


def test_what_was_given_back_goes_to_the_next_who_waits(cut_off: Pair) -> None:
    client = cut_off.primary.client()
    holder = lock(client, 0).take()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: lock(client, 1, replica_timeout=SOON).take(20))
        eventually(lambda: client.zcard("{lock:a}:waiters") == 1)
        # Where the first does not wake within the time to claim the lock, this one has it before.
        second = pool.submit(lambda: lock(client, 0).take(20).release())
        eventually(lambda: client.zcard("{lock:a}:waiters") == 2)
        holder.release()

        with pytest.raises(LockUnavailable, match="replicas"):
            first.result(20)
        second.result(20)


def test_who_waits_for_it_has_it_on_the_replica_too(pair: Pair) -> None:
    client = pair.primary.client()
    holder = lock(client, 0).take()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: lock(client, renew=True).take(20))
        eventually(lambda: client.zcard("{lock:a}:waiters") == 1)
        holder.release()
        held = result.result(20)

    assert pair.replica.client().get("lock:a") == held.token.encode()
    held.release()


def test_waiting_for_them_is_one_write(pair: Pair) -> None:
    with Proxy(pair.primary.port) as proxy:
        client = proxy.client()
        lock(client).take().release()
        proxy.requests.clear()

        held = lock(client).take()

        # What it waits for is in the same write, on the same connection.
        request = proxy.requests[-1]
        assert request.index(b"EVAL") < request.index(b"WAIT")
        assert len(proxy.requests) == 2
        held.release()


def test_a_reply_that_is_lost_is_asked_for_again(pair: Pair) -> None:
    with Proxy(pair.primary.port) as proxy:
        lost = proxy.drop_next_reply(b"WAIT")

        held = lock(proxy.client(retry=ONCE)).take()

        assert lost.is_set()
        assert pair.replica.client().get("lock:a") == held.token.encode()
        held.release()


def test_a_primary_that_is_gone_before_a_replica_knows_has_granted_nothing(cut_off: Pair) -> None:
    client = cut_off.primary.client(retry=ONCE)
    with ThreadPoolExecutor(1) as pool, Proxy(cut_off.primary.port) as proxy:
        result = pool.submit(lock(proxy.client(retry=ONCE), replica_timeout=20).take)
        eventually(lambda: client.exists("lock:a"))
        proxy.refuse()

        with pytest.raises(LockUnavailable, match="cannot be reached"):
            result.result(20)


def test_a_primary_that_misses_its_replicas_is_named(pair: Pair) -> None:
    client = pair.primary.client()
    client.config_set("min-replicas-to-write", 2)
    try:
        with pytest.raises(LockUnavailable, match="min-replicas-to-write") as caught:
            lock(client, 0).take()
    finally:
        client.config_set("min-replicas-to-write", 0)

    assert caught.value.cause == "replicas"


@pytest.mark.parametrize(
    ("of_client", "timeout", "told"),
    [
        pytest.param({}, 0.3, r"within 0\.1 s", id="a third of the lease"),
        pytest.param({"socket_timeout": 0.4}, 30, r"within 0\.2 s", id="half a socket timeout"),
    ],
)
def test_it_waits_for_no_longer_than(
    cut_off: Pair, of_client: dict[str, float], timeout: float, told: str
) -> None:
    began = seams.clock.now()

    with pytest.raises(LockUnavailable, match=told):
        lock(cut_off.primary.client(**of_client), timeout=timeout, replica_timeout=20).take()

    assert seams.clock.now() - began < 2


def many(client: redis.Redis, seconds: float) -> list[RedisLock]:
    return [
        RedisLock(client, f"lock:{name}", replicas=1, replica_timeout=seconds) for name in "abc"
    ]


def test_many_locks_are_taken_when_replicas_know_of_them(pair: Pair) -> None:
    taken = take_each(many(pair.primary.client(), PATIENCE))

    assert all(one.held for one in taken)
    assert pair.replica.client().exists("lock:a", "lock:b", "lock:c") == 3


def test_of_many_locks_none_is_taken_when_too_few_know_of_them(cut_off: Pair) -> None:
    client = cut_off.primary.client()

    with pytest.raises(LockUnavailable, match="0 of the 1 replicas"):
        take_each(many(client, SOON))

    assert not client.exists("lock:a", "lock:b", "lock:c")


def test_of_many_locks_that_are_busy_it_is_said_that_they_are(cut_off: Pair) -> None:
    client = cut_off.primary.client()
    for one in many(client, SOON):
        RedisLock(client, one.name).take()

    taken = take_each(many(client, SOON))

    assert [type(one.error) for one in taken] == [LockBusy] * 3


def test_a_user_who_may_not_wait_holds_nothing(pair: Pair) -> None:
    admin = pair.primary.client()
    command(admin, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
    client = pair.primary.client(username="app", password="pw")

    with pytest.raises(LockUnavailable) as caught:
        lock(client).take()

    assert caught.value.cause == "denied"
    assert not admin.exists("lock:a")
