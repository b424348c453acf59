"""Races a view or function in threads, and tells whether two were inside at the same time."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from enum import Enum, auto
from functools import wraps
from typing import Any, TypeVar
from unittest.mock import patch

from django.db import connections

from ..core import waiting
from ..core.aio import waiting as aio_waiting
from ..core.errors import LockBusy
from .wire import Wire

_Result = TypeVar("_Result")


class _State(Enum):
    UNDER_WAY = auto()
    ASLEEP = auto()
    INSIDE = auto()
    OVER = auto()


# Carried over sync_to_async and async_to_sync, so also where a view runs in another thread.
_racer: ContextVar[int | None] = ContextVar("setnx_lock_racer", default=None)


class Race:
    """Where each of ``count`` threads is. Whoever comes in stays until that of all is known."""

    def __init__(self, count: int, within: float) -> None:
        self.most_inside = 0
        self.entries = 0
        # Whether anybody asked for a lock while another was inside.
        self.has_met = False
        self.is_proven = True
        self._within = within
        self._states = [_State.UNDER_WAY] * count
        self._changed = threading.Condition()

    @contextmanager
    def being(self, state: _State) -> Iterator[None]:
        """The caller is in ``state`` for the time of the block."""
        number = _racer.get()
        if number is None:
            yield
            return
        before = self._states[number]
        self._put(number, state)
        try:
            yield
        finally:
            self._put(number, before)

    def _put(self, number: int, state: _State) -> None:
        with self._changed:
            self._states[number] = state
            inside = self._states.count(_State.INSIDE)
            self.most_inside = max(self.most_inside, inside)
            self._changed.notify_all()

    def is_over(self, number: int) -> None:
        self._put(number, _State.OVER)

    def has_asked(self) -> None:
        """The caller has asked for a lock."""
        number = _racer.get()
        if number is not None and self._states[number] is not _State.INSIDE:
            self.has_met |= _State.INSIDE in self._states

    def look_round(self) -> None:
        """Return when another is inside too, or nobody else can come in as things are."""
        with self._changed:
            self.entries += 1
            known = self._changed.wait_for(self._is_decided, timeout=self._within)
            self.is_proven &= known

    def _is_decided(self) -> bool:
        return self.most_inside > 1 or _State.UNDER_WAY not in self._states

    def watched(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """``inner``, which whoever calls it is inside of."""
        if inspect.iscoroutinefunction(inner):

            @wraps(inner)
            async def acall(*args: Any, **kwargs: Any) -> Any:
                with self.being(_State.INSIDE):
                    # Each racer has a loop of its own.
                    self._look_round_once()
                    return await inner(*args, **kwargs)

            return acall

        @wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.being(_State.INSIDE):
                self._look_round_once()
                return inner(*args, **kwargs)

        return call

    def _look_round_once(self) -> None:
        if _racer.get() is not None:
            self.look_round()

    def sleeping(self, sleep: Callable[..., Any]) -> Callable[..., Any]:
        """``sleep``, in which whoever waits for a lock is asleep."""
        if inspect.iscoroutinefunction(sleep):

            async def asleep(*args: Any, **kwargs: Any) -> Any:
                with self.being(_State.ASLEEP):
                    return await sleep(*args, **kwargs)

            return asleep

        def sleeps(*args: Any, **kwargs: Any) -> Any:
            with self.being(_State.ASLEEP):
                return sleep(*args, **kwargs)

        return sleeps


def run(
    call: Callable[[], _Result], *, inside: str, threads: int, within: float, wire: Wire
) -> list[_Result | LockBusy]:
    """See :meth:`LockHelpers.assert_exclusive`."""
    if threads < 2:
        raise ValueError(f"threads is {threads!r}: a race takes two at least")
    race = Race(threads, within)
    results: list[Any] = [None] * threads
    errors: list[BaseException] = []
    line = threading.Barrier(threads)

    def start(number: int) -> None:
        _racer.set(number)
        try:
            line.wait(timeout=within)
            results[number] = call()
        except LockBusy as error:
            results[number] = error
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            race.is_over(number)
            connections.close_all()

    target, name = patch(inside, None).getter(), inside.rpartition(".")[2]
    with (
        patch.object(target, name, race.watched(getattr(target, name))),
        patch.object(waiting.Mailbox, "sleep", race.sleeping(waiting.Mailbox.sleep)),
        patch.object(aio_waiting.Mailbox, "sleep", race.sleeping(aio_waiting.Mailbox.sleep)),
        patch.object(wire, "heard", race.has_asked),
    ):
        running = [
            threading.Thread(target=copy_context().run, args=(start, number), daemon=True)
            for number in range(threads)
        ]
        for one in running:
            one.start()
        for one in running:
            one.join()
    for error in errors:
        raise error
    problem = _problem(race, inside, threads, within)
    if problem:
        raise AssertionError(problem)
    return results


def _problem(race: Race, inside: str, threads: int, within: float) -> str | None:
    if race.most_inside > 1:
        return f"{race.most_inside} of {threads} threads were inside {inside} at the same time"
    if not race.entries:
        return f"none of {threads} threads called {inside}, so nothing is proven"
    if not race.is_proven:
        return (
            f"while one thread was inside {inside}, another neither came in, nor waited for a "
            f"lock, nor ended within {within:g} s, so nothing is proven"
        )
    if not race.has_met:
        return f"no thread asked for a lock while another was inside {inside}, so nothing is proven"
    return None
