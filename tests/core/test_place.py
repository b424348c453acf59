"""Which clients speak to the same server and database."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from django_setnx_lock.core import place
from django_setnx_lock.core.place import is_shown, place_of
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

    assert {place_of(client) for client in clients} == {"tcp redis:6379/1"}


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
    assert place_of(other) != place_of(redis.Redis(host="redis"))


def test_sockets_are_told_by_their_path() -> None:
    assert place_of(redis.Redis(unix_socket_path="/run/a", db=2)) == "unix /run/a/2"


def test_what_is_behind_sentinels_is_told_by_service_and_sentinels() -> None:
    same = {place_of(sentinel("a", "b")), place_of(sentinel("b", "a"))}

    assert len(same) == 1
    assert place_of(sentinel("a", "b", name="other")) not in same
    assert place_of(sentinel("c")) not in same
    assert place_of(sentinel("a", "b", db=1)) not in same


def test_a_fake_is_its_own_server_and_means_nothing_elsewhere() -> None:
    one, other = FakeServer(), FakeServer()

    assert place_of(one.client()) == place_of(one.client())
    assert place_of(one.client()) != place_of(other.client())
    assert not is_shown(place_of(one.client()))
    assert is_shown(place_of(redis.Redis()))


def test_a_client_without_a_pool_is_a_place_of_its_own() -> None:
    one, other = object(), object()

    assert place_of(one) != place_of(other)
    assert not is_shown(place_of(one))


def test_pools_that_are_gone_are_forgotten() -> None:
    client = redis.Redis(host="redis")
    place_of(client)
    number = id(client.connection_pool)
    known = number in place._known

    del client
    gc.collect()

    assert known
    assert number not in place._known
