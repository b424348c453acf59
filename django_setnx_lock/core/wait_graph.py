"""Draw who waits for whom, as trees: a lock stands under the one that its holder waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .inspection import AwaitedLock, Inspector, LockInfo, ShareInfo

#: At how many locks it looks, if nothing else is asked for; that takes some 100 ms.
LIMIT = 1000
#: How many of those who wait for a lock it names.
NAMED = 3
# How many locks more it looks at that were not among the first, but are waited for.
_MORE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingHolder:
    """One who holds the lock ``holds`` and waits for another: ``waits_for``."""

    holds: LockInfo
    by: LockInfo | ShareInfo
    waits_for: AwaitedLock


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One line of a drawing: a ``lock``, and who of its holders waits for the line it stands under.

    ``depth``: 0 for what blocks the others. ``behind``: how many callers wait for it, and for what
    those hold who wait for it, and so on. ``is_repeated``: whether it was drawn before, with what
    is behind it; ``is_circle``: whether it waits for itself, which is a deadlock.
    """

    lock: LockInfo
    depth: int
    behind: int
    waiters: Sequence[WaitingHolder] = ()
    is_repeated: bool = False
    is_circle: bool = False

    @property
    def waited(self) -> float | None:
        """For how many seconds the first of its holders has waited; None if not known."""
        return max(
            (one.waits_for.waited for one in self.waiters if one.waits_for.waited is not None),
            default=None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitGraph:
    """The locks that are waited for, by name, and who of their holders waits for another.

    ``looked_at``: at how many locks it was looked. ``is_cut``: whether there are others. ``as_of``:
    when it was, as a Unix time by the clock of the server; None if there are no locks.
    """

    locks: Mapping[str, LockInfo]
    waits: Sequence[WaitingHolder]
    looked_at: int
    is_cut: bool
    as_of: float | None

    def drawing(self) -> Iterator[Link]:
        """Yield the lines of a drawing, each before those whose holders wait for its lock.

        Those that wait for nothing come first, and of these the one that most wait behind.
        """
        under: dict[str, dict[str, list[WaitingHolder]]] = {}
        for one in self.waits:
            under.setdefault(one.waits_for.name, {}).setdefault(one.holds.name, []).append(one)
        behind = {name: self._behind(name, under) for name in self.locks}
        blocked = {one.holds.name for one in self.waits}

        def worst_first(names: Iterator[str]) -> list[str]:
            return sorted(names, key=lambda name: (-behind[name], self.locks[name].key))

        drawn: set[str] = set()
        # What is left after that waits in a circle.
        for name in [
            *worst_first(name for name in self.locks if name not in blocked),
            *worst_first(iter(blocked)),
        ]:
            if name in drawn:
                continue
            way: list[str] = []
            to_draw: list[tuple[str, int, Sequence[WaitingHolder]]] = [(name, 0, ())]
            while to_draw:
                at, depth, waiters = to_draw.pop()
                del way[depth:]
                is_circle, is_repeated = at in way, at in drawn
                yield Link(
                    lock=self.locks[at],
                    depth=depth,
                    behind=behind[at],
                    waiters=waiters,
                    is_repeated=is_repeated,
                    is_circle=is_circle,
                )
                way.append(at)
                if not is_repeated:
                    drawn.add(at)
                    held = under.get(at, {})
                    to_draw += [
                        (one, depth + 1, held[one]) for one in reversed(worst_first(iter(held)))
                    ]

    def _behind(self, name: str, under: Mapping[str, Mapping[str, object]]) -> int:
        found, to_see = {name}, [name]
        while to_see:
            new = [one for one in under.get(to_see.pop(), ()) if one not in found]
            found.update(new)
            to_see += new
        return sum(self.locks[one].waiting for one in found)


def wait_graph(look: Inspector, *, limit: int = LIMIT, search: str = "") -> WaitGraph:
    """Return who waits for whom among ``limit`` of the held locks, and those they wait for.

    ``search``: only begin with locks with that in their keys. What a holder waits for is known
    once it has waited for ``DEADLOCK_TIMEOUT``. Raises LockUnavailable.
    """
    seen = look.sample(limit, search=search, waiters=NAMED)
    looked_at = list(seen.locks)
    known = {one.name: one for one in looked_at}
    new: Sequence[LockInfo] = looked_at
    while new:
        names = {wait.waits_for.name for one in new for wait in _waits_of(one)} - known.keys()
        room = limit + _MORE - len(known)
        new = look.get_each(sorted(names)[:room], waiters=NAMED) if room > 0 else ()
        known |= {one.name: one for one in new}
    waits = [
        one for lock in known.values() for one in _waits_of(lock) if one.waits_for.name in known
    ]
    parts = {name for one in waits for name in (one.holds.name, one.waits_for.name)}
    return WaitGraph(
        locks={name: one for name, one in known.items() if one.waiting or name in parts},
        waits=waits,
        looked_at=len(known),
        is_cut=seen.is_cut,
        as_of=max((one.as_of for one in known.values()), default=None),
    )


def _waits_of(lock: LockInfo) -> Iterator[WaitingHolder]:
    """Yield those of the holders of ``lock`` who wait for a lock."""
    holders: Sequence[LockInfo | ShareInfo] = lock.shares or [lock]
    for one in holders:
        if one.waits_for is not None:
            yield WaitingHolder(holds=lock, by=one, waits_for=one.waits_for)
