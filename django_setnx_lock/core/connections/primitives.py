"""Locks and threads that a fork, or a late patch by gevent or eventlet, leaves of use."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_exceptions

# The name of the threads and tasks that connect.
CONNECTING = "setnx-lock-connect"
# The type of a reentrant lock has no public name before Python 3.13.
_RLock = Any


def kind() -> tuple[object, ...]:
    """Return the kind of locks and sockets made now: those of another kind are of no use."""
    return os.getpid(), threading.Lock, socket.socket


class Guard:
    """A reentrant lock for a module, of the kind that is of use now."""

    def __init__(self) -> None:
        self._locks: dict[tuple[object, ...], _RLock] = {}

    def now(self) -> _RLock:
        """Return the lock."""
        wanted = kind()
        lock = self._locks.get(wanted)
        # If several threads are first, all of them get the same one.
        return lock or self._locks.setdefault(wanted, threading.RLock())


def in_thread(work: Callable[[], object], name: str = CONNECTING) -> Future[None]:
    """Begin ``work`` in a thread of its own. The future is done when that has ended, or failed.

    Where no thread can be had, as when the interpreter is about to end, it is done here.
    """
    done: Future[None] = Future()
    # It can be cancelled no more.
    done.set_running_or_notify_cancel()

    def go() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
            # Without the frames: connections in a circle are closed late.
            error.__cause__ = error.__context__ = None
            done.set_exception(error.with_traceback(None))
        except BaseException as error:  # noqa: BLE001 - nobody else hears of it
            done.set_exception(redis_exceptions.ConnectionError(repr(error)))
        else:
            done.set_result(None)

    try:
        threading.Thread(target=go, name=name, daemon=True).start()
    except RuntimeError:
        go()
    return done


def run_within(
    seconds: float, work: Callable[[], object], undo: Callable[[], object] = lambda: None
) -> None:
    """Return when ``work`` has, which a thread of its own does; raise what it raises.

    Raises redis-py's TimeoutError after ``seconds``. So nothing that ``work`` waits for takes
    longer, not even the name resolution, which nothing else bounds. ``undo`` is called when
    ``work`` has failed, or is over when nobody waits for it any more.
    """
    done = in_thread(work)
    try:
        if not wait([done], seconds).done:
            raise redis_exceptions.TimeoutError("Timeout connecting to the server")
        done.result()
    except BaseException:
        done.add_done_callback(lambda _: undo())
        raise
    finally:
        # It has the error, whose frames are these.
        del done


class Background:
    """Runs ``work`` in a thread of its own, once at a time. What ``work`` raises is dropped."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self._work = work
        self._name = name
        self._run: tuple[int, Future[None]] | None = None

    @property
    def is_under_way(self) -> bool:
        """True when a run has begun and has not ended."""
        # A thread of the process that this one was forked from has not come along.
        return self._run is not None and self._run[0] == os.getpid() and not self._run[1].done()

    def begin(self) -> Future[None]:
        """Begin unless it is under way. The future is done when it has ended."""
        run = self._run
        if run is None or not self.is_under_way:
            run = self._run = (os.getpid(), in_thread(self._go, self._name))
        return run[1]

    def _go(self) -> None:
        with suppress(Exception):
            self._work()
