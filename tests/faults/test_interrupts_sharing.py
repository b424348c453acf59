"""An interrupt anywhere in having a lock again, or in letting it go, leaks no count.

A share sends nothing, so that there is no step of a connection to be interrupted at: every line
of this package is. Only the first line of ``__exit__`` is left out: what comes before it, no
Python code can guard.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import django_setnx_lock
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections import backends
from tests.faults.controls import nothing
from tests.faults.points import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import redis

    from tests.servers import RealServer


BETWEEN = backends.run.__code__
ROOT = str(Path(django_setnx_lock.__file__).parent)


class Lines:
    """Counts the lines of the package that are run; ``at``: the number of the one to interrupt."""

    def __init__(self, at: int = 0) -> None:
        self.passed: list[str] = []
        self._at = at
        self._in_exit: FrameType | None = None

    def run(self, work: Callable[[], object]) -> bool:
        """Run ``work``. Return whether it was interrupted."""
        try:
            with traced(self._trace):
                work()
        except KeyboardInterrupt:
            return True
        return False

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        # A handler of a signal is run at calls and in loops: not while the result of an operation
        # that has ended is handed on.
        if not frame.f_code.co_filename.startswith(ROOT) or frame.f_code is BETWEEN:
            return None
        if event == "call" and frame.f_code.co_name == "__exit__":
            self._in_exit = frame
        if event != "line":
            return self._trace
        # "held = None" and "try:".
        if self._in_exit is frame and frame.f_lineno <= frame.f_code.co_firstlineno + 7:
            return self._trace
        self.passed.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        if len(self.passed) == self._at:
            raise KeyboardInterrupt
        return self._trace


def enter_and_leave(lock: RedisLock) -> None:
    with lock:
        pass


def acquire_and_release(lock: RedisLock) -> None:
    lock.acquire()
    lock.release()


def take(lock: RedisLock) -> None:
    lock.take()


def standing(client: redis.Redis, work: Callable[[RedisLock], None]) -> Iterator[str]:
    """Interrupt ``work`` at each line in turn, within a lock that is then let go while the
    interrupt is on its way up. Give the lines where that left the lock standing.
    """
    at, interrupted = 0, True
    while interrupted:
        at += 1
        lines = Lines(at)
        outer = RedisLock(client, "lock:a", reentrant=True, blocking=False).take()
        inner = RedisLock(client, "lock:a", reentrant=True, blocking=False)
        on_its_way: list[BaseException] = []

        def run(inner: RedisLock = inner, on_its_way: list[BaseException] = on_its_way) -> None:
            try:
                work(inner)
            except KeyboardInterrupt as error:
                on_its_way.append(error)
                raise

        interrupted = lines.run(run)
        if work is acquire_and_release and inner.held is not None:
            # It was not released: the caller still has it, and can do so again.
            inner.release()
        outer.release()
        if client.exists("lock:a"):
            yield lines.passed[-1]
            client.delete("lock:a")
    assert at > 20


@pytest.mark.parametrize("work", [enter_and_leave, acquire_and_release, take])
def test_no_interrupt_leaks_a_count(
    real_server: RealServer, work: Callable[[RedisLock], None]
) -> None:
    assert list(standing(real_server.client(), work)) == []


def test_without_counting_out_what_is_on_its_way_up_the_lock_would_stand(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisLock, "_undo", nothing)

    assert next(standing(real_server.client(), enter_and_leave))
