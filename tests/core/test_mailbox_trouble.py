"""Waiters that cannot listen for whoever is to wake them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.endpoints import Target
from django_setnx_lock.core.locks.mailbox import BlockingMailbox
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import command
from tests.core.queueing import listeners, mailbox_of
from tests.processes import eventually

if TYPE_CHECKING:
    from tests.servers import RealServer

REAL = pytest.mark.real


def kill_listeners(server: RealServer) -> None:
    """Cut the connections of those who sleep, once there is one."""
    watch = server.client()
    eventually(lambda: listeners(server))
    command(watch, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@REAL
def test_the_first_time_it_cannot_listen_it_returns_for_the_caller_to_ask(
    server: RealServer,
) -> None:
    box, token, _ = mailbox_of(server.client())

    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(lambda: run(box.sleep(token, 30)))
        kill_listeners(server)

        sleeping.result(10)


@REAL
def test_the_second_time_in_a_row_is_an_error(server: RealServer) -> None:
    box, token, key = mailbox_of(server.client())
    server.client().set(key, "no list")
    run(box.sleep(token, 30))

    with pytest.raises(LockUnavailable) as caught:
        run(box.sleep(token, 30))

    assert caught.value.cause == "wrongtype"
    assert token not in str(caught.value)


@REAL
def test_between_two_errors_it_may_have_slept_well(server: RealServer) -> None:
    box, token, key = mailbox_of(server.client())
    client = server.client()

    for _ in range(3):
        client.set(key, "no list")
        run(box.sleep(token, 30))
        client.delete(key)
        run(box.sleep(token, 0.001))

    box.close()


@REAL
def test_after_an_error_it_listens_on_another_connection(server: RealServer) -> None:
    client = server.client()
    boxes = [mailbox_of(client) for _ in range(3)]
    # Three spare connections, all of them dead.
    for box, token, key in boxes:
        client.lpush(key, 1)
        run(box.sleep(token, 30))
    for box, _, _ in boxes:
        box.close()
    command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    box, token, key = mailbox_of(client)
    run(box.sleep(token, 30))
    client.lpush(key, 1)

    run(box.sleep(token, 30))

    box.close()


def test_without_one_server_to_listen_at_it_sleeps_as_behind_a_foreign_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    no_server: Any = SimpleNamespace()
    box = BlockingMailbox(Target(no_server, lock_keys("lock:a"), "a", None))

    for seconds in (30, 0.01):
        run(box.sleep("token", seconds))

    assert 0.05 <= slept[0] <= 0.1
    assert slept[1] == 0.01
