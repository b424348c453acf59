"""The handles that were taken through one lock object."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from .held import Held


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.held: list[Held] = []
        self.entered: list[tuple[int, Held]] = []


class Shelf:
    """Keeps the handles of each thread apart, or with ``thread_local`` False all together."""

    def __init__(self, *, thread_local: bool) -> None:
        self._mine: Any = _PerThread() if thread_local else SimpleNamespace(held=[], entered=[])

    def put(self, held: Held) -> None:
        """Keep ``held``; those that are over are thrown away."""
        for earlier in list(self._mine.held):
            if earlier.released or earlier.lost:
                self.drop(earlier)
        self._mine.held.append(held)

    def drop(self, held: Held) -> None:
        """Keep ``held`` no longer."""
        # Another thread may have dropped it meanwhile.
        with suppress(ValueError):
            self._mine.held.remove(held)

    @property
    def last(self) -> Held | None:
        """What was put here last and is still held by this process, or None."""
        mine = [held for held in self._mine.held if held.is_here and not held.released]
        return mine[-1] if mine else None

    def enter(self, held: Held) -> None:
        """Keep ``held`` for the block that this thread enters."""
        self.put(held)
        self._mine.entered.append((threading.get_ident(), held))

    @property
    def innermost(self) -> Held | None:
        """The handle of the block this thread entered last, else of any; or None."""
        entered: list[tuple[int, Held]] = list(self._mine.entered)
        own = [entry for entry in entered if entry[0] == threading.get_ident()]
        return (own or entered)[-1][1] if entered else None

    def leave(self, held: Held) -> None:
        """Keep ``held`` no longer, nor for the block that it was entered with."""
        entered: list[tuple[int, Held]] = self._mine.entered
        for entry in [entry for entry in entered if entry[1] is held]:
            with suppress(ValueError):
                entered.remove(entry)
        self.drop(held)
