"""The signs of life of this process: one key for each server where it holds a lock for long."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from .. import clock
from ..errors import LockUnavailable
from ..holder import process_id
from ..liveness import HEARTBEAT_AFTER, HEARTBEAT_EVERY, HEARTBEAT_LASTS
from ..protocol.commands import SETNX, PlainRequest
from ..protocol.keys import process_keys
from .requests import server_of

if TYPE_CHECKING:
    from ..connections.endpoints import Target
    from .requests import Renewable

logger = logging.getLogger("django_setnx_lock.renewal")

_AGAIN, _AGAIN_WHERE_DENIED = 1.0, 60.0
_LASTS_MS = str(round(HEARTBEAT_LASTS * 1000))

# The server, and what the keys there begin with.
_Place: TypeAlias = tuple[int, str]


class Heartbeat:
    """Says to one server that this process lives."""

    deadline = math.inf

    def __init__(self, target: Target, heartbeat_prefix: str) -> None:
        keys = process_keys(heartbeat_prefix, process_id())
        self.target = replace(target, keys=keys, key=keys.name, index=None, command_set=SETNX)
        self.key = keys.name
        # When it is sent next, and until when it is needed.
        self.due = clock.now()
        self.needed_until = -math.inf
        self._was_denied = False

    def request(self, now: float) -> PlainRequest:
        self.due = now + HEARTBEAT_EVERY
        return PlainRequest(("SET", self.target.keys.name, "1", "PX", _LASTS_MS))

    def answered(self, reply: Any, sent: float, now: float) -> None:
        """Take note of nothing: the next one is due all the same."""

    def failed(self, error: Exception, now: float) -> None:
        self.due = now + _AGAIN
        if not isinstance(error, LockUnavailable) or error.cause != "denied":
            logger.debug("this process cannot say that it lives: %s", error)
            return
        self.due = now + _AGAIN_WHERE_DENIED
        if not self._was_denied:
            self._was_denied = True
            logger.warning(
                "Redis refuses the key %r, by which this process says that it lives: operators "
                "will see the locks that it holds for long as those of a holder that is gone: %s",
                self.key,
                error,
            )


class Heartbeats:
    """The heartbeats of the locks of one watchdog, renewed or not.

    A lock that is never renewed counts until it is released or its lease is over, even if nobody
    here refers to it any more: it was left held on purpose.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        # The locks that are not renewed, and when the lease of each ends.
        self._unrenewed: dict[int, tuple[ref[Renewable], Target, float]] = {}
        # The same of those that nobody refers to, by place.
        self._left: dict[_Place, tuple[Target, float]] = {}
        self._beats: dict[_Place, Heartbeat] = {}
        self._process = process_id()
        self._looked_at = -math.inf

    @property
    def is_needed(self) -> bool:
        """Whether there are locks to see to besides those that are renewed."""
        return bool(self._unrenewed or self._left)

    def next_due(self, renewed: Sequence[Renewable]) -> float:
        """Return when the next one is due; ``inf`` for never. ``renewed``: the other locks."""
        beats = [
            beat.due for beat in list(self._beats.values()) if beat.needed_until >= self._looked_at
        ]
        unrenewed = [held for one, _, _ in list(self._unrenewed.values()) if (held := one())]
        young = [
            held.taken_at + HEARTBEAT_AFTER
            for held in (*unrenewed, *renewed)
            if self._is_seen_to(held) and _place_of(held.target) not in self._beats
        ]
        return min([*beats, *young], default=math.inf)

    def watch(self, held: Renewable) -> None:
        """See to ``held``, which is not renewed."""
        if held.target.heartbeat_prefix is not None:
            self._unrenewed[held.number] = (ref(held), held.target, held.lease.end)

    def forget(self, number: int) -> None:
        """See to that lock no longer: it is released."""
        self._unrenewed.pop(number, None)

    def due(self, now: float) -> Iterator[Heartbeat]:
        """Yield the heartbeats that are needed. Call :meth:`note` for what is renewed before."""
        if self._process != process_id():
            # The child of a fork, which holds nothing.
            self.clear()
        self._looked_at = now
        self._note_unrenewed(now)
        for place, (target, end) in list(self._left.items()):
            if now < end:
                self._note(target, place, now)
            else:
                del self._left[place]
        for place, beat in list(self._beats.items()):
            if now <= beat.needed_until:
                yield beat
            elif now > beat.due + HEARTBEAT_LASTS:
                del self._beats[place]

    def _note_unrenewed(self, now: float) -> None:
        for number, (handle, target, end) in self._unrenewed.copy().items():
            held = handle()
            if held is None:
                place = _place_of(target)
                last = self._left.get(place, (target, end))[1]
                self._left[place] = target, max(last, end)
                self.forget(number)
            elif not held.is_held:
                self.forget(number)
            else:
                self.note(held, now)
                if held.lease.end != end and number in self._unrenewed:
                    self._unrenewed[number] = handle, target, held.lease.end

    def note(self, held: Renewable, now: float) -> None:
        """Take note that ``held`` is held ``now``."""
        if now >= held.taken_at + HEARTBEAT_AFTER and self._is_seen_to(held):
            self._note(held.target, _place_of(held.target), now)

    def _is_seen_to(self, held: Renewable) -> bool:
        return held.target.heartbeat_prefix is not None and not held.is_followed

    def _note(self, target: Target, place: _Place, now: float) -> None:
        beat = self._beats.get(place)
        if beat is None:
            beat = self._beats[place] = Heartbeat(target, place[1])
        beat.needed_until = now


def _place_of(target: Target) -> _Place:
    return server_of(target.client), target.heartbeat_prefix or ""
