"""Which clients a lock takes, and which connections its requests go over."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockUnsupported
from django_setnx_lock.core import Inspector, MultiLock, RedisLock, Redlock
from tests.processes import eventually

if TYPE_CHECKING:
    from tests.servers import RealServer

REAL = pytest.mark.real


def use(client: redis.Redis) -> None:
    with RedisLock(client, "lock:a") as held:
        held.check()
        held.reacquire()
        assert not RedisLock(client, "lock:a").acquire(blocking=False)


def with_prefix(self: Any, *words: Any, **options: Any) -> Any:
    execute: Any = redis.Redis.execute_command
    return execute(self, words[0], f"shop:{words[1]}", *words[2:], **options)


class Prefixed(redis.Redis):
    execute_command = with_prefix


class Listening(redis.Redis):
    """A client with a method of its own, and with one of redis-py made anew."""

    def cheer(self) -> bytes:
        return b"hurray"

    def ping(self, **options: Any) -> Any:
        return self.cheer()


class OwnPipelines(Listening):
    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        return Prefixed(connection_pool=self.connection_pool).pipeline(transaction, shard_hint)


class PrefixedOfAsyncio(redis.asyncio.Redis):
    execute_command = with_prefix


class PrefixedCluster(redis.RedisCluster):
    execute_command = with_prefix


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (Prefixed, "execute_command"),
        (OwnPipelines, "pipeline"),
        (PrefixedOfAsyncio, "execute_command"),
    ],
)
def test_a_client_whose_class_sends_commands_in_its_own_way_is_refused(
    kind: Any, method: str
) -> None:
    with pytest.raises(LockUnsupported, match=rf"{kind.__name__} has its own {method}\(\)"):
        RedisLock(kind(), "lock:a")


def test_several_keys_and_the_inspector_refuse_such_a_client_too() -> None:
    for make in (
        lambda: MultiLock(Prefixed(), ["lock:a", "lock:b"]),
        lambda: Inspector(Prefixed(), "lock"),
        lambda: Redlock([redis.Redis(), redis.Redis(port=1), Prefixed(port=2)], "lock:a"),
        # It would connect when it is made.
        lambda: RedisLock(PrefixedCluster.__new__(PrefixedCluster), "lock:a"),
    ):
        with pytest.raises(LockUnsupported, match="has its own execute_command"):
            make()


@pytest.mark.parametrize(
    ("refused", "will_do"),
    [
        pytest.param(Prefixed, redis.Redis, id="what the message says to do instead"),
        pytest.param(None, Listening, id="with other methods"),
    ],
)
def test_a_client_over_the_same_pool_whose_class_sends_nothing_in_its_own_way_will_do(
    redis_client: redis.Redis, refused: Any, will_do: Any
) -> None:
    pool = redis_client.connection_pool
    if refused:
        pool = refused(connection_pool=pool).connection_pool

    use(will_do(connection_pool=pool))


@pytest.mark.parametrize("owner", ["client", "class"])
def test_tracing_of_redis_py_itself_is_in_nobodys_way(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    spans: list[Any] = []
    of: Any = redis_client if owner == "client" else redis.Redis
    execute: Any = of.execute_command

    # As Sentry's SDK does it, without functools.wraps().
    def traced(*words: Any, **options: Any) -> Any:
        spans.append(words[owner == "class"])
        return execute(*words, **options)

    monkeypatch.setattr(of, "execute_command", traced)
    redis_client.ping()
    use(redis_client)

    # The calls of locks are not among them.
    assert spans == ["PING"]


@REAL
def test_one_connection_is_enough_for_one_thread_and_goes_with_the_client(
    server: RealServer,
) -> None:
    def connections() -> int:
        clients: Any = server.client().client_list()
        return sum(one["name"] == "asker" for one in clients)

    client = redis.Redis(port=server.port, client_name="asker")
    for _ in range(5):
        use(client)
    before = connections()

    del client
    gc.collect()

    assert before == 1
    eventually(lambda: connections() == 0)
