"""Replies that are cut off after the server has done what it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, LockHandle, Outcome, RedisLock
from django_setnx_lock.core.protocol import scripts
from tests.wire.helpers import ask, meta_of, send, send_sha

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

# Before redis-py 6, a client tries again only after errors it was told of.
TOLD: dict[str, Any] = {"retry_on_error": [redis.exceptions.ConnectionError]}
CLIENTS: list[dict[str, Any]] = [
    {"retry": Retry(NoBackoff(), 3), **TOLD},
    {"retry": Retry(NoBackoff(), 3)},
    {"retry": Retry(NoBackoff(), 0)},
    {"retry": None},
    {},
]
IDS = ["three retries", "three retries untold", "no retries", "no policy", "default"]
clients = pytest.mark.parametrize("options", CLIENTS, ids=IDS)


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client that sees what the server has, past the proxy."""
    client = real_server.client(decode_responses=True)
    for script in (scripts.ACQUIRE, scripts.RELEASE, scripts.CANCEL, scripts.RENEW, scripts.FORCE):
        client.script_load(script.source)
    return client


def cut(proxy: Proxy, script: scripts.Script) -> Any:
    return proxy.drop_next_reply(script.sha.encode())


@clients
def test_a_grant_whose_reply_was_cut_off_is_held_after_all(
    proxy: Proxy, direct: redis.Redis, options: dict[str, Any]
) -> None:
    lock = RedisLock(proxy.client(**options), "lock:a")
    dropped = cut(proxy, scripts.ACQUIRE)

    held = lock.take(0)

    assert dropped.is_set()
    assert direct.get("lock:a") == held.token
    held.check()
    held.release()
    assert not direct.exists("lock:a")


def test_the_retry_has_the_fence_of_the_grant_whose_reply_was_cut_off(
    proxy: Proxy, direct: redis.Redis
) -> None:
    client = proxy.client(retry=Retry(NoBackoff(), 0))
    turn = RedisLock(client, "lock:a").attempt()
    request = turn.request(waits=False)
    cut(proxy, scripts.ACQUIRE)
    with pytest.raises(redis.exceptions.ConnectionError):
        send_sha(client, request)
    first = meta_of(direct).fence

    held = ask(turn, waits=False)

    assert isinstance(held, LockHandle)
    assert held.fence == first


def release_after_the_loss(proxy: Proxy, direct: redis.Redis) -> None:
    """Release with the first copy kept back, and the lock lost to another before the second."""
    client = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.2)
    held = RedisLock(client, "lock:a", timeout=2).take(0)
    proxy.hold(scripts.RELEASE.sha.encode(), once=True)
    with pytest.raises(LockUnavailable):
        held.release()
    assert proxy.holds.wait(10)
    RedisLock(direct, "lock:a").take(5)
    held.release()


def test_a_release_that_comes_again_after_the_loss_says_so(
    proxy: Proxy, direct: redis.Redis
) -> None:
    with pytest.raises(LockLost):
        release_after_the_loss(proxy, direct)

    proxy.let_go()
    assert direct.exists("lock:a")


def test_one_that_comes_again_says_so_though_the_lock_of_another_program_was_forced_out(
    direct: redis.Redis,
) -> None:
    held = RedisLock(direct, "lock:a").take(0)
    direct.set("lock:a", "of another program", px=30_000)
    inspector = Inspector(direct, "lock:")
    seen = inspector.get("lock:a")
    assert inspector.force_release("lock:a", seen.fingerprint) is Outcome.RELEASED

    reply = send(direct, held.grant.releasing().repeat)

    assert reply[0] == "LOST"


def test_a_lease_that_redis_did_not_confirm_is_not_believed_longer(proxy: Proxy) -> None:
    client = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.2)
    held = RedisLock(client, "lock:a", timeout=10).take(0)
    proxy.delay_replies(1)

    with pytest.raises(LockUnavailable):
        held.extend(50)

    assert held.remaining() <= 10


def test_an_extension_whose_reply_was_cut_off_is_believed_as_redis_has_it(
    proxy: Proxy, direct: redis.Redis
) -> None:
    held = RedisLock(proxy.client(), "lock:a", timeout=10).take(0)
    cut(proxy, scripts.RENEW)

    held.extend(5)

    there = direct.pttl("lock:a") / 1000
    assert held.remaining() <= there + 0.002
    assert 11 < held.remaining() <= 15


@clients
@pytest.mark.parametrize("protocol", ["setnx", "timestamp-ms"])
def test_a_force_release_whose_reply_was_cut_off_is_told_as_released(
    proxy: Proxy, direct: redis.Redis, options: dict[str, Any], protocol: str
) -> None:
    script = scripts.FORCE if protocol == "setnx" else scripts.TIMESTAMP_FORCE
    direct.script_load(script.source)
    client = proxy.client(**options)
    held = RedisLock(client, "lock:a", protocol=protocol).take(0)
    inspector = Inspector(client, "lock:")
    seen = inspector.get("lock:a")
    dropped = cut(proxy, script)

    outcome = inspector.force_release("lock:a", seen.fingerprint, by="joe", reason="stuck")

    assert dropped.is_set()
    assert outcome is Outcome.RELEASED
    with pytest.raises(LockLost, match="by joe: stuck"):
        held.check()
