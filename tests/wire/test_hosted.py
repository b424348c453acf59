"""Locks on hosted servers: no script touches a key that it was not told of."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, RedisLock
from django_setnx_lock.core.connections import failures
from tests.support.locks import command, text

if TYPE_CHECKING:
    from tests.servers import RealServer

INDEX = "{lock:}:index"
# A database of its own: what an earlier test has left behind may still speak in that of all others.
APART = 3


class Monitor:
    """Reads along what a server does in that database; ``seen`` tells of each who sent it."""

    def __init__(self, server: RealServer) -> None:
        self.client = server.client(db=APART)
        self.seen: list[tuple[str, list[str]]] = []
        self._stream: Any = server.client(socket_timeout=30).monitor()  # type: ignore[no-untyped-call]  # redis-py's own

    def __enter__(self) -> Monitor:
        self._stream.__enter__()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.client.echo("that is all")
        self._thread.join(20)
        self._stream.__exit__(*error)

    def _read(self) -> None:
        while True:
            # TIME [DATABASE SENDER] "WORD" "WORD" ...
            line = self._stream.connection.read_response().decode()
            database, _, sender = line.partition(" [")[2].partition("]")[0].partition(" ")
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
            if database == str(APART) and words == ["ECHO", "that is all"]:
                return
            if database == str(APART):
                self.seen.append((sender, words))

    def undeclared(self) -> set[str]:
        """Return the keys that scripts have touched without having been told of them."""
        found: set[str] = set()
        declared: set[str] = set()
        for sender, words in self.seen:
            if sender == "lua" and words[0] != "TIME":
                keys: Any = self.client.command_getkeys(*words)
                found |= {text(key) or "" for key in keys} - declared
            elif words[0] in ("EVAL", "EVALSHA"):
                declared = set(words[3 : 3 + int(words[2])])
        return found


def lock(client: redis.Redis, protocol: str, **options: Any) -> RedisLock:
    return RedisLock(client, "lock:a", 30, key="a", index=INDEX, protocol=protocol, **options)


def drive(client: redis.Redis, protocol: str) -> None:
    """Do all that there is to do, with somebody who waits, and somebody who waits in vain."""
    look = Inspector(client, "lock:", protocol=protocol)
    with lock(client, protocol, renew=True) as held, ThreadPoolExecutor(1) as pool:
        held.check()
        held.extend(1)
        held.reacquire()
        assert lock(client, protocol).locked()
        assert lock(client, protocol).acquire(blocking_timeout=0.3) is False
        assert [info.key for info in look.find().locks] == ["a"]
        job = pool.submit(lock(client, protocol).take, 20)
        wait([job], 0.3)
        held.release()
        job.result(20).release()
    held = lock(client, protocol).take(0)
    look.force_release("lock:a", look.get("lock:a").fingerprint)
    client.set("lock:a", "another program's", px=50_000)
    assert lock(client, protocol).acquire(blocking=False) is False


def touched(server: RealServer, protocol: str) -> set[str]:
    with Monitor(server) as monitor:
        drive(server.client(db=APART), protocol)
    assert sum(sender == "lua" for sender, _ in monitor.seen) > 50
    return monitor.undeclared()


def test_no_script_touches_a_key_that_it_was_not_told_of(real_server: RealServer) -> None:
    assert touched(real_server, "hosted") == set()


def test_those_of_the_plain_protocol_do(real_server: RealServer) -> None:
    found = touched(real_server, "setnx")
    assert any(":wake:" in key for key in found)
    assert "{lock:a}:waiters" in found


@pytest.mark.parametrize("protocol", ["hosted", "setnx"])
def test_no_right_to_any_mailbox_is_needed(real_server: RealServer, protocol: str) -> None:
    admin = real_server.client()
    beside = ("meta", "waiters", "waiting", "shares", "holders", "gone", "forced", "index")
    keys = ("~lock:*", *(f"~{{lock:*}}:{end}" for end in beside))
    command(admin, "ACL", "SETUSER", "confined", "reset", "on", ">secret", "+@all", *keys)
    client = real_server.client(db=APART, username="confined", password="secret")
    try:
        if protocol == "hosted":
            drive(client, protocol)
        else:
            with pytest.raises(LockUnavailable) as caught:
                drive(client, protocol)
            assert caught.value.cause == "denied"
    finally:
        admin.acl_deluser("confined")


@pytest.mark.parametrize(
    "said",
    [
        "ERR Error running script: @user_script:2: script tried accessing undeclared key, key: k",
        "ERR bad lua script for redis cluster, all the keys that the script uses should be passed "
        "using the KEYS array, and KEYS should not be in expression",
    ],
    ids=["Dragonfly", "Tair"],
)
def test_where_the_server_refuses_that_the_protocol_is_named(said: str) -> None:
    error = failures.unavailable(redis.ResponseError(said), "a")

    assert isinstance(error, LockUnavailable)
    assert error.cause == "undeclared"
    assert "set PROTOCOL in SETNX_LOCK to 'hosted'" in str(error)
