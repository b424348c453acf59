"""No call takes longer than two socket timeouts, whatever the server does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock import LockUnavailable
from tests.contract.test_network import network
from tests.faults.hanging import black_hole
from tests.processes import Stopwatch
from tests.support.kinds import EXCLUSIVE
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.world import World

# Seconds that a call may come late on a busy machine.
LATE = 5.0


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_all_steps_of_connecting_to_a_slow_server_share_one_limit(a: World) -> None:
    # HELLO, CLIENT SETNAME, CLIENT SETINFO twice.
    with network(a, socket_timeout=0.5, protocol=3, client_name="shop") as proxy:
        held = await a.lock().take(0)
        proxy.cut_all()
        proxy.delay_replies(0.4)
        asked = len(proxy.requests)
        for ask in (held.release, lambda: a.rival().take(0)):
            with pytest.raises(LockUnavailable) as unavailable:
                await ask()
            assert unavailable.value.cause == "timeout"
        # Each try was over by then, though no step took longer than the limit.
        assert not [one for one in proxy.requests[asked:] if b"SETINFO" in one]


@on([EXCLUSIVE], real=True)
async def test_a_client_that_would_wait_longer_to_be_connected_waits_no_longer_than_for_answers(
    a: World,
) -> None:
    with black_hole() as port:
        a.asks_at(redis.Redis(port=port, socket_timeout=0.3, socket_connect_timeout=40))
        with Stopwatch() as watch, pytest.raises(LockUnavailable) as unavailable:
            await a.lock().take(0)

        assert watch.seconds < 2 * 0.3 + LATE
    assert unavailable.value.cause == "timeout"


@on([EXCLUSIVE], real=True)
async def test_a_waiter_whose_server_hangs_is_back_two_limits_after_its_sleep(a: World) -> None:
    a.asks_at(a.server.client(socket_timeout=0.5))
    await a.rival(timeout=2).take(0)
    job = a.spawn(a.lock().take(60))
    await a.waiting(1)
    # Its connection stays, and nothing is answered.
    a.server.pause()
    try:
        with Stopwatch() as watch, pytest.raises(LockUnavailable) as unavailable:
            # It sleeps for as long as the holder's lease may last.
            await job.result()
    finally:
        a.server.resume()
    assert unavailable.value.cause == "timeout"
    assert watch.seconds < 2 + 2 * 0.5 + LATE


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_a_waiter_that_cannot_listen_any_more_is_back_after_another_limit(a: World) -> None:
    with network(a, socket_timeout=2) as proxy:
        await a.rival().take(0)
        proxy.hold(b":awake")
        job = a.spawn(a.lock().take(0.3))
        await a.eventually(proxy.holds.is_set)
        proxy.hold()
        with Stopwatch() as watch, pytest.raises(LockUnavailable):
            await job.result()

        # One limit to listen, one to ask: four seconds. With two to ask it were six, of which the
        # watch takes off what a busy machine adds.
        assert watch.seconds < 5
