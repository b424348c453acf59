"""Signals as events, and what a signal leaves of a lock that is being taken: nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.connections.backends import Backend
from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.protocol import replies

# A signal at a chosen moment inside of a take cannot be sent from outside.
from django_setnx_lock.management.with_lock.interrupts import ENDING, RARE, Interrupted, Interrupts
from tests.core.queueing import listeners
from tests.faults.controls import nothing
from tests.faults.proxy import Proxy
from tests.management.conftest import Program
from tests.processes import eventually
from tests.servers import RealServer


def from_another_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def signal_ourselves(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_signals_come_as_events_each_once() -> None:
    with Interrupts() as interrupts:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal_ourselves(number)

        assert interrupts.wait(5) == [signal.SIGTERM, signal.SIGINT]
        assert interrupts.wait(0) == []


def test_a_wait_ends_when_another_thread_wakes_it() -> None:
    with Interrupts() as interrupts:
        began = time.monotonic()
        from_another_thread(interrupts.wake)

        assert interrupts.wait(30) == []
        assert time.monotonic() - began < 10


def test_a_wait_may_be_longer_than_selectors_can() -> None:
    with Interrupts() as interrupts:
        interrupts.wake()

        assert interrupts.wait(1e12) == []


def test_waking_when_it_is_over_does_no_harm() -> None:
    with Interrupts() as interrupts:
        pass

    interrupts.wake()


def test_handlers_and_wakeup_are_put_back() -> None:
    caught = [*ENDING - RARE, signal.SIGTSTP, signal.SIGCHLD]
    before = [signal.getsignal(number) for number in caught]

    with Interrupts() as interrupts:
        interrupts.catch(signal.SIGTSTP)
        assert not {signal.getsignal(number) for number in caught}.intersection(before)

    assert [signal.getsignal(number) for number in caught] == before
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    assert wakeup == -1


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal_ourselves(signal.SIGHUP)

            assert interrupts.wait(0.05) == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_a_take_a_signal_waits_for_the_next_look() -> None:
    with Interrupts() as interrupts:
        signal_ourselves()

        with pytest.raises(Interrupted) as interrupted:
            interrupts.check()

    assert interrupted.value.signum == signal.SIGTERM


def test_a_signal_that_came_before_a_take_stops_it_from_asking() -> None:
    with Interrupts() as interrupts:
        signal_ourselves()

        with pytest.raises(Interrupted):
            interrupts.take(RedisLock(None, "lock:k"), None)


def signal_once_there_is_a_sleeper(server: RealServer) -> None:
    # Not sooner: redis-py leaves a socket open where a signal breaks off its connecting.
    eventually(lambda: listeners(server))
    signal_ourselves()


def test_a_signal_during_a_wait_leaves_no_waiter(real_cache: RealServer) -> None:
    with lock("k"), Interrupts() as interrupts:
        from_another_thread(lambda: signal_once_there_is_a_sleeper(real_cache))

        with pytest.raises(Interrupted):
            interrupts.take(lock("k"), None)

        assert not inspector().get("lock:k").waiting


def signal_after_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = AcquireAttempt.ask

    async def ask_and_signal(
        self: AcquireAttempt, io: Backend, **options: Any
    ) -> LockHandle | replies.Busy:
        answer = await ask(self, io, **options)
        signal_ourselves()
        return answer

    monkeypatch.setattr(AcquireAttempt, "ask", ask_and_signal)


def test_a_signal_at_the_moment_of_the_grant_leaves_no_lock(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_after_the_reply(monkeypatch)

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        interrupts.take(lock("k"), None)

    assert not real_cache.client().exists("lock:k")


def test_without_the_undoing_the_lock_would_stay_for_its_lease(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_after_the_reply(monkeypatch)
    monkeypatch.setattr(AcquireAttempt, "cancel", nothing)

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        interrupts.take(lock("k"), None)

    assert real_cache.client().exists("lock:k")


def test_a_signal_between_the_grant_and_its_handle_leaves_no_lock(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def interrupted_at_its_end(self: Interrupts) -> Iterator[None]:
        yield
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(Interrupts, "raising", interrupted_at_its_end)

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        interrupts.take(lock("k"), None)

    assert not real_cache.client().exists("lock:k")


def signal_soon() -> None:
    time.sleep(random.uniform(0, 0.002))  # noqa: S311 - any moment will do
    signal_ourselves()


# redis-py drops a socket when its connect is interrupted.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("no_collection")
def test_a_signal_at_any_moment_leaves_either_a_handle_or_no_lock(real_cache: RealServer) -> None:
    client = real_cache.client()
    ends: set[str] = set()
    for _ in range(150):
        with Interrupts() as interrupts:
            sender = from_another_thread(signal_soon)
            try:
                held = interrupts.take(lock("k"), 0)
            except Interrupted:
                ends.add("interrupted")
            else:
                ends.add("held")
                held.release()
            sender.join(timeout=10)
        assert not client.exists("lock:k")

    assert ends == {"interrupted", "held"}


# As redis-py's, whose frame is the innermost one while hiredis packs a command.
PACK = """
import signal
def pack():
    # Sent to the process, another thread may get it, and this one hear of it later.
    signal.raise_signal(signal.SIGTERM)
    return "packed"
"""


def pack_and_wait(module: str) -> list[str]:
    """Return what came of packing in a module of that name, which a signal interrupts."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(PACK, namespace)  # noqa: S102 - the name of the module matters
    packed: list[str] = []
    with Interrupts() as interrupts, contextlib.suppress(Interrupted), interrupts.raising():
        packed.append(namespace["pack"]())
        # The signal ends this.
        eventually(lambda: False)
    return packed


def test_a_signal_while_a_command_is_packed_raises_afterwards() -> None:
    assert pack_and_wait("redis.connection") == ["packed"]


def test_in_any_other_place_it_raises_at_once() -> None:
    assert pack_and_wait("another.module") == []


def test_a_signal_ends_it_soon_also_where_the_server_hangs(
    start: Callable[..., Program], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVER_URL", proxy.url)
    proxy.hold(b"EVALSHA")
    with_lock = start("k", "echo", "started")
    assert proxy.holds.wait(timeout=20)

    with_lock.terminate()

    # What undoes the request would wait for as long as the socket may, which is longer.
    assert with_lock.wait(timeout=4) == -signal.SIGTERM
