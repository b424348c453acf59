"""How often a lock asks Redis, counted on the wire and by the server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core.locks.batch import release_each, take_each
from tests.processes import eventually
from tests.support.locks import INDEX, held_names, listed, listeners, many
from tests.wire.helpers import meta_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

REAL = pytest.mark.real


@pytest.fixture
def warm(proxy: Proxy) -> redis.Redis:
    """Give a client that is connected to a server that knows the scripts."""
    client = proxy.client()
    client.ping()
    with listed(client, "warm") as held, many(client, ["warm too"]):
        held.reacquire()
        held.check()
    proxy.requests.clear()
    return client


def commands(requests: list[bytes]) -> list[bytes]:
    """Return the first word of each command on the wire."""
    words = b"".join(requests).split(b"\r\n")
    return [words[at + 2] for at, word in enumerate(words) if word.startswith(b"*")]


def test_acquire_is_one_round_trip_with_fence_and_record(proxy: Proxy, warm: redis.Redis) -> None:
    lock = listed(warm, "a", label="view pay")

    lock.acquire()

    assert proxy.round_trips == 1
    assert commands(proxy.requests) == [b"EVALSHA"]
    meta = meta_of(warm)
    assert (meta.fence, meta.token) == (lock.fence, lock.token)
    assert "view pay" in meta.record
    assert warm.zscore(INDEX, "lock:a")


def test_a_release_that_keeps_the_name_taken_is_one_round_trip(
    proxy: Proxy, warm: redis.Redis
) -> None:
    lock = listed(warm, "a", min_hold=20)
    lock.acquire()
    proxy.requests.clear()

    lock.release()

    assert commands(proxy.requests) == [b"EVALSHA"]
    assert not listed(warm, "a").acquire(blocking=False)


def test_a_busy_answer_is_one_round_trip(proxy: Proxy, warm: redis.Redis) -> None:
    listed(warm, "a").acquire()
    proxy.requests.clear()

    assert listed(warm, "a").acquire(blocking=False) is False

    assert commands(proxy.requests) == [b"EVALSHA"]


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "check": lambda held: held.check(),
    "owned": lambda held: held.owned(),
    "extend": lambda held: held.extend(1),
    "reacquire": lambda held: held.reacquire(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_looking_after_a_lock_is_one_round_trip(
    proxy: Proxy, warm: redis.Redis, operation: str
) -> None:
    held = listed(warm, "a").take(0)
    proxy.requests.clear()

    OPERATIONS[operation](held)

    assert commands(proxy.requests) == [b"EVALSHA"]


def test_what_the_handle_knows_asks_nobody(proxy: Proxy, warm: redis.Redis) -> None:
    held = listed(warm, "a").take(0)
    proxy.requests.clear()

    _ = held.fence, held.remaining(), held.lost, held.released

    assert proxy.round_trips == 0


def test_many_locks_are_taken_in_one_round_trip_and_released_in_one(
    proxy: Proxy, warm: redis.Redis
) -> None:
    taken = take_each([listed(warm, key) for key in "abcde"])
    after_taking = proxy.round_trips
    release_each([one.held for one in taken if one.held])

    assert (after_taking, proxy.round_trips) == (1, 2)
    assert commands(proxy.requests) == [b"EVALSHA"] * 10


def test_several_keys_are_taken_in_one_round_trip_and_let_go_in_one(
    proxy: Proxy, warm: redis.Redis
) -> None:
    with many(warm, "abcde"):
        after_taking = commands(proxy.requests)

    assert after_taking == [b"EVALSHA"]
    assert proxy.round_trips == 2


def test_where_one_of_several_is_busy_all_are_given_back_in_the_same_round_trip(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    listed(real_server.client(), "c").acquire()

    assert many(warm, "abcde").acquire(blocking=False) is False

    assert commands(proxy.requests) == [b"EVALSHA"]
    assert held_names(real_server.client(), "abcde") == "c"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_looking_after_several_is_one_round_trip(
    proxy: Proxy, warm: redis.Redis, operation: str
) -> None:
    held = many(warm, "abcde").take(0)
    proxy.requests.clear()

    OPERATIONS[operation](held)

    assert proxy.round_trips == 1
    assert commands(proxy.requests) == [b"EVALSHA"] * 5


def test_who_waits_for_several_asks_nothing_until_one_is_left_to_it(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    held = many(real_server.client(), "bd").take()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(many(warm, "abcde").take, 20)
        assert eventually(lambda: listeners(real_server) == 1)
        # Somebody's polling lock would have asked five times.
        time.sleep(0.5)
        held["b"].release()
        assert eventually(lambda: held_names(real_server.client(), "c") == "c")
        assert eventually(lambda: listeners(real_server) == 1)
        held["d"].release()
        result.result(20)

    sent = [word for word in commands(proxy.requests) if word in (b"EVALSHA", b"BLPOP")]
    assert sent == [*[b"EVALSHA", b"BLPOP"] * 2, b"EVALSHA"]


@REAL
@pytest.mark.usefixtures("nobody_looks")
def test_the_connection_of_a_waiter_serves_the_next_one(server: RealServer) -> None:
    client, observer = server.client(), server.client()
    lock, waiting = listed(client, "a"), listed(client, "a", renew=True)
    clients: Any = observer.client_list

    def asleep() -> list[str]:
        return [one["id"] for one in clients() if "b" in one["flags"]]

    connections = []
    for _ in range(3):
        held = lock.take()
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(waiting.take, 20)
            connections += eventually(asleep)
            held.release()
            following = result.result(20)
            # The answer to its last request has come.
            assert following.remaining()
            following.release()

    assert len(connections) == 3
    assert len(set(connections)) == 1
