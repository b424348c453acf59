"""Which clients speak to the same server and database."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from django_setnx_lock.core.connections import endpoints
from django_setnx_lock.core.connections.endpoints import is_portable, server_id
from tests.servers import FakeServer


def sentinel(*hosts: str, name: str = "shop", db: int = 0) -> redis.Redis:
    watchers: Any = Sentinel
    client: redis.Redis = watchers([(host, 26379) for host in hosts], db=db).master_for(name)
    return client


def test_clients_of_one_database_agree() -> None:
    clients: list[Any] = [
        redis.Redis(host="redis", port=6379, db=1),
        redis.Redis.from_url("redis://user:hidden@redis:6379/1"),
        redis.Redis.from_url("redis://redis/1", decode_responses=True),
        redis.asyncio.Redis(host="redis", db=1),
    ]

    assert {server_id(client) for client in clients} == {"tcp redis:6379/1"}


@pytest.mark.parametrize(
    "other",
    [
        redis.Redis(host="other"),
        redis.Redis(host="redis", port=6380),
        redis.Redis(host="redis", db=1),
        redis.Redis(unix_socket_path="/run/redis"),
        sentinel("redis"),
        FakeServer().client(host="redis"),
    ],
    ids=["host", "port", "database", "socket", "sentinel", "fake"],
)
def test_another_server_or_database_is_another(other: redis.Redis) -> None:
    assert server_id(other) != server_id(redis.Redis(host="redis"))


def test_sockets_are_told_by_their_path() -> None:
    assert server_id(redis.Redis(unix_socket_path="/run/a", db=2)) == "unix /run/a/2"


def test_what_is_behind_sentinels_is_told_by_service_and_sentinels() -> None:
    same = {server_id(sentinel("a", "b")), server_id(sentinel("b", "a"))}

    assert len(same) == 1
    assert server_id(sentinel("a", "b", name="other")) not in same
    assert server_id(sentinel("c")) not in same
    assert server_id(sentinel("a", "b", db=1)) not in same


def test_a_fake_is_its_own_server_and_means_nothing_elsewhere() -> None:
    one, other = FakeServer(), FakeServer()

    assert server_id(one.client()) == server_id(one.client())
    assert server_id(one.client()) != server_id(other.client())
    assert not is_portable(server_id(one.client()))
    assert is_portable(server_id(redis.Redis()))


def test_a_client_without_a_pool_is_a_place_of_its_own() -> None:
    one, other = object(), object()

    assert server_id(one) != server_id(other)
    assert not is_portable(server_id(one))


def test_pools_that_are_gone_are_forgotten() -> None:
    client = redis.Redis(host="redis")
    server_id(client)
    number = id(client.connection_pool)
    known = number in endpoints._known

    del client
    gc.collect()

    assert known
    assert number not in endpoints._known
