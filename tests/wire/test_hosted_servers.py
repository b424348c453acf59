"""Hosted servers: which keys are touched, what may be forbidden, and through each door."""

from __future__ import annotations

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.test import Client, override_settings

from django_setnx_lock import LockBusy, LockUnavailable, inspector, lock
from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.core.protocol.replies import text as text_of
from tests.admin.pages import LIST, text
from tests.management.conftest import forks as forks
from tests.management.conftest import start as start
from tests.servers import ONCE, RealServer
from tests.support.locks import INDEX, command, listed
from tests.wire.helpers import cancel, meta_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.management.conftest import Program

REAL = pytest.mark.real
IN_SETTINGS = override_settings(SETNX_LOCK={"PROTOCOL": "hosted", "REENTRANT": False})
pytestmark = pytest.mark.usefixtures("nobody_looks")
INSIDE = """
import django; django.setup()
from django_setnx_lock import lock
with lock("k", blocking_timeout=0, reentrant=True) as held:
    print(held.client.get(held.name).decode() == held.token)
"""


def drive(client: redis.Redis, admin: redis.Redis, *, protocol: str) -> None:
    """Do all that there is to do, with somebody who waits."""
    look = Inspector(client, "lock:", protocol=protocol)
    one = listed(client, "a", protocol=protocol)
    with one as held:
        held.check()
        held.extend(1)
        held.reacquire()
        assert [info.key for info in look.find().locks] == ["a"]
        meet_busy(client, protocol=protocol)
    held = one.take(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(listed(client, "a", protocol=protocol).take, 20)
        wait([waiting], 0.3)
        held.release()
        waiting.result(20).release()
    cancel(one.attempt())
    admin.set("lock:foreign", "somebody", px=50_000)
    meet_busy(client, "foreign", protocol=protocol)
    one.take(0)
    seen = look.get("lock:a").fingerprint
    assert look.force_release("lock:a", seen) is Outcome.RELEASED


def meet_busy(client: redis.Redis, key: str = "a", *, protocol: str) -> None:
    with pytest.raises(LockBusy):
        listed(client, key, protocol=protocol).take(0)


# Which keys scripts touch

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
            if database != str(APART):
                continue
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
            if words == ["ECHO", "that is all"]:
                return
            self.seen.append((sender, words))

    @property
    def by_scripts(self) -> int:
        """How many of the commands scripts have sent."""
        return sum(sender == "lua" for sender, _ in self.seen)

    def undeclared(self) -> set[str]:
        """Return the keys that scripts have touched without having been told of them."""
        found: set[str] = set()
        declared: set[str] = set()
        for sender, words in self.seen:
            if sender == "lua":
                found |= set(self._keys_of(words)) - declared
            elif words[0] in ("EVAL", "EVALSHA"):
                declared = set(words[3 : 3 + int(words[2])])
        return found

    def _keys_of(self, words: list[str]) -> list[str]:
        if words[0] == "TIME":
            return []
        keys: Any = self.client.command_getkeys(*words)
        return [str(text_of(key)) for key in keys]


def touched(server: RealServer, *, protocol: str) -> Monitor:
    with Monitor(server) as monitor:
        drive(server.client(db=APART), server.client(db=APART), protocol=protocol)
    assert monitor.by_scripts > 50
    return monitor


@REAL
def test_no_script_touches_a_key_that_it_was_not_told_of(server: RealServer) -> None:
    assert touched(server, protocol="hosted").undeclared() == set()


@REAL
def test_those_for_who_queues_touch_the_mailboxes(server: RealServer) -> None:
    found = touched(server, protocol="setnx").undeclared()

    # Who looks at a lock reads what its holder says that it waits for.
    assert {key.split(":")[2] for key in found} == {"wake", "waits"}
    assert all(key.startswith("{lock:a}:") for key in found)


# A server that lets nobody touch a mailbox


@pytest.fixture
def confined(server: RealServer) -> Iterator[redis.Redis]:
    """Give a client of one who may touch all keys of locks but the mailboxes."""
    admin = server.client()
    keys = ("~lock:*", "~{lock:*}:meta", "~{lock:*}:waiters", "~{lock:*}:alive", "~{lock:*}:gone:*")
    rule = ("reset", "on", ">secret", "+@all", *keys, f"~{INDEX}")
    command(admin, "ACL", "SETUSER", "confined", *rule)
    yield server.client(username="confined", password="secret", retry=ONCE)
    admin.acl_deluser("confined")


@REAL
def test_all_of_it_works_without_a_right_to_any_mailbox(
    server: RealServer, confined: redis.Redis
) -> None:
    drive(confined, server.client(), protocol="hosted")


@REAL
def test_one_who_queues_needs_it(server: RealServer, confined: redis.Redis) -> None:
    with pytest.raises(LockUnavailable) as caught:
        drive(confined, server.client(), protocol="setnx")

    assert caught.value.cause == "denied"


# Who waits


# Through the doors


def test_it_is_taken_by_the_setting_and_seen_on_the_page(
    real_cache: RealServer, admin_client: Client
) -> None:
    with IN_SETTINGS, lock("k", label="here") as held:
        page = text(admin_client.get(LIST))
        info = inspector().get("lock:k")

        noted = meta_of(real_cache.client(), "lock:k").token
    assert noted == f"hosted:{held.token}"
    assert "here" in page
    assert info.holder is not None
    assert not real_cache.client().keys("*:wa*")


def test_with_lock_holds_one_and_its_command_has_it_again(
    real_cache: RealServer, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_PROTOCOL", "hosted")

    status, out, err = start("k", "--", sys.executable, "-c", INSIDE).end()

    assert (status, out, err) == (0, "True\n", "")
