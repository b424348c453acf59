"""A lock that counts as taken only when replicas know of it, on a real primary and its replica."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable, LockUnsupported
from django_setnx_lock.core import MultiLock, RedisLock
from tests.faults.proxy import Proxy
from tests.processes import eventually
from tests.servers import ONCE, RealServer, any_binary
from tests.support import seams
from tests.support.locks import command
from tests.support.seams import take_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import FakeServer


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

    def fail_over(self) -> None:
        """Kill the primary and have the replica take its place."""
        self.primary.kill()
        command(self.replica.client(), "REPLICAOF", "NO", "ONE")


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


def take(server: RealServer, replicas: int, seconds: float = PATIENCE) -> LockHandle | None:
    """Take the lock; None when it is not to be had."""
    try:
        return lock(server.client(retry=ONCE), replicas, replica_timeout=seconds).take()
    except (LockBusy, LockUnavailable):
        return None


# The primary is killed right after a grant, and the replica takes its place


def holders_after_failover(replicas: int, *, is_cut: bool) -> list[bool]:
    """Tell of two callers, before and after, whether they hold the lock."""
    with paired(any_binary()) as pair:
        if is_cut:
            pair.link.refuse()
        before = take(pair.primary, replicas, SOON if is_cut else PATIENCE)
        pair.fail_over()
        after = take(pair.replica, 0)
        return [held is not None and not held.lost for held in (before, after)]


def test_without_replicas_there_are_two_holders_when_the_new_primary_never_heard() -> None:
    assert holders_after_failover(0, is_cut=True) == [True, True]


def test_with_replicas_what_the_replica_never_heard_was_not_granted() -> None:
    assert holders_after_failover(1, is_cut=True) == [False, True]


def test_with_replicas_what_was_granted_is_held_on_the_new_primary() -> None:
    assert holders_after_failover(1, is_cut=False) == [True, False]


# Taking


def test_a_grant_is_on_the_replica_when_it_is_given(pair: Pair) -> None:
    held = lock(pair.primary.client()).take()

    assert pair.replica.client().get("lock:a") == held.token.encode()
    held.release()


def test_too_few_are_named_and_nothing_stays_held(cut_off: Pair) -> None:
    client = cut_off.primary.client()

    with pytest.raises(LockUnavailable, match=r"0 of the 1 replicas asked for .* 0\.1 s") as caught:
        lock(client, replica_timeout=SOON).take()

    assert caught.value.cause == "replicas"
    assert not client.exists("lock:a")


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


@pytest.mark.parametrize(
    "way",
    [
        *("one", "in asyncio"),
        *(pytest.param(way, marks=pytest.mark.matrix) for way in ("a reader", "several")),
    ],
)
def test_replicas_are_waited_for_once_where_the_script_was_unknown(cut_off: Pair, way: str) -> None:
    client = cut_off.primary.client(retry=ONCE)
    one = lock(client, replica_timeout=1)
    ways: dict[str, Callable[[], object]] = {
        "one": one.take,
        "a reader": lock(client, replica_timeout=1, shared=True).take,
        "several": lambda: take_each([one]),
        "in asyncio": lambda: asyncio.run(_acquired(one)),
    }
    client.script_flush()
    began = seams.clock.now()

    with pytest.raises(LockUnavailable, match="0 of the 1 replicas"):
        ways[way]()

    assert 1 <= seams.clock.now() - began < 1.9


async def _acquired(one: RedisLock) -> bool:
    return await one.aacquire()


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


def test_a_busy_answer_does_not_wait_for_replicas(cut_off: Pair) -> None:
    client = cut_off.primary.client()
    lock(client, 0).take()
    began = seams.clock.now()

    with pytest.raises(LockBusy):
        lock(client).take(0)

    assert seams.clock.now() - began < 2
    # The connection it was asked on is of no use any more; the next call has another.
    with pytest.raises(LockBusy):
        lock(client).take(0)


def test_it_waits_for_a_third_of_the_lease_at_most(cut_off: Pair) -> None:
    began = seams.clock.now()

    with pytest.raises(LockUnavailable, match=r"within 0\.1 s"):
        lock(cut_off.primary.client(), timeout=0.3, replica_timeout=20).take()

    assert seams.clock.now() - began < 2


def test_it_waits_for_half_of_the_socket_timeout_at_most(cut_off: Pair) -> None:
    client = cut_off.primary.client(socket_timeout=0.4)

    with pytest.raises(LockUnavailable, match=r"within 0\.2 s"):
        lock(client, replica_timeout=20).take()


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


def test_in_asyncio_too(pair: Pair) -> None:
    client = pair.primary.client()

    async def work(seconds: float) -> bool:
        async with lock(client, replica_timeout=seconds) as held:
            return pair.replica.client().get("lock:a") == held.token.encode()

    assert asyncio.run(work(PATIENCE))
    pair.link.refuse()
    with pytest.raises(LockUnavailable, match="0 of the 1 replicas"):
        asyncio.run(work(SOON))
    assert not client.exists("lock:a")


def test_a_busy_answer_in_asyncio_does_not_wait_for_replicas(cut_off: Pair) -> None:
    client = cut_off.primary.client()
    lock(client, 0).take()
    began = seams.clock.now()

    async def work() -> list[bool]:
        again = lock(client)
        return [await again.aacquire(), await again.aacquire()]

    assert asyncio.run(work()) == [False, False]
    assert seams.clock.now() - began < 2


def test_a_user_who_may_not_wait_holds_nothing(pair: Pair) -> None:
    admin = pair.primary.client()
    command(admin, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
    client = pair.primary.client(username="app", password="pw")

    with pytest.raises(LockUnavailable) as caught:
        lock(client).take()

    assert caught.value.cause == "denied"
    assert not admin.exists("lock:a")


# What is refused


@pytest.mark.parametrize("replicas", [-1, True, 1.5, "1"])
def test_a_number_that_is_none_is_refused(fake_server: FakeServer, replicas: Any) -> None:
    with pytest.raises(ValueError, match="replicas is None or a number"):
        RedisLock(fake_server.client(), "lock:a", replicas=replicas)


@pytest.mark.parametrize("seconds", [0, -1, True, float("nan")])
def test_a_time_that_is_none_is_refused(fake_server: FakeServer, seconds: float) -> None:
    with pytest.raises(ValueError, match="replica_timeout"):
        RedisLock(fake_server.client(), "lock:a", replicas=1, replica_timeout=seconds)


def test_the_client_of_a_cluster_is_refused() -> None:
    class Cluster:
        pass

    with pytest.raises(LockUnsupported, match="Cluster is not"):
        RedisLock(Cluster(), "lock:a", replicas=1)


# Several locks at once


def several(client: redis.Redis, seconds: float = PATIENCE) -> MultiLock:
    names = ["lock:a", "lock:b"]
    return MultiLock(client, names, blocking=False, replicas=1, replica_timeout=seconds)


def test_several_locks_count_as_taken_when_the_replica_knows_of_all(pair: Pair) -> None:
    with several(pair.primary.client()) as held:
        assert pair.replica.client().exists("lock:a", "lock:b") == 2
        held.check()


def test_several_locks_that_it_does_not_know_of_are_given_back(cut_off: Pair) -> None:
    client = cut_off.primary.client(retry=ONCE)

    with pytest.raises(LockUnavailable, match="the locks are unavailable: 0 of the 1") as caught:
        several(client, SOON).take()

    assert caught.value.cause == "replicas"
    assert not client.exists("lock:a", "lock:b")


def test_several_locks_that_it_does_not_know_of_are_given_back_in_asyncio(cut_off: Pair) -> None:
    client = cut_off.primary.client(retry=ONCE)

    async def take() -> None:
        await several(client, SOON).atake()

    with pytest.raises(LockUnavailable, match="the locks are unavailable: 0 of the 1") as caught:
        asyncio.run(take())

    assert caught.value.cause == "replicas"
    assert not client.exists("lock:a", "lock:b")


def test_whoever_finds_one_of_several_busy_does_not_wait_for_replicas(cut_off: Pair) -> None:
    client = cut_off.primary.client(retry=ONCE)
    client.script_load(seams.script("SEVERAL").source)
    RedisLock(client, "lock:b").acquire()
    started = seams.clock.now()

    with pytest.raises(LockBusy):
        several(client).take()

    assert seams.clock.now() - started < PATIENCE / 2
    assert not client.exists("lock:a")
