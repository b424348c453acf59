"""A request for several locks that arrives late takes none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core.connections.backends import BLOCKING
from django_setnx_lock.core.connections.backends import run as drive
from django_setnx_lock.core.locks import batch
from django_setnx_lock.core.locks.batch import release_each
from django_setnx_lock.core.locks.multi_lock import MultiAttempt
from django_setnx_lock.core.protocol import scripts
from tests.support.locks import held_names, listed
from tests.support.seams import send_nothing_behind

if TYPE_CHECKING:
    import redis

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


def nothing_waits(client: Any) -> bool:
    return not client.keys("*:waiters") and not client.keys("*:alive")


@pytest.mark.parametrize("granted", [False, True], ids=["given up", "released"])
def test_a_request_that_arrives_when_its_time_is_over_takes_none(
    proxy: Proxy, real_server: RealServer, *, granted: bool
) -> None:
    direct = real_server.client()
    for script in (scripts.ACQUIRE_ALL, scripts.CANCEL, scripts.RELEASE):
        direct.script_load(script.source)
    late(proxy, direct, granted=granted)

    proxy.let_go()

    assert held_names(direct) == ""
    assert nothing_waits(direct)


def late(proxy: Proxy, direct: redis.Redis, *, granted: bool) -> None:
    """Have a request for all kept back, which was given up, or whose copy was granted."""
    impatient = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.1)
    proxy.hold(scripts.ACQUIRE_ALL.sha.encode())
    turn = MultiAttempt([listed(impatient, key).attempt() for key in "abc"])
    with pytest.MonkeyPatch.context() as patched:
        send_nothing_behind(patched)
        with pytest.raises(LockUnavailable) as caught:
            drive(turn.ask(BLOCKING, waits=True))
    assert caught.value.cause == "timeout"
    assert proxy.holds.wait(10)
    for one in turn.attempts:
        one.target.client = direct
    if granted:
        held = drive(turn.ask(BLOCKING, waits=True))
        assert isinstance(held, list)
        assert release_each(held) == []
    else:
        drive(batch.cancel_each(BLOCKING, turn.attempts))
