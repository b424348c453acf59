"""Servers that refuse: out of memory, read-only, no free connection, no right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from tests.processes import eventually
from tests.servers import RealServer
from tests.support.locks import INDEX, PREFIX, command, listed, value_of
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from django_setnx_lock.core import LockHandle

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


def test_a_server_without_a_free_connection_says_what_to_raise(server: RealServer) -> None:
    admin = server.client()
    before = str(admin.config_get("maxclients")["maxclients"])
    admin.config_set("maxclients", 1)
    try:
        with pytest.raises(LockUnavailable, match="raise its maxclients") as caught:
            listed(server.client(retry=Retry(NoBackoff(), 0)), "a").take(0)
    finally:
        admin.config_set("maxclients", before)

    assert caught.value.cause == "unreachable"


# No memory is left, and nothing is evicted


@pytest.fixture
def client(server: RealServer) -> Iterator[redis.Redis]:
    """Give a client whose server has memory again at the end."""
    client = server.client()
    yield client
    client.config_set("maxmemory", 0)


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


def taken(client: redis.Redis, kind: str) -> LockHandle:
    """Take the lock ``a``."""
    return listed(client, "a", timeout=LEASE, **KINDS[kind]).take(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_lock_gets_the_lease_that_is_asked_for_and_is_released(
    client: redis.Redis, kind: str
) -> None:
    held = taken(client, kind)
    fill(client)

    held.extend(100, replace_ttl=True)

    held.check()
    there = Inspector(client, PREFIX).get("lock:a").remaining or 0
    assert 90 < held.remaining() <= there + 0.01
    # A time is rounded up to its unit.
    assert there <= 100.001
    held.release()
    assert (value_of(client) or "baton:").startswith("baton:")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in GROUPS])
def test_no_new_lock_is_given(client: redis.Redis, kind: str) -> None:
    fill(client)

    with pytest.raises(LockUnavailable, match="out of memory") as caught:
        listed(client, "a", **KINDS[kind]).take(0)

    assert caught.value.cause == "memory"
    assert client.keys("*") == []


@pytest.mark.parametrize("kind", GROUPS)
def test_a_share_that_is_given_all_the_same_is_a_whole_one(client: redis.Redis, kind: str) -> None:
    fill(client)

    with listed(client, "a", **KINDS[kind]) as held:
        held.check()
        held.extend(100)

        assert client.zscore(INDEX, "lock:a")


def test_many_locks_are_released_and_none_of_many_is_given(client: redis.Redis) -> None:
    held = [one.held for one in take_each([listed(client, key) for key in "ab"]) if one.held]
    fill(client)

    refused = take_each([listed(client, key) for key in "cd"])

    assert [getattr(one.error, "cause", None) for one in refused] == ["memory", "memory"]
    assert release_each(held) == []
    assert not client.exists("lock:a", "lock:b", "lock:c", "lock:d")


@pytest.mark.usefixtures("listed_at_once")
def test_a_lock_is_force_released(client: redis.Redis) -> None:
    taken(client, "setnx")
    fill(client)
    inspector = Inspector(client, PREFIX)
    (seen,) = inspector.find().locks

    assert inspector.force_release("lock:a", seen.fingerprint, by="joe") is Outcome.RELEASED


# A replica, and users without rights


def test_a_read_only_replica_gives_no_lock(server: RealServer) -> None:
    primary = server.client()
    held = listed(primary, "a").take(0)
    with RealServer(server.binary, "--replicaof", "127.0.0.1", str(server.port)) as copy:
        replica = copy.client()
        eventually(lambda: replica.exists("lock:a"))

        for key in ("a", "b"):
            with pytest.raises(LockUnavailable, match="read-only replica") as caught:
                listed(replica, key).take(0)
            assert caught.value.cause == "readonly"

        assert Inspector(replica, "lock:").get("lock:a").fence == held.fence
    held.release()
    assert primary.keys("lock:*") == []


@pytest.fixture
def user(server: RealServer) -> Iterator[redis.Redis]:
    """Give an administrator's client that may make the user ``app``, who goes at the end."""
    client = server.client()
    yield client
    client.acl_deluser("app")


@pytest.mark.parametrize(
    "rights",
    [
        "~* -@all",
        "~* +@all -evalsha -eval",
        "~other:* +@all",
        "~lock:* +@all",
        "~* +@all -set",
        "~* +@all -exists",
        "~* +@all -time",
    ],
)
def test_a_user_who_lacks_a_right_gets_no_lock(
    server: RealServer, user: redis.Redis, rights: str
) -> None:
    command(user, "ACL", "SETUSER", "app", "reset", "on", ">pw", *rights.split())
    client = server.client(username="app", password="pw")

    with pytest.raises(LockUnavailable, match="Redis refuses the credentials or") as caught:
        listed(client, "a").take(0)

    assert caught.value.cause == "denied"
    assert not user.exists("lock:a")


def test_a_refused_right_shows_no_token(server: RealServer, user: redis.Redis) -> None:
    command(user, "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "+@all")
    held = listed(server.client(username="app", password="pw"), "a").take(0)
    command(user, "ACL", "SETUSER", "app", "resetkeys", "~lock:*")

    with pytest.raises(LockUnavailable) as caught:
        held.release()

    assert held.token not in f"{caught.value} {caught.value.__cause__} {vars(caught.value)}"


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_or_missing_password_gives_no_lock(
    server: RealServer, user: redis.Redis, password: str | None
) -> None:
    command(user, "ACL", "SETUSER", "default", "resetpass", ">right")
    try:
        client = server.client(password=password, retry=Retry(NoBackoff(), 0))
        with pytest.raises(LockUnavailable) as caught:
            listed(client, "a").take(0)
    finally:
        command(user, "ACL", "SETUSER", "default", "nopass")

    assert caught.value.cause == "denied"
    assert password is None or password not in str(caught.value)
    assert user.keys("lock:*") == []
