"""Where a waiter sleeps until it is woken."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core.connections import backends
from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Connection
from tests.core.queueing import Box, caller, listeners, mailbox_of
from tests.faults.pools import full_pool
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

REAL = pytest.mark.real


@pytest.fixture
def mailbox(redis_client: redis.Redis) -> Iterator[Box]:
    found = mailbox_of(redis_client)
    yield found
    found[0].close()


def test_a_sleep_ends_when_its_time_is_over(mailbox: Box) -> None:
    box, token, _ = mailbox

    started = time.monotonic()
    run(box.sleep(token, 0.05))

    assert 0.045 < time.monotonic() - started < 5


def test_a_waiter_with_mail_does_not_sleep(mailbox: Box, redis_client: redis.Redis) -> None:
    box, token, key = mailbox
    redis_client.lpush(key, 1)

    started = time.monotonic()
    run(box.sleep(token, 30))

    assert time.monotonic() - started < 10
    assert not redis_client.exists(key)


def test_a_sleep_ends_when_mail_comes(mailbox: Box, redis_client: redis.Redis) -> None:
    box, token, key = mailbox

    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(lambda: run(box.sleep(token, 30)))
        redis_client.lpush(key, 1)

        sleeping.result(10)


def test_mail_for_the_next_token_is_heard_after_a_sleep_for_another(
    mailbox: Box, redis_client: redis.Redis
) -> None:
    box, token, _ = mailbox
    run(box.sleep(token, 0.01))
    following = caller(redis_client)
    redis_client.lpush(following.target.keys.wake(following.token), 1)

    started = time.monotonic()
    run(box.sleep(following.token, 30))

    assert time.monotonic() - started < 10


class Deaf:
    """A connection on which no answer comes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []

    def send(self, *commands: tuple[str, ...], within: float) -> None:
        self.sent += commands

    def wait(self, seconds: float) -> bool:
        return False

    def close(self) -> None:
        self.sent.append(("dropped",))


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Deaf:
    deaf = Deaf()
    monkeypatch.setattr(backends, "_LISTENING", SimpleNamespace(checkout=lambda client: deaf))
    return deaf


def test_a_sleep_goes_on_with_what_the_one_before_it_asked_for(
    deaf: Deaf, redis_client: redis.Redis
) -> None:
    box, token, key = mailbox_of(redis_client)

    # Redis ends a BLPOP up to a tenth of a second late.
    for seconds in (0.5, 30, 30):
        run(box.sleep(token, seconds))

    assert [words[:2] for words in deaf.sent] == [("BLPOP", key)]
    assert 0 < float(deaf.sent[0][2]) <= 0.5


def test_a_sleep_for_another_token_is_on_another_connection(
    deaf: Deaf, redis_client: redis.Redis
) -> None:
    box, token, key = mailbox_of(redis_client)
    run(box.sleep(token, 30))

    run(box.sleep("another", 30))

    other = key.replace(token, "another")
    assert [words[:2] for words in deaf.sent] == [("BLPOP", key), ("dropped",), ("BLPOP", other)]


@REAL
def test_a_sleeper_uses_no_connection_of_the_pool(server: RealServer) -> None:
    with full_pool(server, redis.BlockingConnectionPool, timeout=0.01) as client:
        box, token, key = mailbox_of(client)
        server.client().lpush(key, 1)

        run(box.sleep(token, 30))

        box.close()


@REAL
def test_a_mailbox_that_is_closed_listens_no_longer(
    server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, token, _ = mailbox_of(server.client())

    def interrupted(connection: Connection, seconds: float) -> bool:
        assert eventually(lambda: listeners(server) == 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(box.sleep(token, 30))

    box.close()
    box.close()

    assert eventually(lambda: listeners(server) == 0)


@REAL
def test_a_connection_that_has_no_answer_to_come_is_used_again(server: RealServer) -> None:
    client = server.client(client_name="sleeper")
    for _ in range(3):
        box, token, key = mailbox_of(client)
        server.client().lpush(key, 1)
        run(box.sleep(token, 30))
        box.close()

    clients: Any = server.client().client_list()

    assert sum(one["name"] == "sleeper" for one in clients) == 1
