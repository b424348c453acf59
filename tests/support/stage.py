"""What stands in for a user's own code where a recipe of the docs is run: it says how many meet.

Programs of such a project import it. They speak with one another, and with the test, by keys of the
server behind their cache.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE = 20
diary = redis.Redis.from_url(os.environ["TEST_SERVER_URL"], decode_responses=True)


def work() -> None:
    """Note how many are at work; stay until COMPANY are, or until ``go_on()``."""
    pid, company = os.getpid(), int(os.environ.get("COMPANY", "2"))
    diary.sadd("at work", pid)
    diary.rpush("met", diary.scard("at work"))
    eventually(lambda: diary.exists("go") or most() >= company)
    # Whoever may come meanwhile has a moment to do so.
    time.sleep(0.02)
    diary.srem("at work", pid)


def begun() -> int:
    """Return how often work has begun."""
    return int(diary.llen("met"))


def most() -> int:
    """Return how many were at work at the same time, at most."""
    return max(map(int, diary.lrange("met", 0, -1)), default=0)


def go_on() -> None:
    """Have all end their work, now and later."""
    diary.set("go", 1)


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


class Caller:
    """A process that makes one call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        readable, writable = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.alarm(2 * DEADLINE)
            os.write(writable, json.dumps(outcome(call)).encode())
            os._exit(0)
        os.close(writable)
        self._answer = os.fdopen(readable)

    def end(self) -> Any:
        """Return what the call has returned, or the name of what it has raised."""
        with self._answer as answer:
            said = answer.read()
        os.waitpid(self.pid, 0)
        return json.loads(said)

    def kill(self) -> None:
        """Kill it, as ``kill -9`` does."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._answer.close()


def outcome(call: Callable[[], Any]) -> Any:
    """Return what ``call`` returns, or the name of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the test is told
        return type(error).__name__
