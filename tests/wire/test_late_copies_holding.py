"""Late copies of what a holder sent take nothing from the next holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.protocol import commands
from tests.wire.helpers import ask, cancel
from tests.wire.late import keep_back, load

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client whose requests do not pass the proxy."""
    return real_server.client(decode_responses=True)


def test_a_release_that_arrives_late_takes_nothing_from_the_next_holder(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    held = RedisLock(direct, "lock:a").take(0)
    keep_back(proxy, held.grant.releasing())
    held.release()
    following = RedisLock(direct, "lock:a").take(0)

    proxy.let_go()

    following.check()


def test_a_renewal_that_arrives_late_gives_the_next_holder_no_time(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    lock = RedisLock(direct, "lock:a", timeout=10)
    turn = lock.attempt()
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    keep_back(proxy, commands.SETNX.renew(turn.target.keys, None, held.token, 600_000))
    held.release()
    lock.take(0)

    proxy.let_go()

    assert direct.pttl("lock:a") <= 10_000


def test_a_give_up_that_arrives_late_takes_nothing_from_the_next_holder(
    proxy: Proxy, direct: redis.Redis
) -> None:
    load(direct)
    turn = RedisLock(direct, "lock:a").attempt()
    ask(turn, waits=False)
    keep_back(proxy, turn.cancelling())
    cancel(turn)
    following = RedisLock(direct, "lock:a").take(0)

    proxy.let_go()

    following.check()
