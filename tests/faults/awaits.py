"""Every await of a coroutine, to cancel its task there."""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator


class Awaits:
    """Runs a coroutine and cancels its task at the await number ``at``, from 1; 0: nowhere.

    ``late``: when what is awaited has come, which is then never heard of; else before.
    ``again``: cancelled at each of so many further awaits, too, which are those of the clean-up.
    """

    def __init__(self, at: int = 0, *, late: bool = False, again: int = 0) -> None:
        self.passed = 0
        self.has_cancelled = False
        self._cancels_at = range(at, at + again + 1) if at else range(0)
        self._late = late

    @property
    def came_so_far(self) -> bool:
        """Whether it came to where it is cancelled."""
        return self.passed >= self._cancels_at.start

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Return what ``work`` returns, or raise what it raises."""
        steps: Any = work.__await__()
        send, value = steps.send, None
        while True:
            try:
                awaited = send(value)
            except StopIteration as stop:
                return stop.value
            value = None
            self.passed += 1
            if self.passed in self._cancels_at:
                self._cancel(awaited)
            try:
                value = yield awaited
                send = steps.send
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's
                value, send = error, steps.throw

    def _cancel(self, awaited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.has_cancelled = True
        if self._late and awaited is not None:
            # Before the task itself hears of it.
            awaited.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()
