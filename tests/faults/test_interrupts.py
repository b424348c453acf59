"""A caller that is interrupted while it takes a lock leaves none behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import scripts
from django_setnx_lock.core.lock import RedisLock
from django_setnx_lock.core.turn import Turn
from tests.processes import eventually

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

INTERRUPTS = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit, MemoryError]
# Says when it starts to wait for an answer that will come too late.
TAKER = """
import sys, redis
from django_setnx_lock.core.lock import RedisLock
client = redis.Redis(port=int(sys.argv[1]), socket_timeout=30)
client.ping()
print("asking", flush=True)
RedisLock(client, "lock:a").take(0)
"""


def after_applying(client: redis.Redis, error: type[BaseException]) -> Any:
    """Return an evalsha that is interrupted, once, when the server has done its part."""
    evalsha = client.evalsha
    pending = [error]

    def interrupted(*arguments: Any) -> Any:
        reply = evalsha(*arguments)
        if pending:
            raise pending.pop()
        return reply

    return interrupted


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_acquire_interrupted_after_it_was_applied_is_undone(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    redis_client.script_load(scripts.ACQUIRE.source)
    monkeypatch.setattr(redis_client, "evalsha", after_applying(redis_client, error))

    with pytest.raises(error):
        RedisLock(redis_client, "lock:a", index="{lock:}:index").take(0)

    assert not redis_client.exists("lock:a", "{lock:}:index")


def test_without_undoing_the_interrupted_lock_would_stand_for_its_lease(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.script_load(scripts.ACQUIRE.source)
    monkeypatch.setattr(redis_client, "evalsha", after_applying(redis_client, KeyboardInterrupt))
    monkeypatch.setattr(Turn, "leave", lambda self: None)

    with pytest.raises(KeyboardInterrupt):
        RedisLock(redis_client, "lock:a").take(0)

    assert redis_client.exists("lock:a")


def test_an_acquire_interrupted_before_it_was_sent_leaves_nothing(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(redis_client, "evalsha", interrupted)

    with pytest.raises(KeyboardInterrupt), RedisLock(redis_client, "lock:a"):
        pytest.fail("entered")

    assert not redis_client.exists("lock:a")


def test_a_waiter_interrupted_in_its_pause_takes_no_lock_later(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = RedisLock(redis_client, "lock:a").take(0)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RedisLock(redis_client, "lock:a").take(10)
    holder.release()

    assert not redis_client.exists("lock:a", "{lock:a}:waiters")


def test_an_interrupted_release_can_be_called_again(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = RedisLock(redis_client, "lock:a").take(0)
    with RedisLock(redis_client, "lock:warm"):
        pass
    monkeypatch.setattr(redis_client, "evalsha", after_applying(redis_client, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        held.release()

    held.release()

    assert held.released


def test_ctrl_c_in_a_real_process_leaves_no_lock(proxy: Proxy, real_server: RealServer) -> None:
    direct = real_server.client()
    direct.script_load(scripts.ACQUIRE.source)
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKER, str(proxy.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with taker:
        assert taker.stdout
        assert taker.stdout.readline() == "asking\n"
        proxy.delay_replies(1)
        eventually(lambda: direct.exists("lock:a"))

        proxy.delay_replies(0)
        taker.send_signal(signal.SIGINT)
        _, said = taker.communicate(timeout=20)

    assert "KeyboardInterrupt" in said
    assert not direct.exists("lock:a")
