"""The rules of a lock on several masters, on fakes and with a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnsupported
from django_setnx_lock.core import Inspector, Outcome, Redlock, events
from django_setnx_lock.core.connections import backends
from django_setnx_lock.core.locks import redlock as redlock_module
from django_setnx_lock.core.locks.redlock_servers import RedlockServers, servers_of
from tests.core.helpers import in_thread
from tests.core.watching import IdleWatchdog
from tests.servers import FakeServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.helpers import FakeTime


def redlock(clients: list[Any], timeout: float | None = None, **options: Any) -> Redlock:
    """Make a lock on fakes, which take their time."""
    return Redlock(clients, "lock:a", timeout, **{"master_timeout": 2, **options})


@pytest.fixture(autouse=True, scope="module")
def _with_lua() -> None:
    """Have the fake's Lua loaded, which takes seconds, before times count."""
    Redlock([FakeServer().client() for _ in range(3)], "lock:a", master_timeout=9).acquire()


@pytest.fixture(autouse=True)
def _without_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing renewed in the background."""
    idle = IdleWatchdog()
    monkeypatch.setattr(redlock_module, "WATCHDOG", idle)


@pytest.fixture
def servers() -> list[FakeServer]:
    return [FakeServer() for _ in range(3)]


@pytest.fixture
def clients(servers: list[FakeServer]) -> list[redis.Redis]:
    return [server.client() for server in servers]


@pytest.fixture
def taking_long(monkeypatch: pytest.MonkeyPatch, fake_time: FakeTime) -> Callable[[float], None]:
    """Give what has each question to the masters take so many seconds."""

    def takes(seconds: float) -> None:
        ask = RedlockServers.ask

        def late(masters: RedlockServers, *args: Any, **kwargs: Any) -> list[Any]:
            replies = ask(masters, *args, **kwargs)
            fake_time.now += seconds
            return replies

        monkeypatch.setattr(RedlockServers, "ask", late)

    return takes


def left_on(clients: list[redis.Redis], name: str = "lock:a") -> list[int]:
    return [int(client.exists(name)) for client in clients]


def test_a_lock_stands_at_all_masters_with_one_token(clients: list[redis.Redis]) -> None:
    held = redlock(clients).take(0)

    assert {client.get("lock:a") for client in clients} == {held.token.encode()}


def test_its_release_leaves_none_of_them(clients: list[redis.Redis]) -> None:
    with redlock(clients):
        pass

    assert left_on(clients) == [0, 0, 0]


def test_it_excludes_others(clients: list[redis.Redis]) -> None:
    with redlock(clients, label="first"), pytest.raises(LockBusy) as caught:
        redlock(clients).take(0)

    assert caught.value.holder is not None
    assert caught.value.holder.label == "first"


def test_it_is_had_while_somebody_else_has_a_minority(clients: list[redis.Redis]) -> None:
    clients[0].set("lock:a", "foreign")

    held = redlock(clients).take(0)
    held.check()
    held.release()

    assert left_on(clients) == [1, 0, 0]


def test_a_taking_in_vain_leaves_nothing_with_those_who_granted_it(
    clients: list[redis.Redis],
) -> None:
    for client in clients[:2]:
        client.set("lock:a", "foreign")

    with pytest.raises(LockBusy):
        redlock(clients).take(0)

    assert left_on(clients) == [1, 1, 0]


def test_the_time_that_the_taking_took_and_the_drift_are_not_relied_on(
    clients: list[redis.Redis], taking_long: Callable[[float], None]
) -> None:
    taking_long(4)

    held = redlock(clients, timeout=10).take(0)

    assert held.remaining() == pytest.approx(10 - 4 - 0.102)


def test_a_lock_that_took_its_lease_to_take_is_given_back(
    clients: list[redis.Redis], taking_long: Callable[[float], None]
) -> None:
    # Of ten seconds, less than the drift are left.
    taking_long(9.95)

    with pytest.raises(LockBusy):
        redlock(clients, timeout=10).take(0)

    assert left_on(clients) == [0, 0, 0]


def test_it_is_lost_by_the_local_clock_before_the_masters_forget_it(
    clients: list[redis.Redis], fake_time: FakeTime
) -> None:
    found: list[object] = []
    held = redlock(clients, timeout=10, on_lost=found.append).take(0)

    fake_time.now += 9.9

    assert held.lost
    with pytest.raises(LockLost):
        held.check()
    assert found == [held]


def test_leaving_a_block_whose_lock_was_not_renewed_in_time_raises(
    clients: list[redis.Redis], fake_time: FakeTime
) -> None:
    with pytest.raises(LockLost), redlock(clients, timeout=10, renew=True):
        fake_time.now += 11


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda held: held.reacquire(), 10 - 0.102),
        (lambda held: held.extend(20, replace_ttl=True), 20 - 0.202),
    ],
    ids=["reacquire", "replace"],
)
def test_a_new_lease_is_relied_on_less_its_drift(
    clients: list[redis.Redis], fake_time: FakeTime, change: Callable[[Any], None], left: float
) -> None:
    held = redlock(clients, timeout=10).take(0)
    fake_time.now += 5

    change(held)

    assert held.remaining() == pytest.approx(left, abs=0.01)


def test_a_lease_is_added_to(clients: list[redis.Redis], fake_time: FakeTime) -> None:
    held = redlock(clients, timeout=10).take(0)

    held.extend(20)

    assert 28 < held.remaining() < 30


def test_a_lock_that_a_majority_no_longer_has_is_lost(clients: list[redis.Redis]) -> None:
    held = redlock(clients).take(0)
    for client in clients[:2]:
        client.delete("lock:a")

    with pytest.raises(LockLost):
        held.check()

    assert held.lost
    assert not held.owned()


def test_whether_anybody_has_it_is_asked_of_the_majority(clients: list[redis.Redis]) -> None:
    one = redlock(clients)
    before = one.locked()
    clients[0].set("lock:a", "foreign")
    by_one = one.locked()

    with one as held:
        assert (before, by_one, held.locked()) == (False, False, True)


def test_there_is_no_fencing_number_and_the_error_says_why(clients: list[redis.Redis]) -> None:
    held = redlock(clients).take(0)

    with pytest.raises(LockUnsupported, match="no common order"):
        _ = held.fence


def test_a_token_of_the_callers_is_refused(clients: list[redis.Redis]) -> None:
    with pytest.raises(LockUnsupported, match="token"):
        redlock(clients).acquire(token="mine")

    assert left_on(clients) == [0, 0, 0]


def test_the_methods_of_redis_py_work(clients: list[redis.Redis]) -> None:
    one = redlock(clients, 30, blocking_timeout=0)

    assert one.acquire(blocking=False)
    assert one.owned()
    assert one.remaining() > 29
    assert not redlock(clients).acquire(blocking_timeout=0)
    one.release()
    with pytest.raises(LockError, match="not held"):
        one.release()


def test_the_same_thread_has_it_again_and_another_does_not(clients: list[redis.Redis]) -> None:
    def busy() -> bool:
        return not redlock(clients, reentrant=True).acquire(blocking=False)

    with redlock(clients, reentrant=True) as held:
        with redlock(clients, reentrant=True) as again:
            assert again.token == held.token
            assert in_thread(busy)
        assert left_on(clients) == [1, 1, 1]

    assert left_on(clients) == [0, 0, 0]


def test_listeners_hear_of_it_without_fence(
    clients: list[redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    for event in (events.ACQUIRED, events.RELEASED):
        monkeypatch.setattr(event, "listeners", [lambda **about: told.append(about)])

    with redlock(clients, key="a", template="t"):
        pass

    assert [(one["key"], one["template"], one["fence"]) for one in told] == [("a", "t", None)] * 2
    assert 0 <= told[1]["held_for"] < 1


def test_asyncio_is_refused_with_a_reason(clients: list[redis.Redis]) -> None:
    one = redlock(clients)

    async def enter() -> None:
        async with one:
            pass

    with pytest.raises(LockUnsupported, match=r"has no asyncio.*to_thread"):
        asyncio.run(enter())
    assert left_on(clients) == [0, 0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda held: held.acheck(),
        lambda held: held.alocked(),
        lambda held: held.aextend(1),
        lambda held: held.areacquire(),
        lambda held: held.arelease(),
    ],
    ids=["acheck", "alocked", "aextend", "areacquire", "arelease"],
)
def test_so_is_every_method_that_is_awaited_and_the_lock_stays_held(
    clients: list[redis.Redis], call: Callable[[Any], Any]
) -> None:
    held = redlock(clients).take(0)

    async def work() -> None:
        with pytest.raises(LockUnsupported):
            await call(held)

    asyncio.run(work())
    held.check()


def test_a_call_in_a_running_event_loop_is_refused(
    clients: list[redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "refuse", backends.refuse_blocking)

    async def work() -> None:
        redlock(clients).take(0)

    with pytest.raises(RuntimeError, match="nothing else runs"):
        asyncio.run(work())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_masters_are_refused(count: int) -> None:
    clients = [FakeServer().client() for _ in range(count)]

    with pytest.raises(ValueError, match=f"3 masters at least, better 5, not {count}"):
        redlock(clients)


def test_an_even_number_of_masters_is_not(clients: list[redis.Redis]) -> None:
    redlock([*clients, FakeServer().client()]).take(0).check()


@pytest.mark.parametrize(
    "others",
    [("redis://a:6379/0", "redis://b"), ("redis://a:6379/1", "redis://b")],
    ids=["the same database", "another database"],
)
def test_two_masters_that_are_one_server_are_refused(others: tuple[str, str]) -> None:
    urls = ["redis://user:s3cret@a", *others]
    clients = [redis.Redis.from_url(url) for url in urls]

    with pytest.raises(ValueError, match="'r1' and 'r2' of a Redlock are one server, tcp a:6379"):
        redlock(clients, names=["r1", "r2", "r3"])


def test_a_client_of_asyncio_is_refused(clients: list[redis.Redis]) -> None:
    with pytest.raises(TypeError, match="no asyncio"):
        Redlock([*clients[:2], redis.asyncio.Redis()], "lock:a")


def test_a_client_of_many_servers_is_refused(clients: list[redis.Redis]) -> None:
    with pytest.raises(TypeError, match="one server, which object is not"):
        Redlock([*clients[:2], object()], "lock:a")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1", True, None])
def test_a_master_timeout_that_is_no_time_is_refused(
    clients: list[redis.Redis], seconds: Any
) -> None:
    with pytest.raises(ValueError, match="master_timeout"):
        redlock(clients, master_timeout=seconds)


def test_a_lease_that_a_master_that_hangs_would_cost_is_refused(
    clients: list[redis.Redis],
) -> None:
    with pytest.raises(ValueError, match="at least 3 times the master_timeout"):
        redlock(clients, timeout=0.25)


def test_masters_are_known_again_by_their_pools(clients: list[redis.Redis]) -> None:
    others = [redis.Redis(connection_pool=client.connection_pool) for client in clients]

    assert servers_of(clients) is servers_of(others)
    assert servers_of(clients) is not servers_of(clients, ["a", "b", "c"])


@pytest.mark.parametrize(
    "option",
    [{"min_hold": 1}, {"replicas": 1}, {"protocol": "timestamp"}, {"shared": True}, {"limit": 2}],
    ids=str,
)
def test_what_needs_one_server_is_refused(clients: list[redis.Redis], option: Any) -> None:
    with pytest.raises(ValueError, match="not to be had for a lock on several masters"):
        redlock(clients, **option)


def test_the_holder_hears_a_request_to_stop_at_one_master(clients: list[redis.Redis]) -> None:
    held = redlock(clients).take()
    inspector = Inspector(clients[1], "lock:")
    seen = inspector.get("lock:a").fingerprint

    outcome = inspector.ask_to_stop("lock:a", seen, by="joe")
    held.check()

    assert outcome is Outcome.ASKED
    assert str(held.stop_requested) == "joe asks to stop"
