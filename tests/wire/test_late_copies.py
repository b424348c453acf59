"""Copies of a request that the network kept back and delivers when their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, RedisLock
from django_setnx_lock.core.protocol import scripts
from tests.support.seams import send_nothing_behind
from tests.wire.late import kept_back_then_granted, load

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client whose requests do not pass the proxy."""
    return real_server.client(decode_responses=True)


def give_up_while_kept_back(proxy: Proxy) -> None:
    impatient = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.1)
    proxy.hold(scripts.ACQUIRE.sha.encode())
    # The undoing is there before it.
    with pytest.MonkeyPatch.context() as patched:
        send_nothing_behind(patched)
        with pytest.raises(LockUnavailable) as caught:
            RedisLock(impatient, "lock:a").take(0)
    assert caught.value.cause == "timeout"
    assert proxy.holds.wait(10)


def test_a_request_that_arrives_after_it_was_given_up_takes_no_lock(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    give_up_while_kept_back(proxy)

    proxy.let_go()

    assert not direct.exists("lock:a")


def test_a_request_that_arrives_after_a_force_release_takes_no_lock(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    kept_back_then_granted(proxy, direct)
    inspector = Inspector(direct, "lock:")
    inspector.force_release("lock:a", inspector.get("lock:a").fingerprint, by="joe")

    proxy.let_go()

    assert not direct.exists("lock:a")


def kept_back_then_lost(proxy: Proxy, direct: redis.Redis) -> None:
    """Find a lock lost that was granted to the second copy of a request."""
    _, held = kept_back_then_granted(proxy, direct)
    direct.delete("lock:a")
    with pytest.raises(LockLost):
        held.release()


def test_a_request_that_arrives_after_its_lock_was_found_lost_takes_no_lock(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    kept_back_then_lost(proxy, direct)

    proxy.let_go()

    assert not direct.exists("lock:a")
