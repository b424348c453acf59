"""Jobs that several parts share: holding locks, and waiting for them in threads."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from bench.peers import PEERS
from bench.wire import sent
from bench.workers import Pipe

if TYPE_CHECKING:
    from bench.peers import Peer


def hold(pipe: Pipe, name: str, locks: list[str], lease: float) -> None:
    """Take ``locks`` and keep them; say when and under which keys, then usage() whenever asked."""
    peer = PEERS[name]()
    began = []
    kept = []  # some libraries release what is forgotten
    for lock in locks:
        manager = peer.lock(lock, lease)
        kept.append((manager, manager.__enter__()))
        began.append(time.monotonic())
    pipe.say((began, [peer.key(lock) for lock in locks]))
    while True:
        pipe.hear(None)
        pipe.say(usage())


def usage() -> dict[str, float]:
    """Return what this process has used up to now."""
    return {
        "at": time.monotonic(),
        "requests": sent(),
        "cpu": time.process_time(),
        "threads": threading.active_count(),
        "rss_mb": resident_mb(),
    }


def resident_mb() -> float:
    """Return the memory this process has now, in MB; Linux only."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return what was used between two answers of usage()."""
    return {name: after[name] - before[name] for name in after}


class Waiters:
    """Threads that wait for a lock each; each notes when it got in, and lets go at once."""

    def __init__(self, peer: Peer, locks: list[str], lease: float, stagger: float = 0.0) -> None:
        self.began: list[float | None] = [None] * len(locks)
        self.errors: list[str] = []
        self._peer, self._lease = peer, lease
        self._threads = [
            threading.Thread(target=self._wait, args=(number, lock, number * stagger), daemon=True)
            for number, lock in enumerate(locks)
        ]
        for thread in self._threads:
            thread.start()

    def _wait(self, number: int, lock: str, pause: float) -> None:
        time.sleep(pause)
        try:
            with self._peer.lock(lock, self._lease):
                self.began[number] = time.monotonic()
        except Exception as error:  # noqa: BLE001 - any error of a library is an outcome to report
            self.errors.append(f"{type(error).__name__}: {error}")

    def join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def refuse_errors(self) -> None:
        """Raise RuntimeError when some could not wait."""
        if self.errors:
            count = f"{len(self.errors)} of {len(self._threads)} waiters failed"
            raise RuntimeError(f"{count}: {self.errors[0]}")


def wait_idly(pipe: Pipe, name: str, locks: list[str], lease: float) -> None:
    """Wait in a thread for each of ``locks``; say what it took so far whenever asked."""
    waiters = Waiters(PEERS[name](), locks, lease)
    pipe.say("ready")
    while True:
        pipe.hear(None)
        waiters.refuse_errors()
        if any(waiters.began):
            raise RuntimeError("a waiter got in although the lock was held")
        pipe.say(usage())


def wait_staggered(
    pipe: Pipe, name: str, locks: list[str], lease: float, stagger: float, patience: float
) -> None:
    """When told to, begin to wait for one of ``locks`` after another; say when each got in."""
    peer = PEERS[name]()
    pipe.say("ready")
    pipe.hear()
    waiters = Waiters(peer, locks, lease, stagger)
    waiters.join(patience)
    waiters.refuse_errors()
    pipe.say(waiters.began)
