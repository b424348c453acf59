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


def test_requests_take_no_connection_of_the_pool(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_connection(*args: Any, **options: Any) -> Any:
        pytest.fail("took a connection of the pool")

    with monkeypatch.context() as patched:
        patched.setattr(redis_client.connection_pool, "get_connection", no_connection)
        use(redis_client)

    assert not redis_client.exists("lock:a")


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


def test_what_the_message_says_to_do_instead_works(redis_client: redis.Redis) -> None:
    refused = Prefixed(connection_pool=redis_client.connection_pool)

    use(redis.Redis(connection_pool=refused.connection_pool))


def test_a_client_whose_class_adds_other_methods_will_do(redis_client: redis.Redis) -> None:
    use(Listening(connection_pool=redis_client.connection_pool))


def test_a_client_of_no_server_is_refused() -> None:
    with pytest.raises(LockUnsupported, match="one server, which object is not"):
        RedisLock(object(), "lock:a").acquire()


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
