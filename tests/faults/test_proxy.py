from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.servers import ONCE

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


def impatient(proxy: Proxy, **options: Any) -> redis.Redis:
    """Return a client that has its connection and tries each command once."""
    client = proxy.client(retry=ONCE, **options)
    client.ping()
    return client


def test_a_pipeline_is_one_round_trip(proxy: Proxy, real_server: RealServer) -> None:
    client = impatient(proxy)
    before = proxy.round_trips

    with client.pipeline(transaction=False) as pipeline:
        pipeline.set("a", "1")
        pipeline.set("b", "2")
        pipeline.execute()
    client.get("a")

    assert proxy.round_trips - before == 2
    assert b"SET" in proxy.requests[-2]
    assert b"GET" in proxy.requests[-1]


def test_a_dropped_reply_is_an_error_though_the_server_did_the_work(
    proxy: Proxy, real_server: RealServer
) -> None:
    client = impatient(proxy)
    dropped = proxy.drop_next_reply(match=b"INCR")
    client.get("other")

    with pytest.raises(redis.ConnectionError):
        client.incr("counter")

    assert dropped.is_set()
    assert real_server.client().get("counter") == b"1"


def test_a_cut_wakes_a_client_that_blocks(proxy: Proxy, real_server: RealServer) -> None:
    client = impatient(proxy)
    errors: list[Exception] = []

    def block() -> None:
        try:
            client.blpop(["nothing"], timeout=30)
        except redis.ConnectionError as error:
            errors.append(error)

    blocked = threading.Thread(target=block)
    blocked.start()
    watching = real_server.client()
    deadline = time.monotonic() + 10
    while not watching.info("clients")["blocked_clients"] and time.monotonic() < deadline:
        time.sleep(0.01)

    proxy.cut_all()

    blocked.join(10)
    assert not blocked.is_alive()
    assert len(errors) == 1


def test_refused_clients_are_served_again_on_the_same_port(proxy: Proxy) -> None:
    client = impatient(proxy)
    port = proxy.port

    proxy.refuse()
    with pytest.raises(redis.ConnectionError, match="refused"):
        proxy.client(retry=ONCE).ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    proxy.accept()

    assert client.ping()
    assert proxy.port == port


def test_a_held_request_arrives_after_its_client_gave_up(
    proxy: Proxy, real_server: RealServer
) -> None:
    client = impatient(proxy, socket_timeout=0.1)
    proxy.hold(match=b"SET")

    with pytest.raises(redis.TimeoutError):
        client.set("late", "message")

    assert proxy.holds.is_set()
    assert real_server.client().get("late") is None
    proxy.let_go()
    assert real_server.client().get("late") == b"message"


def test_a_held_request_of_a_patient_client_is_answered(proxy: Proxy) -> None:
    client = impatient(proxy, socket_timeout=20)
    proxy.hold()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(client.incr("counter")))
    waiting.start()
    assert proxy.holds.wait(10)

    proxy.let_go()

    waiting.join(10)
    assert answers == [1]


def test_delayed_replies_come_late(proxy: Proxy) -> None:
    client = impatient(proxy)
    proxy.delay_replies(0.2)

    started = time.monotonic()
    client.ping()

    assert time.monotonic() - started >= 0.2
