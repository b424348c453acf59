"""Which connections the requests of a lock go over."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock.core import RedisLock
from tests.core.helpers import command

if TYPE_CHECKING:
    from tests.servers import RealServer

REAL = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def use(client: redis.Redis) -> None:
    with RedisLock(client, "lock:a") as held:
        held.check()
        held.reacquire()
        assert not RedisLock(client, "lock:a").acquire(blocking=False)


def test_requests_take_no_connection_of_the_pool(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_connection(*args: Any, **options: Any) -> Any:
        pytest.fail("took a connection of the pool")

    with monkeypatch.context() as patched:
        patched.setattr(redis_client.connection_pool, "get_connection", no_connection)
        use(redis_client)

    assert not redis_client.exists("lock:a")


@pytest.mark.parametrize("owner", ["client", "class"])
def test_requests_of_a_client_that_is_traced_go_through_it(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    traced: list[str] = []
    of: Any = redis_client if owner == "client" else type(redis_client)
    execute: Any = of.execute_command

    @functools.wraps(execute)
    def trace(*words: Any, **options: Any) -> Any:
        traced.append(words[owner == "class"])
        return execute(*words, **options)

    monkeypatch.setattr(of, "execute_command", trace)
    use(redis_client)

    assert traced.count("EVALSHA") == 5


@REAL
def test_a_connection_that_was_killed_meanwhile_is_made_anew(server: RealServer) -> None:
    client = server.client(retry=Retry(NoBackoff(), 0))
    use(client)
    command(server.client(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    use(client)


@REAL
def test_one_connection_is_enough_for_one_thread(server: RealServer) -> None:
    client = server.client(client_name="asker")

    for _ in range(5):
        use(client)

    clients: Any = server.client().client_list()
    assert sum(one["name"] == "asker" for one in clients) == 1
