from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
import redis

from django_setnx_lock.core.line import Line
from django_setnx_lock.core.lines import Lines
from tests.processes import eventually

if TYPE_CHECKING:
    from tests.servers import RealServer, Server

REAL = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def connected(lines: Lines[Line], client: Any, count: int = 1) -> list[Any]:
    """Return borrowed lines, which are connected."""
    borrowed = [lines.borrow(client) for _ in range(count)]
    for line in borrowed:
        line.ask("PING")
    return borrowed


def connections(server: RealServer) -> int:
    """Return how many connections there are to the server of clients called ``liner``."""
    clients: Any = server.client().client_list()
    return sum(one["name"] == "liner" for one in clients)


def test_a_line_that_was_given_back_is_lent_again(redis_client: redis.Redis) -> None:
    lines = Lines(Line)
    (line,) = connected(lines, redis_client)

    lines.give_back(redis_client, line)

    assert lines.borrow(redis_client) is line


def test_nobody_is_lent_what_another_has(redis_client: redis.Redis) -> None:
    lines = Lines(Line)
    (line,) = connected(lines, redis_client)
    lines.give_back(redis_client, line)

    assert lines.borrow(redis_client) is not lines.borrow(redis_client)


def test_lines_of_another_client_are_not_lent(server: Server) -> None:
    one, other, lines = server.client(), server.client(db=1), Lines(Line)
    (line,) = connected(lines, one)
    lines.give_back(one, line)

    assert lines.borrow(other) is not line


def test_clients_of_one_pool_share_their_lines(server: Server) -> None:
    one, lines = server.client(), Lines(Line)
    other = type(one)(connection_pool=one.connection_pool)
    (line,) = connected(lines, one)
    lines.give_back(one, line)

    assert lines.borrow(other) is line


@REAL
def test_no_more_than_sixteen_are_kept(server: RealServer) -> None:
    client, lines = server.client(client_name="liner"), Lines(Line)
    borrowed = connected(lines, client, 20)
    before = connections(server)

    for line in borrowed:
        lines.give_back(client, line)

    assert before == 20
    assert eventually(lambda: connections(server) == 16)


def test_a_forked_child_is_lent_none_of_its_parents_lines(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines(Line)
    (line,) = connected(lines, redis_client)
    lines.give_back(redis_client, line)

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert lines.borrow(redis_client) is not line


def test_lines_that_are_forgotten_are_not_lent(redis_client: redis.Redis) -> None:
    lines = Lines(Line)
    (line,) = connected(lines, redis_client)
    lines.give_back(redis_client, line)

    lines.forget(redis_client)
    lines.forget(redis_client)

    assert lines.borrow(redis_client) is not line


@REAL
def test_lines_go_with_the_last_client_of_their_pool(server: RealServer) -> None:
    client, lines = redis.Redis(port=server.port, client_name="liner"), Lines(Line)
    (line,) = connected(lines, client)
    lines.give_back(client, line)
    pool, before = ref(client.connection_pool), connections(server)

    del client, line
    gc.collect()

    assert pool() is None
    assert before == 1
    assert eventually(lambda: connections(server) == 0)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 7),
        ({"socket_connect_timeout": None, "socket_timeout": None}, 7),
        ({"socket_connect_timeout": None, "socket_timeout": 2}, 2),
        ({"socket_connect_timeout": 3, "socket_timeout": 2}, 3),
    ],
    ids=str,
)
@REAL
def test_who_waits_connects_within_the_clients_limit_or_else_its_own(
    server: RealServer, options: dict[str, Any], seconds: float
) -> None:
    client = server.client(**options)
    if not options and client.connection_pool.connection_kwargs.get("socket_timeout"):
        pytest.skip("this redis-py has a limit of its own")

    line: Any = Lines(Line, connect_timeout=7).borrow(client)

    assert line._connection.socket_connect_timeout == seconds
