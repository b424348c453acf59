from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
import redis

from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Connection
from django_setnx_lock.core.connections.pool import IdleConnections
from tests.processes import eventually

if TYPE_CHECKING:
    from tests.servers import RealServer, Server

REAL = pytest.mark.real


def connected(idle: IdleConnections[Connection], client: Any, count: int = 1) -> list[Any]:
    """Return borrowed idle, which are connected."""
    borrowed = [idle.checkout(client) for _ in range(count)]
    for connection in borrowed:
        run(connection.ask([("PING",)]))
    return borrowed


def connections(server: RealServer) -> int:
    """Return how many connections there are to the server of clients called ``liner``."""
    clients: Any = server.client().client_list()
    return sum(one["name"] == "liner" for one in clients)


def test_a_line_that_was_given_back_is_lent_again(redis_client: redis.Redis) -> None:
    idle = IdleConnections(Connection)
    (connection,) = connected(idle, redis_client)

    idle.checkin(redis_client, connection)

    assert idle.checkout(redis_client) is connection


def test_nobody_is_lent_what_another_has(redis_client: redis.Redis) -> None:
    idle = IdleConnections(Connection)
    (connection,) = connected(idle, redis_client)
    idle.checkin(redis_client, connection)

    assert idle.checkout(redis_client) is not idle.checkout(redis_client)


def test_lines_of_another_client_are_not_lent(server: Server) -> None:
    one, other, idle = server.client(), server.client(db=1), IdleConnections(Connection)
    (connection,) = connected(idle, one)
    idle.checkin(one, connection)

    assert idle.checkout(other) is not connection


def test_clients_of_one_pool_share_their_lines(server: Server) -> None:
    one, idle = server.client(), IdleConnections(Connection)
    other = type(one)(connection_pool=one.connection_pool)
    (connection,) = connected(idle, one)
    idle.checkin(one, connection)

    assert idle.checkout(other) is connection


@REAL
def test_no_more_than_sixteen_are_kept(server: RealServer) -> None:
    client, idle = server.client(client_name="liner"), IdleConnections(Connection)
    borrowed = connected(idle, client, 20)
    before = connections(server)

    for connection in borrowed:
        idle.checkin(client, connection)

    assert before == 20
    assert eventually(lambda: connections(server) == 16)


def test_a_forked_child_is_lent_none_of_its_parents_lines(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = IdleConnections(Connection)
    (connection,) = connected(idle, redis_client)
    idle.checkin(redis_client, connection)

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert idle.checkout(redis_client) is not connection


def test_lines_that_are_forgotten_are_not_lent(redis_client: redis.Redis) -> None:
    idle = IdleConnections(Connection)
    (connection,) = connected(idle, redis_client)
    idle.checkin(redis_client, connection)

    idle.forget(redis_client)
    idle.forget(redis_client)

    assert idle.checkout(redis_client) is not connection


@REAL
def test_lines_go_with_the_last_client_of_their_pool(server: RealServer) -> None:
    client, idle = redis.Redis(port=server.port, client_name="liner"), IdleConnections(Connection)
    (connection,) = connected(idle, client)
    idle.checkin(client, connection)
    pool, before = ref(client.connection_pool), connections(server)

    del client, connection
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

    connection: Any = IdleConnections(Connection, connect_timeout=7).checkout(client)

    assert connection.limits.connect == seconds
