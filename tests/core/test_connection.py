from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.connection import Connection as RedisConnection
from redis.retry import Retry

from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Connection
from tests.core.helpers import command
from tests.faults.pools import full_pool
from tests.servers import FakeServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core.connections.connection import Command
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

REAL = pytest.mark.real


@pytest.fixture
def connection(redis_client: redis.Redis) -> Iterator[Connection]:
    """Give a connection for somebody who waits."""
    connection = Connection(redis_client, connect_timeout=5)
    yield connection
    connection.close()


@pytest.fixture
def silent() -> Iterator[redis.Redis]:
    """Give a client of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield redis.Redis(port=listener.getsockname()[1])


def asked(connection: Connection, *command: str | bytes, then: Command | None = None) -> Any:
    (reply,) = run(connection.ask([command] if then is None else [command, then]))
    if isinstance(reply, Exception):
        raise reply
    return reply


def answer(connection: Connection) -> Any:
    assert connection.wait(5)
    return connection.read()


def test_a_question_has_its_answer(redis_client: redis.Redis) -> None:
    connection = Connection(redis_client)

    assert asked(connection, "SET", "a", b"\xff") in (b"OK", True)
    assert asked(connection, "GET", "a") == b"\xff"


def test_what_is_sent_behind_a_question_has_its_answer_too(redis_client: redis.Redis) -> None:
    connection = Connection(redis_client)

    assert asked(connection, "SET", "a", "1", then=("GET", "a")) in (b"OK", True)
    assert answer(connection) == b"1"
    assert asked(connection, "GET", "a") == b"1"


@given(st.lists(st.text() | st.binary() | st.builds("x".__mul__, st.integers(1000, 1050))))
@example(["x" * 1023, "x" * 1024])
@example(["x" * 10_000])
def test_commands_are_packed_as_redis_py_does_it(values: list[str | bytes]) -> None:
    theirs: Any = RedisConnection()  # type: ignore[no-untyped-call]  # redis-py's own

    in_bytes = Connection(redis.Redis()).pack(["MSET", *values], ["PING"])

    commands = (("MSET", *values), ("PING",))
    assert in_bytes == b"".join(b"".join(theirs.pack_command(*one)) for one in commands)


def test_short_plain_text_is_packed_without_redis_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(AbstractConnection, "pack_command")

    assert Connection(redis.Redis()).pack(["SET", "a", "x" * 1023])


def test_what_is_sent_together_is_answered_in_turn(connection: Connection) -> None:
    connection.send(("SET", "a", "1"), ("GET", "a"), ("GET", "none"))

    assert [answer(connection) for _ in range(3)][1:] == [b"1", None]


def test_without_an_answer_a_wait_ends_when_its_time_is_over(
    connection: Connection,
) -> None:
    connection.send(("PING",))
    answer(connection)

    started = time.monotonic()

    assert not connection.wait(0.05)
    assert time.monotonic() - started > 0.04
    assert not connection.wait(0)
    assert not connection.wait(-1)


def test_an_error_for_an_answer_leaves_the_line_usable(connection: Connection) -> None:
    connection.send(("LPUSH", "a", "1"), ("GET", "a"), ("LLEN", "a"))
    answer(connection)

    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        answer(connection)

    assert answer(connection) == 1


def test_a_line_that_was_dropped_connects_anew(connection: Connection) -> None:
    connection.send(("PING",))

    connection.close()
    connection.close()
    connection.send(("GET", "none"))

    assert answer(connection) is None


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_line_speaks_as_its_client_does(server: Server, protocol: int, decode: bool) -> None:
    client = server.client(protocol=protocol, decode_responses=decode, db=2)
    client.set("a", "1")

    assert asked(Connection(client), "GET", "a") == client.get("a")


@REAL
def test_a_line_takes_no_connection_from_the_pool(server: RealServer) -> None:
    with full_pool(server, redis.BlockingConnectionPool, timeout=0.01) as client:
        assert asked(Connection(client), "PING") in (b"PONG", True)


@REAL
def test_who_waits_is_not_cut_off_by_the_time_limit_of_the_client(server: RealServer) -> None:
    connection = Connection(server.client(socket_timeout=0.05), connect_timeout=0.05)
    connection.send(("BLPOP", "box", "5"))

    assert not connection.wait(0.2)
    server.client().lpush("box", "1")

    assert answer(connection) == [b"box", b"1"]
    connection.close()


def test_connecting_takes_no_longer_than_it_may(silent: redis.Redis) -> None:
    connection = Connection(silent, connect_timeout=0.1)

    started = time.monotonic()
    with pytest.raises((redis.exceptions.TimeoutError, redis.exceptions.ConnectionError)):
        asked(connection, "PING")

    assert time.monotonic() - started < 3


@REAL
def test_the_end_of_a_connection_is_no_answer(server: RealServer) -> None:
    connection = Connection(server.client(), connect_timeout=5)
    number = asked(connection, "CLIENT", "ID")
    connection.send(("BLPOP", "box", "0"))

    command(server.client(), "CLIENT", "KILL", "ID", number)

    with pytest.raises(redis.exceptions.ConnectionError):
        answer(connection)


@pytest.mark.parametrize(("retries", "again"), [(0, 1), (1, 1), (2, 2)])
def test_a_question_is_sent_again_as_often_as_the_client_would_and_once_at_least(
    proxy: Proxy, retries: int, again: int
) -> None:
    connection = Connection(proxy.client(retry=Retry(NoBackoff(), retries)))
    asked(connection, "PING")
    proxy.drop_replies(b"INCR")

    with pytest.raises(redis.exceptions.ConnectionError):
        asked(connection, "INCR", "counter")

    assert sent_again(proxy) == again


def sent_again(proxy: Proxy) -> Any:
    counter: Any = proxy.client().get("counter")
    return int(counter) - 1


def test_who_waits_sends_nothing_twice(proxy: Proxy) -> None:
    connection = Connection(proxy.client(retry=Retry(NoBackoff(), 3)), connect_timeout=5)
    connection.send(("PING",))
    connection.read()
    proxy.drop_replies(b"INCR")

    connection.send(("INCR", "counter"))
    with pytest.raises(redis.exceptions.ConnectionError):
        connection.read()

    assert sent_again(proxy) == 0


def test_only_a_real_socket_has_a_number(server: Server) -> None:
    connection = Connection(server.client(), connect_timeout=5)
    before = connection.fileno()
    connection.connect()

    number = connection.fileno()

    assert before is None
    assert (number is None) == isinstance(server, FakeServer)
    connection.close()
