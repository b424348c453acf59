"""Servers and clients that refuse: out of memory, read-only, no free connection, no right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from tests.processes import eventually
from tests.servers import RealServer
from tests.support.locks import INDEX, command, listed
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = pytest.mark.real


@pytest.fixture
def full(server: RealServer) -> Iterator[redis.Redis]:
    """Give a client whose call of ``config_set("maxmemory", 1)`` is undone at the end."""
    client = server.client()
    yield client
    client.config_set("maxmemory", 0)


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


@REAL
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


@REAL
def test_a_server_out_of_memory_gives_no_lock(full: redis.Redis) -> None:
    fill(full)

    with pytest.raises(LockUnavailable, match="out of memory") as caught:
        listed(full, "a").take(0)

    assert caught.value.cause == "memory"
    assert full.keys("*") == []


@REAL
def test_a_server_out_of_memory_gives_none_of_many_locks(full: redis.Redis) -> None:
    fill(full)

    taken = take_each([listed(full, key) for key in "ab"])

    errors = [one.error for one in taken]
    assert [isinstance(error, LockUnavailable) and error.cause for error in errors] == [
        "memory",
        "memory",
    ]
    assert full.keys("*") == []


@REAL
def test_a_lock_is_checked_renewed_and_released_while_the_server_is_out_of_memory(
    full: redis.Redis,
) -> None:
    held = listed(full, "a").take(0)
    fill(full)

    held.check()
    held.reacquire()
    held.extend(60)
    assert full.pttl("lock:a") > 80_000
    held.release()

    assert not full.exists("lock:a", INDEX)


@REAL
def test_many_locks_are_released_while_the_server_is_out_of_memory(full: redis.Redis) -> None:
    held = [one.held for one in take_each([listed(full, key) for key in "ab"]) if one.held]
    fill(full)

    assert release_each(held) == []
    assert not full.exists("lock:a", "lock:b")


@REAL
@pytest.mark.usefixtures("listed_at_once")
def test_a_lock_is_force_released_while_the_server_is_out_of_memory(full: redis.Redis) -> None:
    listed(full, "a").take(0)
    fill(full)
    inspector = Inspector(full, "lock:")
    (seen,) = inspector.find().locks

    assert inspector.force_release("lock:a", seen.fingerprint, by="joe") is Outcome.RELEASED


@REAL
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


@REAL
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


@REAL
def test_a_refused_right_shows_no_token(server: RealServer, user: redis.Redis) -> None:
    command(user, "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "+@all")
    held = listed(server.client(username="app", password="pw"), "a").take(0)
    command(user, "ACL", "SETUSER", "app", "resetkeys", "~lock:*")

    with pytest.raises(LockUnavailable) as caught:
        held.release()

    assert held.token not in f"{caught.value} {caught.value.__cause__} {vars(caught.value)}"


@REAL
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
