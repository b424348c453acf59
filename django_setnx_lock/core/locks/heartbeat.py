"""The sign of life of this process at one server: a short-lived key, however many locks it holds.

A lock whose process no longer says that it lives is shown as one whose holder is gone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LockUnavailable
from ..process import here, holder_here
from ..protocol.replies import Reply
from ..protocol.requests import Command, Request

if TYPE_CHECKING:
    from ..options import Target
    from .grant import Grant

logger = logging.getLogger("django_setnx_lock.renewal")

# It says so while it holds a lock for so many seconds: short holds cost nothing.
AFTER = 3.0
# Two may be missed.
EVERY, LASTS = 5.0, 15.0


def process_key(index: str, process: str) -> str:
    """Return the key by which ``process`` says that it lives; ``index``: where locks are listed."""
    return f"{index.removesuffix('index')}process:{process}"


class Heartbeat:
    """Says that this process lives while it holds a lock that is listed, renewed or not."""

    def __init__(self) -> None:
        self._due = -math.inf
        # By index, until when a lock may last that was left held on purpose, and its client, so
        # that its session lives as long.
        self._left: dict[str, tuple[float, Any]] = {}
        self._was_denied = False

    @property
    def until(self) -> float:
        """Until when it goes on, though nothing is held that anybody refers to."""
        return max([until for until, _ in self._left.values()], default=-math.inf)

    def leave(self, target: Target, now: float) -> None:
        """Nobody refers to a lock of ``target`` any more: go on for a lease if that is meant."""
        for index in () if target.options.renew else target.keys[2:]:
            last, _ = self._left.get(index, (now, None))
            self._left[index] = max(last, now + target.options.lease), target.client

    def next_due(self, grants: Iterable[Grant]) -> float:
        """Return when it is sent next while ``grants`` are held; ``inf`` for never."""
        old_at = [one.sent + AFTER for one in grants if len(one.target.keys) > 2]
        return max(self._due, min(old_at, default=-math.inf if self._left else math.inf))

    def due(self, grants: Iterable[Grant], now: float) -> list[tuple[Request, str]]:
        """Return what is to be sent ``now`` while ``grants`` are held, beside what it is called."""
        if now < self._due:
            return []
        old = [one.target.keys[2:] for one in grants if now >= one.sent + AFTER]
        self._left = {index: one for index, one in self._left.items() if now < one[0]}
        indexes = {index for some in old for index in some} | self._left.keys()
        if indexes:
            self._due = now + EVERY
        keys, lasts = [process_key(one, here().name) for one in indexes], str(round(LASTS * 1000))
        who = str(holder_here())
        return [(Command.of("SET", key, who, "PX", lasts, keys=(key,)), key) for key in keys]

    def read(self, answers: Sequence[Reply | LockUnavailable]) -> None:
        """Warn once where Redis refuses it: operators take the holder for dead then."""
        for one in answers:
            is_denied = isinstance(one, LockUnavailable) and one.cause == "denied"
            if is_denied and not self._was_denied:
                self._was_denied = True
                logger.warning(
                    "Redis refuses the key by which this process says that it lives: operators "
                    "will see the locks that it holds for long as those of a holder that is gone: "
                    "%s",
                    one,
                )
