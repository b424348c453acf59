"""How many connections the waiting threads of one process are woken on."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import MultiLock, RWLock
from django_setnx_lock.core.locks import listener
from tests.core.helpers import INDEX, command, listed
from tests.core.queueing import listeners, queued
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

# With those of the first threads.
AT_MOST = 16
MANY = 40


class Crowd:
    """Threads that wait for locks which somebody holds, in the order in which they began."""

    def __init__(self, server: RealServer, pool: ThreadPoolExecutor) -> None:
        self.client = server.client()
        self.pool = pool
        self.done: list[int] = []
        self.turns: list[Future[None]] = []

    def turn(self, number: int, lock: Any) -> None:
        with lock:
            self.done.append(number)

    def wait_for(self, lock: Any, key: str = "a") -> None:
        """Let one more thread wait for ``lock``, and return when it is queued."""
        before = len(queued(self.client, key))
        self.turns.append(self.pool.submit(self.turn, len(self.turns), lock))
        eventually(lambda: len(queued(self.client, key)) == before + 1)

    def hold(self, waiting: int) -> LockHandle:
        """Take the lock ``a``, and let so many threads wait for it."""
        held = listed(self.client, "a").take(0)
        for _ in range(waiting):
            self.wait_for(listed(self.client, "a"))
        return held

    def end(self) -> list[int]:
        for turn in self.turns:
            turn.result(20)
        return self.done


@pytest.fixture
def crowd(real_server: RealServer) -> Iterator[Crowd]:
    with ThreadPoolExecutor(MANY + 10) as pool:
        yield Crowd(real_server, pool)


def test_many_wait_on_few_connections_and_have_their_turns_in_order(
    crowd: Crowd, real_server: RealServer
) -> None:
    held = crowd.hold(MANY)

    eventually(lambda: listeners(real_server) == AT_MOST)
    held.release()

    assert crowd.end() == list(range(MANY))


def test_a_lock_for_each_takes_no_more(crowd: Crowd, real_server: RealServer) -> None:
    keys = [str(number) for number in range(MANY)]
    held = [listed(crowd.client, key).take(0) for key in keys]
    for key in keys:
        crowd.wait_for(listed(crowd.client, key), key)

    eventually(lambda: listeners(real_server) == AT_MOST)
    for one in held:
        one.release()

    assert sorted(crowd.end()) == list(range(MANY))


def test_without_a_limit_each_would_have_one(
    crowd: Crowd, real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener.PLACES, "take", lambda: True)
    monkeypatch.setattr(listener.PLACES, "leave", lambda: None)
    held = crowd.hold(MANY)

    eventually(lambda: listeners(real_server) == MANY)
    held.release()
    crowd.end()


def test_a_few_wait_on_connections_of_their_own(crowd: Crowd, real_server: RealServer) -> None:
    for _ in range(3):
        # Those who had a connection before leave it to the next.
        held = crowd.hold(AT_MOST - 1)
        assert not any("@" in token for token in queued(crowd.client))
        held.release()
        crowd.end()


def test_several_keys_readers_and_permits_are_woken_by_it_too(crowd: Crowd) -> None:
    client = crowd.client
    held = [listed(client, "a").take(0), *[listed(client, "seats", limit=1).take(0)]]
    writing = RWLock(client, "lock:rows", timeout=60, index=INDEX, key="rows").write().take(0)
    for _ in range(AT_MOST - 1):
        crowd.wait_for(listed(client, "a"))

    crowd.wait_for(listed(client, "seats", limit=1), "seats")
    crowd.wait_for(RWLock(client, "lock:rows", timeout=60, index=INDEX, key="rows").read(), "rows")
    crowd.wait_for(MultiLock(client, ["lock:a", "lock:b"], 60, index=INDEX))
    shared = [*queued(client, "seats"), *queued(client, "rows"), queued(client)[-1]]
    for one in (*held, writing):
        one.release()

    assert all("@{lock:}:mail:" in token for token in shared)
    assert sorted(crowd.end()) == list(range(AT_MOST + 2))


def test_all_go_on_after_their_connections_were_cut_off(
    crowd: Crowd, real_server: RealServer
) -> None:
    held = crowd.hold(MANY)
    eventually(lambda: listeners(real_server) == AT_MOST)

    command(crowd.client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually(lambda: listeners(real_server) == AT_MOST)
    held.release()

    assert crowd.end() == list(range(MANY))


def test_one_whose_time_is_over_leaves_the_others_listening(
    crowd: Crowd, real_server: RealServer
) -> None:
    held = crowd.hold(AT_MOST + 2)

    began = time.monotonic()
    with pytest.raises(LockBusy):
        listed(crowd.client, "a").take(0.3)
    assert time.monotonic() - began >= 0.3
    assert listeners(real_server) == AT_MOST
    held.release()

    assert crowd.end() == list(range(AT_MOST + 2))


def test_one_that_cannot_listen_is_told_why(crowd: Crowd, real_server: RealServer) -> None:
    command(crowd.client, "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "-bzpopmin")
    deaf = real_server.client(username="deaf", password="any")
    held = crowd.hold(AT_MOST - 1)

    with pytest.raises(LockUnavailable) as caught:
        listed(deaf, "a").take(20)
    held.release()
    crowd.end()

    assert caught.value.cause == "denied"


def test_one_for_which_no_thread_can_be_had_is_told_so(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = crowd.hold(AT_MOST - 1)
    # What Python does where the system allows no more of them.
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "listener" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(LockUnavailable, match="can't start new thread"):
        listed(crowd.client, "a").take(20)
    held.release()
    crowd.end()


def test_a_child_process_has_as_many_of_its_own(crowd: Crowd) -> None:
    held = crowd.hold(AT_MOST + 1)

    with forked(lambda: listed(crowd.client, "a").take(20).release()) as child:
        eventually(lambda: len(queued(crowd.client)) == AT_MOST + 2)
        assert "@" not in queued(crowd.client)[-1]
        held.release()
        crowd.end()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interrupt_costs_none_of_the_connections(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = listener.PLACES.take

    def interrupted() -> bool:
        # By a private name: no other point is between taking a place and being sure to leave it.
        take()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(listener.PLACES, "take", interrupted)
        for _ in range(AT_MOST):
            with pytest.raises(KeyboardInterrupt):
                listed(crowd.client, "a").take(1)

    # This thread has its place again, and leaves it.
    listed(crowd.client, "a").take(1).release()
    held = crowd.hold(AT_MOST - 1)
    assert not any("@" in token for token in queued(crowd.client))
    held.release()
    crowd.end()


@contextmanager
def forked(work: Any) -> Iterator[int]:
    """Do ``work`` in a child process, whose number is given."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    yield child
