"""Replies about locks whose value is a time, cut off after the server did what it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.core.protocol import scripts
from tests.support.locks import timed, value_of
from tests.wire.helpers import meta_of

if TYPE_CHECKING:
    import redis

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

SCRIPTS = ("ACQUIRE", "RELEASE", "RENEW", "FORCE")


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client that sees what the server has, past the proxy."""
    client = real_server.client()
    for name in SCRIPTS:
        client.script_load(getattr(scripts, f"TIMESTAMP_{name}").source)
    return client


def test_a_grant_is_held_after_all(proxy: Proxy, direct: redis.Redis) -> None:
    dropped = proxy.drop_next_reply(scripts.TIMESTAMP_ACQUIRE.sha.encode())

    held = timed(proxy.client()).take(0)

    assert dropped.is_set()
    assert (held.fence, held.token) == meta_of(direct)[:2]
    held.release()
    assert value_of(direct) is None


def test_a_release_is_one(proxy: Proxy, direct: redis.Redis) -> None:
    held = timed(proxy.client()).take(0)
    dropped = proxy.drop_next_reply(scripts.TIMESTAMP_RELEASE.sha.encode())

    held.release()

    assert dropped.is_set()
    assert value_of(direct) is None


def test_the_whole_lease_again_is_had_once(proxy: Proxy, direct: redis.Redis) -> None:
    with timed(proxy.client()) as held:
        dropped = proxy.drop_next_reply(scripts.TIMESTAMP_RENEW.sha.encode())
        held.reacquire()

        assert dropped.is_set()
        assert held.remaining() <= 10
        assert held.owned()


def test_a_forced_release_is_one(proxy: Proxy, direct: redis.Redis) -> None:
    timed(direct).take(0)
    inspector = Inspector(proxy.client(), "lock:")
    seen = inspector.get("lock:a").fingerprint
    dropped = proxy.drop_next_reply(scripts.TIMESTAMP_FORCE.sha.encode())

    outcome = inspector.force_release("lock:a", seen)

    assert dropped.is_set()
    assert outcome is Outcome.RELEASED
