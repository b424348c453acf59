"""Whether a copy of a request may still be under way when its reply is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock.core import RedisLock
from tests.servers import ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


def held_through(proxy: Proxy) -> LockHandle:
    client: redis.Redis = proxy.client(retry=ONCE)
    return RedisLock(client, "lock:a", timeout=30).take(0)


def cut_and_renewed(held: LockHandle) -> float:
    """Return what is believed of a lease that was cut to 5 s and renewed for 30 s."""
    held.extend(5, replace_ttl=True)
    held.reacquire()
    return held.remaining()


def flush(real_server: RealServer, proxy: Proxy) -> None:
    real_server.client().script_flush()


def cut_off(real_server: RealServer, proxy: Proxy) -> None:
    # The word is in every copy of the request that cuts.
    proxy.drop_next_reply(b"replace\r\n")


def flush_and_cut_off(real_server: RealServer, proxy: Proxy) -> None:
    flush(real_server, proxy)
    # Of the copy that has the script in full.
    proxy.drop_next_reply(b"-- Give the lease")


def nothing(real_server: RealServer, proxy: Proxy) -> None:
    pass


@pytest.mark.parametrize("befalls", [nothing, flush])
def test_a_cut_that_was_sent_once_is_made_whole_by_a_renewal(
    real_server: RealServer, proxy: Proxy, befalls: Callable[[RealServer, Proxy], None]
) -> None:
    held = held_through(proxy)
    befalls(real_server, proxy)

    assert cut_and_renewed(held) > 20


@pytest.mark.parametrize("befalls", [cut_off, flush_and_cut_off])
def test_after_a_cut_that_was_sent_twice_no_more_than_it_gave_is_believed(
    real_server: RealServer, proxy: Proxy, befalls: Callable[[RealServer, Proxy], None]
) -> None:
    held = held_through(proxy)
    befalls(real_server, proxy)

    assert 0 < cut_and_renewed(held) <= 5
