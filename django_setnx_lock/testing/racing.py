"""Races a view or function in threads, and tells whether two were inside at the same time."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import wraps
from typing import Any, TypeVar
from unittest.mock import patch

from django.db import connections

from ..core import sharing
from ..core.errors import LockBusy
from ..core.grant import Grant
from ..core.many.turn import ManyTurn
from ..core.place import place_of
from ..core.shared import Shared
from ..core.target import Target
from ..core.turn import Turn

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
    many: ManyTurn | None = None
    # The last is what it waits for, while it does.
    sought: list[Target] = field(default_factory=list)

    @property
    def holds(self) -> list[Target]:
        """The locks that it took and still has."""
        some = [] if self.many is None else self.many.turns[: self.many._taken]
        return [one.target for one in some] + [
            one.target for one in self.took if sharing.handles_of(one) and not sharing.is_over(one)
        ]


# Carried over sync_to_async and async_to_sync, so also where a view runs in another thread.
_racer: ContextVar[_Racer | None] = ContextVar("setnx_lock_racer", default=None)


class Race:
    """Where each of ``count`` threads is.

    The first one asks for its lock alone, and comes in, before any other asks. Whoever comes in
    stays until each of the others has come in too, is kept out by a lock, or has ended. So it
    takes the same course at any speed.
    """

    def __init__(self, count: int, within: float) -> None:
        self.racers = [_Racer() for _ in range(count)]
        self.most_inside = 0
        self.entries = 0
        # Whether anybody was kept out by a lock that the one who was inside held.
        self.has_met = False
        self.is_proven = True
        # What those who were inside held.
        self.held = ""
        self._within = within
        self._changed = threading.Condition()

    def _in(self, *states: _State) -> list[_Racer]:
        return [one for one in self.racers if one.state in states]

    @contextmanager
    def being(self, state: _State) -> Iterator[None]:
        """The caller is in ``state`` for the time of the block."""
        racer = _racer.get()
        if racer is None:
            yield
            return
        before = racer.state
        self.put(racer, state)
        try:
            yield
        finally:
            self.put(racer, before)

    def put(self, racer: _Racer, state: _State) -> None:
        """Have ``racer`` be in ``state`` from now on."""
        with self._changed:
            racer.state = state
            inside = self._in(_State.INSIDE)
            if len(inside) > self.most_inside:
                self.most_inside = len(inside)
                self.held = _named(_held_by(inside))
            self._changed.notify_all()

    def line_up(self, *_: object) -> None:
        """The caller is about to ask for a lock: if it is the first, return when it may."""
        racer = _racer.get()
        if racer is None or racer.has_asked or racer.state is _State.INSIDE:
            return
        racer.has_asked = True
        with self._changed, self.being(_State.ABOUT_TO_ASK):
            self._changed.wait_for(lambda: self._may_ask(racer), timeout=self._within)

    def _may_ask(self, racer: _Racer) -> bool:
        if self._in(_State.INSIDE):
            return True
        return not self._in(_State.UNDER_WAY) and self._in(_State.ABOUT_TO_ASK)[0] is racer

    def waits(self, turn: Turn) -> None:
        """The caller begins to wait for the lock of ``turn``."""
        self._sought(turn, _State.WAITS)

    def is_refused(self, turn: Turn) -> None:
        """The caller does not get the lock of ``turn``."""
        self._sought(turn, _State.UNDER_WAY)

    def _sought(self, turn: Turn, state: _State) -> None:
        racer = _racer.get()
        if racer is not None and racer.state is not _State.INSIDE:
            with self._changed:
                racer.sought.append(turn.target)
                self.put(racer, state)

    def has_taken(self, grant: Grant) -> None:
        """The caller has taken ``grant``."""
        racer = _racer.get()
        if racer is not None and racer.state is not _State.INSIDE:
            racer.took.append(grant)
            racer.many = None
            self.put(racer, _State.UNDER_WAY)

    def asks_for(self, many: ManyTurn) -> None:
        """The caller asks for several locks."""
        racer = _racer.get()
        if racer is not None and racer.state is not _State.INSIDE:
            racer.many = many

    def look_round(self) -> None:
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


def _held_by(racers: Iterable[_Racer]) -> list[Target]:
    return [target for one in racers for target in one.holds]


def _keep_out(held: Iterable[Target], asked: Target) -> bool:
    """Whether the locks ``held`` alone keep out who asks for ``asked``."""
    place, name = place_of(asked.client), asked.keys.name
    same = [one for one in held if one.keys.name == name and place_of(one.client) == place]
    if not isinstance(asked.dialect, Shared) or any(not _is_shared(one) for one in same):
        return bool(same)
    return asked.dialect.limit is not None and len(same) >= asked.dialect.limit


def _is_shared(target: Target) -> bool:
    return target.dialect.is_shared()


def _named(targets: Iterable[Target]) -> str:
    """The locks, for people."""
    kinds = {
        f"{one.key!r} ({one.dialect})" if _is_shared(one) else repr(one.key) for one in targets
    }
    return ", ".join(sorted(kinds)) or "no lock"


def _telling(tell: Callable[[Any], object], inner: Callable[..., Any]) -> Callable[..., Any]:
    """``inner``, a method, before which ``tell`` is told of its object."""

    @wraps(inner)
    def call(one: Any, *args: Any, **kwargs: Any) -> Any:
        tell(one)
        return inner(one, *args, **kwargs)

    return call


@contextmanager
def _told(race: Race) -> Iterator[None]:
    """Have ``race`` told what becomes of locks, of all kinds and in asyncio too."""
    with ExitStack() as patched:
        for kind, name, tell in (
            (Turn, "__init__", race.line_up),
            (Turn, "tell_wait", race.waits),
            (Turn, "busy", race.is_refused),
            (Grant, "begin_upkeep", race.has_taken),
            (ManyTurn, "request", race.asks_for),
        ):
            patched.enter_context(patch.object(kind, name, _telling(tell, getattr(kind, name))))
        yield


def run(
    call: Callable[[], _Result], *, inside: str, threads: int, within: float
) -> list[_Result | LockBusy]:
    """See :meth:`LockHelpers.assert_exclusive`."""
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
