"""Servers that hang, refuse or swallow what they are sent, and how long a call on them takes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from django_setnx_lock import LockError
from tests.processes import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

# Seconds that a call may take beyond its limit, on a machine that does other things too.
MORE = 2.0


class Timed:
    """A call that runs in a thread of its own: ``seconds`` it took, and what it ``raised``.

    Whoever made it is not kept by a call that does not come back.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self.seconds = 0.0
        self.raised: BaseException | None = None
        self.result: object = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.result = self._call()
        except LockError as error:
            self.raised = error
        self.seconds = time.monotonic() - began

    def is_back_by(self, watch: Stopwatch, seconds: float) -> bool:
        """Whether it has come back when ``watch`` shows ``seconds``."""
        while self._thread.is_alive() and watch.seconds < seconds:
            self._thread.join(0.01)
        return not self._thread.is_alive()

    def is_back_within(self, seconds: float) -> bool:
        """Whether it has come back ``seconds`` from now."""
        with Stopwatch() as watch:
            return self.is_back_by(watch, seconds)

    @property
    def cause(self) -> str:
        """The cause that the error has, if it is a LockUnavailable."""
        return getattr(self.raised, "cause", "")


def awaited(call: Callable[[], Awaitable[object]]) -> Callable[[], object]:
    """What runs ``call`` in an event loop of its own."""

    async def run() -> object:
        return await call()

    return lambda: asyncio.run(run())


def outlasting(
    calls: Mapping[str, Callable[[], object]], limits: Mapping[str, float], more: float
) -> tuple[dict[str, Timed], list[str]]:
    """Run ``calls`` at the same time; give each, and those that outlast their limit by ``more``."""
    with Stopwatch() as watch:
        timed = {name: Timed(call) for name, call in calls.items()}
        late = [
            f"{name} was not back after {limits[name] + more:.2f} s"
            for name in sorted(timed, key=lambda name: limits[name])
            if not timed[name].is_back_by(watch, limits[name] + more)
        ]
    return timed, late


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Give a port that takes no connection and refuses none: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                filler.connect(address)
        yield address[1]
