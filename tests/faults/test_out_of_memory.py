"""A server that is out of memory, and evicts nothing, keeps every lock that is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector
from tests.processes import eventually
from tests.support.locks import INDEX, PREFIX, listed, value_of
from tests.support.renewals import end_of, is_longer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

pytestmark = pytest.mark.real

LEASE = 20
GROUPS = ["readers", "permits"]
KINDS: dict[str, dict[str, Any]] = {
    "setnx": {},
    "hosted": {"protocol": "hosted"},
    "readers": {"shared": True},
    "permits": {"limit": 1},
    "timestamp": {"protocol": "timestamp-ms"},
}
kinds = pytest.mark.parametrize("kind", KINDS)
# What each makes of a lease of 20 s.
RENEWALS: dict[str, tuple[Callable[[LockHandle], object], float]] = {
    "reacquire": (lambda held: held.reacquire(), LEASE),
    "extend": (lambda held: held.extend(100), LEASE + 100),
    "lengthen": (lambda held: held.extend(100, replace_ttl=True), 100),
}


@pytest.fixture
def client(server: RealServer) -> Iterator[redis.Redis]:
    """Give a client whose server has memory again at the end."""
    client = server.client()
    yield client
    client.config_set("maxmemory", 0)


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


def left_at(client: redis.Redis, key: str) -> float:
    """Return for how many seconds Redis has the lock held."""
    left = Inspector(client, PREFIX).get(PREFIX + key).remaining
    assert left is not None
    return left


def taken(client: redis.Redis, kind: str) -> LockHandle:
    """Take the lock ``a``."""
    return listed(client, "a", timeout=LEASE, **KINDS[kind]).take(0)


@kinds
@pytest.mark.parametrize("renewal", RENEWALS)
def test_a_held_lock_gets_the_lease_that_is_asked_for(
    client: redis.Redis, kind: str, renewal: str
) -> None:
    held = taken(client, kind)
    fill(client)
    renew, lease = RENEWALS[renewal]

    renew(held)

    held.check()
    there = left_at(client, "a")
    assert lease - 10 < held.remaining() <= there + 0.01
    # A time is rounded up to its unit.
    assert there <= lease + 0.001


@kinds
def test_a_held_lock_is_released(client: redis.Redis, kind: str) -> None:
    held = taken(client, kind)
    fill(client)

    held.release()

    assert (value_of(client) or "baton:").startswith("baton:")


def test_locks_of_every_kind_are_renewed_in_the_background(client: redis.Redis) -> None:
    held = {
        kind: listed(client, kind, timeout=3, renew=True, **KINDS[kind]).take(0) for kind in KINDS
    }
    fill(client)
    ends = {kind: end_of(one) for kind, one in held.items()}

    eventually(lambda: all(is_longer(held[kind], end) for kind, end in ends.items()))

    assert [kind for kind, one in held.items() if one.owned()] == list(KINDS)
    for one in held.values():
        one.release()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in GROUPS])
def test_no_new_lock_is_given(client: redis.Redis, kind: str) -> None:
    fill(client)

    with pytest.raises(LockUnavailable) as caught:
        listed(client, "a", **KINDS[kind]).take(0)

    assert caught.value.cause == "memory"
    assert not client.exists("lock:a", INDEX)


@pytest.mark.parametrize("kind", GROUPS)
def test_a_share_that_is_given_all_the_same_is_a_whole_one(client: redis.Redis, kind: str) -> None:
    fill(client)

    with listed(client, "a", **KINDS[kind]) as held:
        held.check()
        held.extend(100)

        assert client.zscore(INDEX, "lock:a")
