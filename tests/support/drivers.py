"""How a behaviour is run: in threads, by the plain methods, or in asyncio, by those with an ``a``.

A behaviour is a coroutine. On threads nothing that it awaits suspends, so one step runs it to its
end: it needs no event loop, in which the plain methods would refuse to block.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

# Nothing here takes long, but for a machine that does something else.
DEADLINE = 20.0
TESTS = str(Path(__file__).parents[1])


class Face:
    """A lock, or a handle of one, whose operations are awaited whatever the driver.

    ``raw`` is the lock itself. Attributes that are no operation are the lock's own.
    """

    def __init__(self, raw: Any, driver: Driver) -> None:
        self.raw = raw
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(self.raw), f"a{name}"):
            return getattr(self.raw, name)
        return functools.partial(self._call, name)

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        answer = await self.driver.call(self.raw, name, *args, **options)
        return Face(answer, self.driver) if hasattr(answer, "remaining") else answer

    @contextlib.asynccontextmanager
    async def block(self) -> AsyncIterator[Face]:
        """Run the body in the lock's own ``with`` or ``async with`` block."""
        if self.driver.is_asyncio:
            async with self.raw as held:
                yield Face(held, self.driver)
        else:
            with self.raw as held:
                yield Face(held, self.driver)


def growth(*handles: Any, after: float = 0) -> Callable[[], bool]:
    """Return what says whether each has had more left of its lease than a moment before.

    ``after``: so many seconds will have passed by then.
    """
    last = {held: held.remaining() - after for held in handles}

    def have_grown() -> bool:
        for held, before in list(last.items()):
            last[held] = held.remaining()
            if last[held] > before:
                del last[held]
        return not last

    return have_grown


class Job(Protocol):
    """Work that runs beside the test: a thread, or a task."""

    def done(self) -> bool: ...
    async def result(self) -> Any: ...


class Driver(Protocol):
    """One of the two ways to run a behaviour."""

    name: str
    is_asyncio: bool
    # Seconds that a test may wait for a job, or for all of its body.
    longest: float = DEADLINE

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        """Run ``body`` to its end."""

    async def call(self, raw: Any, name: str, *args: Any, **options: Any) -> Any:
        """Call the operation ``name`` of the lock ``raw``."""

    def spawn(self, body: Coroutine[Any, Any, Any]) -> Job:
        """Run ``body`` beside the test."""

    async def sleep(self, seconds: float) -> None: ...

    async def eventually(self, condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
        """Return the first true answer of ``condition``; fail the test if none comes in time."""
        deadline, pause = time.monotonic() + seconds, 0.002
        while not (answer := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"not true after {seconds} s, but {answer!r}")
            await self.sleep(pause)
            # What comes at once is seen at once; what takes a lease is not asked for all the time.
            pause = min(1.2 * pause, 0.02)
        return answer


class _ThreadJob:
    def __init__(self, body: Coroutine[Any, Any, Any], longest: float) -> None:
        self._longest = longest
        self._future: Future[Any] = Future()
        self._body = body
        self._thread = threading.Thread(target=self._work, name="contract", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._future.set_result(stepped(self._body))
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._future.set_exception(error)

    def done(self) -> bool:
        return self._future.done()

    async def result(self) -> Any:
        answer = self._future.result(self._longest)
        self._thread.join(DEADLINE)
        return answer


def stepped(body: Coroutine[Any, Any, Any]) -> Any:
    """Return what ``body`` returns, which suspends nowhere."""
    try:
        body.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        body.close()
    raise AssertionError(f"{body} waits for an event loop")


class Threads(Driver):
    """Threads, and the plain methods."""

    name = "blocking"
    is_asyncio = False

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        stepped(body)

    async def call(self, raw: Any, name: str, *args: Any, **options: Any) -> Any:
        return getattr(raw, name)(*args, **options)

    def spawn(self, body: Coroutine[Any, Any, Any]) -> Job:
        return _ThreadJob(body, self.longest)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs it


class _TaskJob:
    def __init__(self, body: Coroutine[Any, Any, Any], longest: float) -> None:
        self._longest = longest
        self.task = asyncio.get_running_loop().create_task(body)
        # A test that failed before it asked has said enough.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def done(self) -> bool:
        return self.task.done()

    async def result(self) -> Any:
        return await asyncio.wait_for(self.task, self._longest)


class Tasks(Driver):
    """Tasks of an event loop, and the methods with an ``a``."""

    name = "asyncio"
    is_asyncio = True

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        async def work() -> None:
            await asyncio.wait_for(body, 2 * self.longest)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert [task for task in left if is_of_a_test(task)] == []

        asyncio.run(work())

    async def call(self, raw: Any, name: str, *args: Any, **options: Any) -> Any:
        return await getattr(raw, f"a{name}")(*args, **options)

    def spawn(self, body: Coroutine[Any, Any, Any]) -> Job:
        return _TaskJob(body, self.longest)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def is_of_a_test(task: asyncio.Task[Any]) -> bool:
    """Return whether a test began ``task``, and not the package or a client."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(TESTS)


DRIVERS: dict[str, Driver] = {driver.name: driver for driver in (Threads(), Tasks())}
