"""Servers that cannot be reached, do not answer, or answer every request with an error."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, RedisLock
from tests.processes import Stopwatch, eventually
from tests.support.seams import send_nothing_behind, take_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

REAL = pytest.mark.real
ONCE: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
CLIENTS = pytest.mark.parametrize(
    "options",
    [ONCE, {"retry": Retry(NoBackoff(), 2)}],
    ids=["no retries", "two retries"],
)


def operations(client: redis.Redis, held: LockHandle) -> dict[str, Callable[[], object]]:
    """Return each public operation that asks Redis."""
    lock = RedisLock(client, "lock:b")
    inspector = Inspector(client, "lock:")
    of_the_lock: dict[str, Callable[[], object]] = {
        "take": lambda: lock.take(0),
        "acquire": lock.acquire,
        "acquire without waiting": lambda: lock.acquire(blocking=False),
        "with": lock.__enter__,
        "locked": lock.locked,
        "check": held.check,
        "owned": held.owned,
        "extend": lambda: held.extend(1),
        "reacquire": held.reacquire,
        "release": held.release,
    }
    return of_the_lock | {
        "take_each": lambda: take_each([lock]),
        "get": lambda: inspector.get("lock:a"),
        "find": inspector.find,
        "everything": lambda: Inspector(client, "lock:", use_index=False).find(),
        "force_release": lambda: inspector.force_release("lock:a", "0" * 32),
    }


def outcomes(client: redis.Redis, held: LockHandle) -> dict[str, str]:
    """Return the cause that each operation gives; any other exception goes through."""
    causes = {}
    for name, operation in operations(client, held).items():
        try:
            operation()
        except LockUnavailable as error:
            causes[name] = error.cause
        else:
            causes[name] = "none"
    return causes


@CLIENTS
def test_every_operation_on_a_server_that_is_down_ends_in_the_one_error(
    proxy: Proxy, options: dict[str, Any]
) -> None:
    client = proxy.client(**options)
    held = RedisLock(client, "lock:a").take(0)
    proxy.refuse()

    causes = outcomes(client, held)

    assert set(causes.values()) == {"unreachable"}
    assert not held.released
    assert not held.lost


@REAL
def test_every_operation_on_a_server_that_does_not_answer_ends_in_time(server: RealServer) -> None:
    client = server.client(socket_timeout=0.05, **ONCE)
    held = RedisLock(client, "lock:a", timeout=60).take(0)
    server.pause()

    with Stopwatch() as watch:
        causes = outcomes(client, held)

    server.resume()
    assert set(causes.values()) == {"timeout"}
    # An acquire asks, and then asks for its undoing; a connection is made anew for each.
    assert watch.seconds < len(causes) * 4 * 0.05 + 1


@REAL
def test_a_grant_that_could_not_be_undone_ends_with_its_lease(
    server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_nothing_behind(monkeypatch)
    watch = server.client()
    taking = server.client(socket_timeout=0.1, **ONCE)
    with RedisLock(taking, "lock:warm"):
        pass
    server.pause()

    with pytest.raises(LockUnavailable) as caught:
        RedisLock(taking, "lock:a", timeout=0.3).take(0)
    server.resume()

    assert caught.value.cause == "timeout"
    # What was sent is carried out late, and the undoing needed a connection.
    eventually(lambda: watch.exists("{lock:a}:meta"))
    eventually(lambda: not watch.exists("lock:a"), seconds=2)


def test_a_server_that_comes_back_empty_has_lost_the_lock(real_server: RealServer) -> None:
    client = real_server.client(**ONCE)
    held = RedisLock(client, "lock:a").take(0)

    real_server.restart()

    assert not held.owned()
    assert held.lost
    assert RedisLock(client, "lock:a").acquire(blocking=False)


ANSWERS = [
    ("-LOADING Redis is loading the dataset in memory", "unreachable"),
    ("-ERR max number of clients reached", "unreachable"),
    (
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "unreachable",
    ),
    ("-MISCONF Errors writing to the AOF file", "server"),
    ("-NOREPLICAS Not enough good replicas to write.", "replicas"),
    ("-ERR script tried accessing undeclared key, key: k", "undeclared"),
    ("-BUSY Redis is busy running a script.", "server"),
    ("-CLUSTERDOWN The cluster is down", "unreachable"),
    ("-NOAUTH Authentication required.", "denied"),
    ("-WRONGPASS invalid username-password pair or user is disabled.", "denied"),
    ("-NOPERM this user has no permissions to run the 'evalsha' command", "denied"),
    ("-ERR ACL failure in script: No permissions to access a key", "denied"),
    ("-READONLY You can't write against a read only replica.", "readonly"),
    ("-OOM command not allowed when used memory > 'maxmemory'.", "memory"),
    ("-WRONGTYPE Operation against a key holding the wrong kind of value", "wrongtype"),
    ("-ERR unknown command 'EVALSHA'", "server"),
]


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """Give a client of a server that answers everything with one line."""
    answer = f"{request.param}\r\n".encode()
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                # Each request begins with the number of its words.
                connection.sendall(answer * (data.count(b"\n*") + 1))

    def listen() -> None:
        while not stopping.is_set():
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=[connection], daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    client = redis.Redis(port=listener.getsockname()[1], protocol=2, **ONCE)
    yield client
    client.close()
    stopping.set()
    socket.create_connection(listener.getsockname()).close()
    thread.join(10)
    listener.close()


@pytest.mark.parametrize(
    ("answering", "cause"), ANSWERS, indirect=["answering"], ids=lambda value: str(value)[:12]
)
def test_a_server_that_refuses_everything_ends_in_the_one_error(
    answering: redis.Redis, cause: str
) -> None:
    for ask in (RedisLock(answering, "lock:a").acquire, Inspector(answering, "lock:").find):
        with pytest.raises(LockUnavailable) as caught:
            ask()

        assert caught.value.cause == cause
        assert isinstance(caught.value.__cause__, redis.exceptions.RedisError)
