"""Races a view or function in threads, and tells whether two were inside at the same time."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial, wraps
from typing import Any, TypeVar
from unittest.mock import patch

from django.db import connections

from ..core.connections.endpoints import Target, server_id
from ..core.errors import LockBusy
from ..core.locks.attempt import AcquireAttempt
from ..core.locks.grant import Grant
from ..core.locks.multi_lock import MultiAttempt

_Result = TypeVar("_Result")


class _State(Enum):
    UNDER_WAY = auto()
    ABOUT_TO_ASK = auto()
    WAITS = auto()
    INSIDE = auto()
    OVER = auto()


@dataclass
class _Racer:
    """One thread: where it is, and what became of the locks that it asked for."""

    state: _State = _State.UNDER_WAY
    has_asked: bool = False
    took: list[Grant] = field(default_factory=list)
    # Several locks that it asks for together: it has some while it waits for the rest.
    many: MultiAttempt | None = None
    # The last is what it waits for, while it does.
    sought: list[Target] = field(default_factory=list)

    @property
    def holds(self) -> list[Target]:
        """The locks that it took and still has."""
        some = [] if self.many is None else self.many.attempts[: self.many._taken]
        return [one.target for one in some] + [
            one.target for one in self.took if one.handles and not one.is_over
        ]


# Carried over sync_to_async and async_to_sync, so also where a view runs in another thread.
_racer: ContextVar[_Racer | None] = ContextVar("setnx_lock_racer", default=None)


class Race:
    """Where each of ``count`` threads is: the first comes in alone, and all is decided then."""

    def __init__(self, count: int, within: float) -> None:
        self.racers = [_Racer() for _ in range(count)]
        self.most_inside = 0
        self.entries = 0
        # Whether anybody was kept out by a lock that the one who was inside held.
        self.has_met = False
        self.is_proven = True
        # The locks that the threads inside held.
        self.held = ""
        self._within = within
        self._changed = threading.Condition()

    def _in(self, *states: _State) -> list[_Racer]:
        return [one for one in self.racers if one.state in states]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let the caller be inside for the time of the block, which begins when all is decided."""
        racer = _racer.get()
        if racer is None:
            yield
            return
        before = racer.state
        self.put(racer, _State.INSIDE)
        try:
            self._look_round()
            yield
        finally:
            self.put(racer, before)

    def put(self, racer: _Racer, state: _State) -> None:
        with self._changed:
            racer.state = state
            inside = self._in(_State.INSIDE)
            if len(inside) > self.most_inside:
                self.most_inside = len(inside)
                self.held = _named(_held_by(inside))
            self._changed.notify_all()

    def line_up(self, racer: _Racer, _: object) -> None:
        """Return when ``racer``, which is about to ask for its first lock, may do so."""
        if racer.has_asked:
            return
        racer.has_asked = True
        with self._changed:
            self.put(racer, _State.ABOUT_TO_ASK)
            self._changed.wait_for(lambda: self._may_ask(racer), timeout=self._within)
            self.put(racer, _State.UNDER_WAY)

    def _may_ask(self, racer: _Racer) -> bool:
        if self._in(_State.INSIDE):
            return True
        return not self._in(_State.UNDER_WAY) and self._in(_State.ABOUT_TO_ASK)[0] is racer

    def is_kept_out(self, racer: _Racer, attempt: AcquireAttempt, state: _State) -> None:
        """Note that ``racer`` waits for the lock of ``attempt``, or does not get it."""
        with self._changed:
            racer.sought.append(attempt.target)
            self.put(racer, state)

    def has_taken(self, racer: _Racer, grant: Grant) -> None:
        racer.took.append(grant)
        racer.many = None
        self.put(racer, _State.UNDER_WAY)

    def _look_round(self) -> None:
        """Return when another is inside too, or nobody else can come in as things are."""
        with self._changed:
            self.entries += 1
            if not self.is_proven:
                return
            self.is_proven = self._changed.wait_for(self._is_decided, timeout=self._within)
            inside = self._in(_State.INSIDE)
            held = _held_by(inside)
            self.has_met |= any(
                _keep_out(held, asked)
                for one in self.racers
                if one not in inside
                for asked in one.sought
            )

    def _is_decided(self) -> bool:
        if self.most_inside > 1:
            return True
        stuck = self._in(_State.INSIDE)
        waiting = self._in(_State.WAITS)
        while more := [one for one in waiting if _keep_out(_held_by(stuck), one.sought[-1])]:
            stuck += more
            waiting = [one for one in waiting if one not in more]
        return not waiting and not self._in(_State.UNDER_WAY, _State.ABOUT_TO_ASK)

    def watched(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``inner``, which whoever calls it is inside of."""
        if not inspect.iscoroutinefunction(inner):
            return self.inside()(inner)

        @wraps(inner)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            # It blocks, as each racer has a loop of its own.
            with self.inside():
                return await inner(*args, **kwargs)

        return acall


def _held_by(racers: Iterable[_Racer]) -> list[Target]:
    return [target for one in racers for target in one.holds]


def _keep_out(held: Iterable[Target], asked: Target) -> bool:
    """Return whether the locks ``held`` alone keep out whoever asks for ``asked``."""
    place, name = server_id(asked.client), asked.keys.name
    same = [one for one in held if one.keys.name == name and server_id(one.client) == place]
    if not asked.command_set.is_shared or any(not one.command_set.is_shared for one in same):
        return bool(same)
    return asked.command_set.limit is not None and len(same) >= asked.command_set.limit


def _named(targets: Iterable[Target]) -> str:
    kinds = {
        f"{one.key!r} ({one.command_set})" if one.command_set.is_shared else repr(one.key)
        for one in targets
    }
    return ", ".join(sorted(kinds)) or "no lock"


@contextmanager
def _told(race: Race) -> Iterator[None]:
    """Tell ``race`` what becomes of locks, of all kinds and in asyncio too."""

    def telling(tell: Callable[..., object], inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def call(one: Any, *args: Any, **kwargs: Any) -> Any:
            racer = _racer.get()
            # A thread that is inside has nothing more to tell.
            if racer is not None and racer.state is not _State.INSIDE:
                tell(racer, one)
            return inner(one, *args, **kwargs)

        return call

    with ExitStack() as patched:
        for kind, name, tell in (
            (AcquireAttempt, "__init__", race.line_up),
            (AcquireAttempt, "tell_wait", partial(race.is_kept_out, state=_State.WAITS)),
            (AcquireAttempt, "busy", partial(race.is_kept_out, state=_State.UNDER_WAY)),
            (Grant, "begin_upkeep", race.has_taken),
            (MultiAttempt, "request", lambda racer, many: setattr(racer, "many", many)),
        ):
            patched.enter_context(patch.object(kind, name, telling(tell, getattr(kind, name))))
        yield


def run(
    call: Callable[[], _Result], *, inside: str, threads: int, within: float
) -> list[_Result | LockBusy]:
    """Run the race of :meth:`LockHelpers.assert_exclusive`."""
    if threads < 2:
        raise ValueError(f"threads is {threads!r}: a race takes two at least")
    race = Race(threads, within)
    results: list[Any] = [None] * threads
    errors: list[BaseException] = []

    def start(number: int) -> None:
        racer = race.racers[number]
        _racer.set(racer)
        try:
            results[number] = call()
        except LockBusy as error:
            results[number] = error
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            race.put(racer, _State.OVER)
            connections.close_all()

    target, name = patch(inside, None).getter(), inside.rpartition(".")[2]
    with patch.object(target, name, race.watched(getattr(target, name))), _told(race):
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
    problem = _problem(race, inside, within)
    if problem:
        raise AssertionError(problem)
    return results


def _problem(race: Race, inside: str, within: float) -> str | None:
    threads = len(race.racers)
    if race.most_inside > 1:
        return (
            f"{race.most_inside} of {threads} threads were inside {inside} at the same time, and "
            f"held {race.held}"
        )
    sought = [target for one in race.racers for target in one.sought]
    others = f"; threads were kept out by {_named(sought)}" if sought else ""
    if not race.entries:
        return f"none of {threads} threads called {inside}, so nothing is proven{others}"
    if not race.is_proven:
        return (
            f"while one thread was inside {inside}, another neither came in, nor waited for a "
            f"lock that was held in there, nor ended within {within:g} s, so nothing is proven"
        )
    if not race.has_met:
        return (
            f"no thread was kept out by a lock that the one inside {inside} held, so nothing is "
            f"proven; it held {race.held}{others}"
        )
    return None
