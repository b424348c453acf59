"""Who is interrupted or cancelled while the server stands still leaves nothing there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from tests.processes import eventually
from tests.servers import ONCE
from tests.support.drivers import DRIVERS, Driver, Face

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from tests.servers import RealServer

pytestmark = [
    pytest.mark.real,
    # Of what was interrupted before it began.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

LIMIT = 0.5


class Interrupt(BaseException):
    pass


def _interrupt(*_: object) -> None:
    raise Interrupt


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Run a block whose thread, the main one, is interrupted after so many seconds."""
    before = signal.signal(signal.SIGUSR1, _interrupt)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupt):
            yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def is_left(server: RealServer) -> bool:
    """Return whether the lock stands, once the server has carried out what it was sent."""
    server.resume()
    looking = server.client()

    def asked() -> Any:
        commands = looking.info("commandstats")
        return sum(
            commands.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha")
        )

    # At first the script is not known.
    eventually(lambda: asked() > 1)
    return bool(looking.exists("lock:a"))


def interrupt(client: redis.Redis, seconds: float) -> None:
    with interrupted_after(seconds):
        RedisLock(client, "lock:a").acquire()


async def cancel(client: redis.Redis, seconds: float) -> None:
    task = asyncio.create_task(RedisLock(client, "lock:a").aacquire())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
# In the first try of the request, and in the second.
@pytest.mark.parametrize("seconds", [0.3, 0.7], ids=["first try", "second try"])
def test_who_is_interrupted_while_the_server_stands_still_leaves_nothing(
    real_server: RealServer, seconds: float, driver: Driver
) -> None:
    client = real_server.client(socket_timeout=LIMIT, retry=ONCE)

    async def work() -> None:
        async with Face(RedisLock(client, "lock:warm"), driver).block():
            pass
        client.config_resetstat()
        real_server.pause()
        if driver.is_asyncio:
            await cancel(client, seconds)
        else:
            interrupt(client, seconds)

    driver.run(work())

    assert not is_left(real_server)
