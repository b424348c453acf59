"""Under gevent and eventlet, patched before the import of this app or after it."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import eventually, figure
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gevent") is None, reason="gevent is not installed"
)
WITH_EVENTLET = pytest.mark.skipif(
    importlib.util.find_spec("eventlet") is None, reason="eventlet is not installed"
)
CALLERS = 50
HOLD = 0.05

GUNICORN = [sys.executable, "-m", "gunicorn", "tests.served:application", "--workers=1", "--no-control-socket"]
# What gunicorn's own eventlet worker did until it was removed in gunicorn 26.
EVENTLET = """
import sys
import eventlet
if sys.argv[2] == "early":
    eventlet.monkey_patch()
from tests.served import application
if sys.argv[2] == "late":
    eventlet.monkey_patch()
from eventlet import wsgi
wsgi.server(eventlet.listen(("127.0.0.1", int(sys.argv[1]))), application, log_output=False)
"""
SERVERS = {
    "gevent": [*GUNICORN, "--worker-class=gevent"],
    "gevent-preload": [*GUNICORN, "--worker-class=gevent", "--preload"],
    "gthread": [*GUNICORN, "--worker-class=gthread", "--threads=60"],
    "eventlet": [sys.executable, "-c", EVENTLET, "PORT", "early"],
    "eventlet-late": [sys.executable, "-c", EVENTLET, "PORT", "late"],
}
SERVED = pytest.mark.parametrize(
    "served",
    [
        "gevent",
        "gevent-preload",
        "gthread",
        pytest.param("eventlet", marks=WITH_EVENTLET),
        pytest.param("eventlet-late", marks=WITH_EVENTLET),
    ],
    indirect=True,
)


class Served:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=45)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read()
            assert response.status == 200, text[-2000:]
            return dict(json.loads(text))
        finally:
            connection.close()

    def is_up(self) -> bool:
        try:
            return bool(self.get("/ping/"))
        except OSError:
            return False


@pytest.fixture
def served(request: pytest.FixtureRequest, real_server: RealServer) -> Iterator[Served]:
    port = free_port()
    command = [str(port) if one == "PORT" else one for one in SERVERS[request.param]]
    if "gunicorn" in command:
        command.append(f"--bind=127.0.0.1:{port}")
    with running(command, real_server) as process:
        found = Served(port)
        assert eventually(lambda: process.poll() is not None or found.is_up())
        yield found


@contextmanager
def running(command: list[str], server: RealServer) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env={**os.environ, "TEST_SERVER_URL": server.url}, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.mark.alone
@SERVED
def test_of_many_requests_of_one_worker_one_is_inside(served: Served) -> None:
    with ThreadPoolExecutor(CALLERS) as pool:
        served.get("/hold/a/?seconds=0")
        began = time.monotonic()
        path = f"/hold/a/?seconds={HOLD}"
        answers = list(pool.map(lambda _: served.get(path), range(CALLERS)))
        took = time.monotonic() - began
    figure(f"{CALLERS} requests of {HOLD} s took {took:.2f} s")

    assert max(answer["inside"] for answer in answers) == 1
    assert len({answer["fence"] for answer in answers}) == CALLERS
    assert all(answer["again"] == answer["fence"] for answer in answers)
    assert len({answer["pid"] for answer in answers}) == 1
    assert took < 1.2 * CALLERS * HOLD


@SERVED
def test_a_lock_is_renewed_while_others_of_the_worker_go_on(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(served.get, "/hold/a/?seconds=2.5&timeout=1")
        longest = 0.0
        while not holding.done():
            began = time.monotonic()
            served.get("/ping/")
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.02)

    # The view asks Redis at the end whether the lock is held still.
    assert holding.result()["inside"] == 1
    assert longest < 1
