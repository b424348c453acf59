from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.retry import Retry

from django_setnx_lock.core.line import Line, packed
from tests.core.helpers import command
from tests.faults.pools import full_pool
from tests.servers import FakeServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

REAL = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def line(redis_client: redis.Redis) -> Iterator[Line]:
    """Give a line for somebody who waits."""
    line = Line(redis_client, connect_timeout=5)
    yield line
    line.drop()


@pytest.fixture
def silent() -> Iterator[redis.Redis]:
    """Give a client of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield redis.Redis(port=listener.getsockname()[1])


def answer(line: Line) -> Any:
    assert line.wait(5)
    return line.read()


def test_a_question_has_its_answer(redis_client: redis.Redis) -> None:
    line = Line(redis_client)

    assert line.ask("SET", "a", b"\xff") in (b"OK", True)
    assert line.ask("GET", "a") == b"\xff"


def test_what_is_sent_behind_a_question_has_its_answer_too(redis_client: redis.Redis) -> None:
    line = Line(redis_client)

    assert line.ask("SET", "a", "1", then=("GET", "a")) in (b"OK", True)
    assert answer(line) == b"1"
    assert line.ask("GET", "a") == b"1"


@given(st.lists(st.text() | st.binary() | st.builds("x".__mul__, st.integers(1000, 1050))))
@example(["x" * 1023, "x" * 1024])
@example(["x" * 10_000])
def test_what_is_packed_here_is_packed_as_redis_py_does_it(values: list[str | bytes]) -> None:
    connection: Any = Connection

    in_bytes = packed(["MSET", *values])

    theirs = connection().pack_command("MSET", *values)
    assert in_bytes is None or b"".join(in_bytes) == b"".join(theirs)


def test_short_plain_text_is_packed_here() -> None:
    assert packed(["SET", "a", "x" * 1023]) is not None


def test_what_is_sent_together_is_answered_in_turn(line: Line) -> None:
    line.send(("SET", "a", "1"), ("GET", "a"), ("GET", "none"))

    assert [answer(line) for _ in range(3)][1:] == [b"1", None]


def test_without_an_answer_a_wait_ends_when_its_time_is_over(
    line: Line,
) -> None:
    line.send(("PING",))
    answer(line)

    started = time.monotonic()

    assert not line.wait(0.05)
    assert time.monotonic() - started > 0.04
    assert not line.wait(0)
    assert not line.wait(-1)


def test_an_error_for_an_answer_leaves_the_line_usable(line: Line) -> None:
    line.send(("LPUSH", "a", "1"), ("GET", "a"), ("LLEN", "a"))
    answer(line)

    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        answer(line)

    assert answer(line) == 1


def test_a_line_that_was_dropped_connects_anew(line: Line) -> None:
    line.send(("PING",))

    line.drop()
    line.drop()
    line.send(("GET", "none"))

    assert answer(line) is None


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_line_speaks_as_its_client_does(server: Server, protocol: int, decode: bool) -> None:
    client = server.client(protocol=protocol, decode_responses=decode, db=2)
    client.set("a", "1")

    assert Line(client).ask("GET", "a") == client.get("a")


@REAL
def test_a_line_takes_no_connection_from_the_pool(server: RealServer) -> None:
    with full_pool(server, redis.BlockingConnectionPool, timeout=0.01) as client:
        assert Line(client).ask("PING") in (b"PONG", True)


@REAL
def test_who_waits_is_not_cut_off_by_the_time_limit_of_the_client(server: RealServer) -> None:
    line = Line(server.client(socket_timeout=0.05), connect_timeout=0.05)
    line.send(("BLPOP", "box", "5"))

    assert not line.wait(0.2)
    server.client().lpush("box", "1")

    assert answer(line) == [b"box", b"1"]
    line.drop()


def test_connecting_takes_no_longer_than_it_may(silent: redis.Redis) -> None:
    line = Line(silent, connect_timeout=0.1)

    started = time.monotonic()
    with pytest.raises((redis.exceptions.TimeoutError, redis.exceptions.ConnectionError)):
        line.ask("PING")

    assert time.monotonic() - started < 3


@REAL
def test_the_end_of_a_connection_is_no_answer(server: RealServer) -> None:
    line = Line(server.client(), connect_timeout=5)
    number = line.ask("CLIENT", "ID")
    line.send(("BLPOP", "box", "0"))

    command(server.client(), "CLIENT", "KILL", "ID", number)

    with pytest.raises(redis.exceptions.ConnectionError):
        answer(line)


@pytest.mark.parametrize(("retries", "again"), [(0, 1), (1, 1), (2, 2)])
def test_a_question_is_sent_again_as_often_as_the_client_would_and_once_at_least(
    proxy: Proxy, retries: int, again: int
) -> None:
    line = Line(proxy.client(retry=Retry(NoBackoff(), retries)))
    line.ask("PING")
    proxy.drop_replies(b"INCR")

    with pytest.raises(redis.exceptions.ConnectionError):
        line.ask("INCR", "counter")

    assert sent_again(proxy) == again


def sent_again(proxy: Proxy) -> Any:
    counter: Any = proxy.client().get("counter")
    return int(counter) - 1


def test_who_waits_sends_nothing_twice(proxy: Proxy) -> None:
    line = Line(proxy.client(retry=Retry(NoBackoff(), 3)), connect_timeout=5)
    line.send(("PING",))
    line.read()
    proxy.drop_replies(b"INCR")

    line.send(("INCR", "counter"))
    with pytest.raises(redis.exceptions.ConnectionError):
        line.read()

    assert sent_again(proxy) == 0


def test_only_a_real_socket_has_a_number(server: Server) -> None:
    line = Line(server.client(), connect_timeout=5)
    before = line.fileno()
    line.connect()

    number = line.fileno()

    assert before is None
    assert (number is None) == isinstance(server, FakeServer)
    line.drop()
