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
from tests.support.locks import INDEX, command, text
from tests.wire.running import BESIDE

if TYPE_CHECKING:
    from tests.servers import RealServer

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


def lock(client: redis.Redis, **options: Any) -> RedisLock:
    return RedisLock(client, "lock:a", 30, key="a", index=INDEX, protocol="hosted", **options)


def drive(client: redis.Redis) -> None:
    """Do all that there is to do, with somebody who waits, and somebody who waits in vain."""
    look = Inspector(client, "lock:", protocol="hosted")
    with lock(client, renew=True) as held, ThreadPoolExecutor(1) as pool:
        held.check()
        held.extend(1)
        held.reacquire()
        assert lock(client).locked()
        assert lock(client).acquire(blocking_timeout=0.3) is False
        assert [info.key for info in look.find().locks] == ["a"]
        job = pool.submit(lock(client).take, 20)
        wait([job], 0.3)
        held.release()
        job.result(20).release()
    held = lock(client).take(0)
    look.force_release("lock:a", look.get("lock:a").fingerprint)
    client.set("lock:a", "another program's", px=50_000)
    assert lock(client).acquire(blocking=False) is False


def test_no_script_touches_a_key_that_it_was_not_told_of(real_server: RealServer) -> None:
    with Monitor(real_server) as monitor:
        drive(real_server.client(db=APART))

    assert sum(sender == "lua" for sender, _ in monitor.seen) > 50
    assert monitor.undeclared() == set()


def test_no_right_to_any_mailbox_is_needed(real_server: RealServer) -> None:
    admin = real_server.client()
    beside = (f"~{{lock:*}}:{end}" for end in (*BESIDE, "index"))
    command(admin, "ACL", "SETUSER", "app", "reset", "on", ">secret", "+@all", "~lock:*", *beside)
    try:
        drive(real_server.client(db=APART, username="app", password="secret"))
    finally:
        admin.acl_deluser("app")


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
