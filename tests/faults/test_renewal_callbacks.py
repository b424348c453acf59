"""What is called when a lock is lost may raise whatever it likes: the other locks go on."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from django_setnx_lock.signals import lock_lost
from tests.processes import eventually
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.renewals import IS_RENEWED, end_of, is_longer, is_renewed, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer


class Timeout(BaseException):
    """As gevent's, which is no Exception."""


ERRORS = SystemExit, KeyboardInterrupt, Timeout


@pytest.fixture(autouse=True)
def fresh_renewals() -> None:
    """End the thread that earlier tests have left."""
    seams.end_renewals()


class Called:
    """Takes note of the locks it is called for, and raises ``error``, if any."""

    def __init__(self, error: type[BaseException] | None) -> None:
        self.error = error
        self.keys: list[str] = []

    def receive(self, key: str, **about: Any) -> None:
        self.keys.append(key)
        if self.error is not None:
            raise self.error

    def on_lost(self, held: LockHandle) -> None:
        self.receive(held.key)


@pytest.fixture
def receiver() -> Iterator[Callable[[type[BaseException] | None], Called]]:
    """Give what has a receiver of ``lock_lost`` raise."""
    connected: list[Any] = []

    def connect(error: type[BaseException] | None) -> Called:
        called = Called(error)
        connected.append(called.receive)
        lock_lost.connect(called.receive)
        return called

    yield connect
    for one in connected:
        lock_lost.disconnect(one)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert all(record.exc_info for record in found)
    return [record.name for record in found]


@pytest.mark.parametrize("who", ["receiver", "on_lost"])
@pytest.mark.parametrize(
    ("driver", "error"),
    [
        (driver, error)
        for driver in DRIVERS.values()
        for error in ERRORS
        # That one is the loop's, as the next test says.
        if not (driver.is_asyncio and error is KeyboardInterrupt)
    ],
    ids=lambda value: getattr(value, "name", None) or value.__name__,
)
def test_what_is_raised_is_logged_and_ends_no_renewal(
    real_server: RealServer,
    receiver: Callable[[type[BaseException] | None], Called],
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
    who: str,
    driver: Driver,
) -> None:
    # Each is called whatever the other one raises.
    called = receiver(error if who == "receiver" else None)
    on_lost = Called(error if who == "on_lost" else None)

    client = real_server.client()

    async def work() -> None:
        names = ("lock:a", "lock:b", "lock:c")
        locks = [
            RedisLock(client, name, 600, renew=True, on_lost=on_lost.on_lost) for name in names
        ]
        *going, staying = [(await Face(lock, driver).take(0)).raw for lock in locks]
        client.delete(*names[:2])
        seams.renew_now(*going)
        # The second of one pass, too.
        await driver.eventually(lambda: sorted(called.keys) == sorted(on_lost.keys) == [*names[:2]])
        end = end_of(staying)
        seams.renew_now(staying)
        await driver.eventually(lambda: is_longer(staying, end))
        await Face(staying, driver).release()

    driver.run(work())
    assert len(errors_in(caplog)) == 2


def test_an_interrupt_of_the_main_thread_is_not_lost_in_asyncio(
    real_server: RealServer, receiver: Callable[[type[BaseException] | None], Called]
) -> None:
    called = receiver(KeyboardInterrupt)

    async def work() -> None:
        client = real_server.client()
        held = await RedisLock(client, "lock:a", 600, renew=True).atake(0)
        client.delete("lock:a")
        seams.renew_now(held)
        await asyncio.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert called.keys == ["lock:a"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_renewal_that_is_ended_from_outside_begins_again(
    real_server: RealServer, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    held = RedisLock(real_server.client(), "lock:a", 600, renew=True).take(0)
    assert is_renewed(held)
    (thread,) = threads()

    # As one is that gevent kills: wherever it may be.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    )
    eventually(lambda: errors_in(caplog) or not thread.is_alive())

    # Without anything that would have one started.
    eventually(threads)
    assert is_renewed(held)


IN_SUB_INTERPRETERS = """
import _testcapi, sys
WORK = '''
import sys
sys.path[:] = {path!r}
{is_renewed}
{begins}
import redis
from django_setnx_lock.core import RedisLock
with RedisLock(redis.Redis(port={port}), "lock:a", 3, renew=True) as held:
    assert is_renewed(held)
print("renewed", flush=True)
'''.format(path=sys.path, port=int(sys.argv[1]), is_renewed=sys.argv[2], begins=sys.argv[3])
for _ in range(2):
    print(_testcapi.run_in_subinterp(WORK), flush=True)
print("end", flush=True)
"""


@pytest.mark.matrix
@pytest.mark.skipif(not find_spec("_testcapi"), reason="needs what CPython is tested with")
def test_a_sub_interpreter_ends_without_the_process(real_server: RealServer) -> None:
    arguments = [str(real_server.port), IS_RENEWED, ""]
    command = [sys.executable, "-c", IN_SUB_INTERPRETERS, *arguments]

    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "renewed\n0\n" * 2 + "end\n"
