"""A watchdog without thread, clock or server: a test moves the time and gives the answers."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Connection
from django_setnx_lock.core.renewal.scheduler import RenewalRegistry, RenewalScheduler
from django_setnx_lock.core.renewal.watchdog import ThreadIO

if TYPE_CHECKING:
    from collections.abc import Callable


Command = tuple[Any, ...]
# The fake time at the start of each test.
START = 1000.0


def at_once(work: Callable[[], object], name: str = "") -> Future[None]:
    """Do ``work`` here, in the place of a thread of its own."""
    done: Future[None] = Future()
    try:
        work()
    except Exception as error:  # noqa: BLE001 - as in a thread
        done.set_exception(error)
    else:
        done.set_result(None)
    return done


class _AtOnce(ThreadIO):
    """Connects in the thread that works, as the time is the test's."""

    def connect(self, connection: Connection) -> Future[None]:
        return at_once(connection.connect)


class IdleWatchdog(RenewalRegistry):
    """A watchdog without a thread, which works when it is told to."""

    def __init__(self, connection: Callable[..., Any] = Connection) -> None:
        super().__init__()
        self._scheduler = RenewalScheduler(self, _AtOnce(connection))

    def tick(self) -> float:
        """Do what is due. Gives when there is more to do: a time, ``inf`` for never."""
        return run(self._scheduler.run_once())

    def wake(self) -> None:
        """Do nothing: nobody sleeps."""

    def is_current(self) -> bool:
        return False

    def _attend(self, due: float) -> None:
        """Do nothing: the test sees to it."""
