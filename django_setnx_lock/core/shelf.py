"""The handles that were taken through one lock object."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import flow
from .errors import LockError
from .held import Held

if TYPE_CHECKING:
    from .aio.block import Block

_CORE = f"{__name__.rpartition('.')[0]}."


class Entered(NamedTuple):
    """A block that was entered: by whom and in which frame, and what cancels it if a task did."""

    by: flow.Flow
    held: Held
    block: Block | None
    frame: FrameType


class Shelf:
    """Keeps the handles of each flow apart, or with ``thread_local`` False together."""

    def __init__(self, *, thread_local: bool) -> None:
        self._is_together = not thread_local
        # None: nobody's, as what was taken by a task that did nothing else.
        self._held: list[tuple[flow.Flow | None, Held]] = []
        self._entered: list[Entered] = []

    def put(self, held: Held) -> None:
        """Keep ``held``; those that are over are thrown away."""
        here = flow.current()
        self._put(None if here.is_over else here, held)

    def _put(self, by: flow.Flow | None, held: Held) -> None:
        for one in self._held[:]:
            if one[1].is_let_go or one[1].lost:
                _remove(self._held, one)
        self._held.append((by, held))

    def drop(self, held: Held) -> None:
        """Keep ``held`` no longer."""
        for one in self._held[:]:
            if one[1] is held:
                _remove(self._held, one)

    @property
    def last(self) -> Held | None:
        """What was put here last and is still held by this process, or None.

        What is nobody's is anybody's where there is no other.
        """
        if not self._held:
            return None
        kept = [one for one in self._held[:] if one[1].is_here and not one[1].is_let_go]
        if not self._is_together:
            here = flow.current()
            mine = [one for one in kept if one[0] is here]
            nobodys = [one for one in kept if one[0] is None]
            kept = mine or (nobodys if len(nobodys) == 1 else [])
        return kept[-1][1] if kept else None

    def enter(self, held: Held, block: Block | None = None) -> None:
        """Keep ``held`` for the block that the caller of the caller enters."""
        here = flow.current()
        self._put(here, held)
        self._entered.append(Entered(here, held, block, sys._getframe(2)))

    @property
    def innermost(self) -> Entered | None:
        """The block that is being left, or None if none was entered.

        That is the one entered last in the frame that leaves it; else, where a helper such as an
        ExitStack does, by the same thread or task; else the only one whose thread or task has
        ended: a generator may be closed by another one. Raises LockError if it is none of these.
        """
        entered = self._entered[:]
        if not entered:
            return None
        frame = _leaving()
        mine = [one for one in entered if one.frame is frame]
        if not mine:
            here = flow.current()
            mine = [one for one in entered if one.by is here]
        if not mine:
            mine = [one for one in entered if one.by.is_over]
            if len(mine) != 1:
                key = entered[-1].held.key
                raise LockError(
                    f"it cannot be told which block of the lock {key!r} is being left here: it was "
                    "entered by another thread or task; leave it where it was entered, or use a "
                    "lock object of its own for each block",
                    key=key,
                )
        return mine[-1]

    def leave(self, held: Held) -> None:
        """Keep ``held`` no longer, nor for the block that it was entered with."""
        for entry in self._entered[:]:
            if entry.held is held:
                _remove(self._entered, entry)
        self.drop(held)


def _leaving() -> FrameType | None:
    """The frame of the caller of this package's methods."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_CORE):
        frame = frame.f_back
    return frame


def _remove(kept: list[Any], one: object) -> None:
    try:
        kept.remove(one)
    except ValueError:
        # By another thread, meanwhile.
        return
