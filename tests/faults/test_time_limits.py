"""How long a call takes at most on a server that hangs, refuses, or is a black hole."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock.core import MultiLock, RedisLock
from tests.faults.hanging import Timed, awaited, black_hole, outlasting
from tests.processes import figure, may_be_late
from tests.servers import RealServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy

# Seconds: what docs/redis.md says of a client that sets no limit itself.
UNSET, BLOCKING_TIMEOUT = 5.0, 1.0
# Any call may take two limits, also where its caller waits for less: it does not know before what
# the server answers.
LONGEST = 2 * UNSET

Calls = dict[str, "Callable[[], object]"]


def of_takers(client: redis.Redis) -> Calls:
    """Return each way to ask for a lock that is free. They use connections of their own."""
    return {
        "acquire(blocking=False)": lambda: RedisLock(client, "lock:a").acquire(blocking=False),
        "acquire(blocking_timeout=1)": lambda: RedisLock(client, "lock:b").acquire(
            blocking_timeout=BLOCKING_TIMEOUT
        ),
        "aacquire(blocking=False)": awaited(
            lambda: RedisLock(client, "lock:c").aacquire(blocking=False)
        ),
        "aacquire(blocking_timeout=1)": awaited(
            lambda: RedisLock(client, "lock:d").aacquire(blocking_timeout=BLOCKING_TIMEOUT)
        ),
        "several keys": lambda: MultiLock(client, ["lock:e", "lock:f"]).acquire(
            blocking_timeout=BLOCKING_TIMEOUT
        ),
        "several keys, without waiting": lambda: MultiLock(client, ["lock:h", "lock:i"]).acquire(
            blocking=False
        ),
        "locked": RedisLock(client, "lock:g").locked,
    }


def of_holders(client: redis.Redis) -> Calls:
    """Return what holders do, each with a lock of its own that it takes before."""
    names = "release", "check", "extend", "reacquire", "arelease", "acheck"
    held = {name: RedisLock(client, f"lock:{name}").take(0) for name in names}
    return {
        "release": held["release"].release,
        "check": held["check"].check,
        "extend": lambda: held["extend"].extend(1),
        "reacquire": held["reacquire"].reacquire,
        "arelease": awaited(held["arelease"].arelease),
        "acheck": awaited(held["acheck"].acheck),
    }


@may_be_late(0.5)
def test_no_call_of_a_client_with_default_settings_outlasts_its_limit(
    proxy: Proxy, real_server: RealServer, late: float
) -> None:
    swallowing = of_holders(proxy.client()) | of_takers(proxy.client())
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(RealServer(real_server.binary))
        killed = stack.enter_context(RealServer(real_server.binary))
        full = redis.Redis(port=stack.enter_context(black_hole()))
        calls: Calls = {}
        for kind, some in (
            ("stopped", of_holders(stopped.client()) | of_takers(stopped.client())),
            ("refuses", of_holders(killed.client()) | of_takers(killed.client())),
            ("swallows", swallowing),
            ("black hole", of_takers(full)),
        ):
            calls |= {f"{kind}: {name}": call for name, call in some.items()}
        proxy.hold()
        stopped.pause()
        stack.callback(stopped.resume)
        killed.kill()

        timed, outlast = outlasting(calls, dict.fromkeys(calls, LONGEST), late)

    for name, one in timed.items():
        figure(f"{name}: {one.seconds:.2f} s, {one.cause}")
    assert outlast == []
    assert {one.cause for one in timed.values()} == {"timeout", "unreachable"}


def test_a_wrong_password_is_told_at_once_by_a_client_that_retries(
    real_server: RealServer,
) -> None:
    client = real_server.client(username="nobody", password="wrong", retry=Retry(NoBackoff(), 1000))

    refused = Timed(RedisLock(client, "lock:a").locked)

    assert refused.is_back_within(10)
    assert refused.cause == "denied"
