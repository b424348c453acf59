"""A lock on the primary that a Sentinel names, for its requests and for those who wait."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.sentinel import Sentinel

from django_setnx_lock.core.lock import RedisLock
from tests.core.queueing import listeners
from tests.processes import eventually
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RealServer

REAL = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


def answers(port: int) -> bool:
    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


@pytest.fixture
def sentinel(server: RealServer, tmp_path: Path) -> Iterator[Any]:
    """Give a Sentinel that knows the server as ``shop``."""
    port = free_port()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(
        f"bind 127.0.0.1\nport {port}\nsentinel monitor shop 127.0.0.1 {server.port} 1\n"
    )
    command = [server.binary, str(settings), "--sentinel"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: answers(port))
            yield Sentinel([("127.0.0.1", port)])  # type: ignore[no-untyped-call]  # redis-py's own
        finally:
            process.kill()


@REAL
def test_a_lock_is_taken_waited_for_and_handed_on(server: RealServer, sentinel: Any) -> None:
    client = sentinel.master_for("shop")

    with ThreadPoolExecutor(1) as pool:
        with RedisLock(client, "lock:a") as held:
            held.reacquire()
            waiting = pool.submit(RedisLock(client, "lock:a").take, 20)
            eventually(lambda: listeners(server) == 1)
        following = waiting.result(10)

    assert server.client().get("lock:a") == following.token.encode()
    following.release()
    client.close()
