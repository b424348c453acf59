"""Who shares one lock that this process holds."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING
from weakref import ref

from . import clock

if TYPE_CHECKING:
    from .flow import Flow, Spot
    from .grant import Grant

# Whether a share is the last, or another can still be had, is decided by one thread at a time.
# Reentrant, for handlers of signals.
_deciding = threading.RLock()


class Sharing:
    """The handles of one lock: ``root``, which took it, and the shares that its flow got since.

    Nothing here keeps a handle alive: one that nobody can release counts no longer.
    """

    __slots__ = ("__weakref__", "_handles", "flow", "is_closed", "is_reentrant", "root", "spot")

    def __init__(self, root: Grant, flow: Flow, spot: Spot, *, is_reentrant: bool) -> None:
        self.root = ref(root)
        self.flow = flow
        self.spot = spot
        self.is_reentrant = is_reentrant
        self.is_closed = False
        # None until it is shared.
        self._handles: dict[int, ref[Grant]] | None = None

    def open_handles(self) -> list[Grant]:
        """Those that were not released."""
        handles = [self.root] if self._handles is None else list(self._handles.values())
        found = (handle() for handle in handles)
        return [one for one in found if one is not None and not one.released]

    def join(self, share: Grant, root: Grant) -> bool:
        """Count ``share`` in, unless the lock is being let go."""
        with _deciding:
            if self.is_closed:
                return False
            if self._handles is None:
                self._handles = {root.number: self.root}
            self._handles[share.number] = ref(share)
            if share.wants_renewal or root.is_followed:
                root.begin_renewal()
            return True

    def withdraw(self, handle: Grant) -> None:
        """Count ``handle`` out, as if it had never been there."""
        if self._handles is not None:
            self._handles.pop(handle.number, None)

    def leave(self, handle: Grant) -> bool:
        """Count ``handle`` out. Gives whether the lock is to be let go.

        It is when no other is left, and when its time is over: then nobody may rely on it.
        If not, it is renewed as long as one of the others wants it to be.
        """
        with _deciding:
            self.withdraw(handle)
            root = handle.root
            others = [one for one in self.open_handles() if one is not handle]
            # What is followed is let go by whose it is.
            if root.is_followed and others == [root]:
                self.close()
                root.end_renewal()
            if root.is_followed:
                return False
            if others and not is_over(handle):
                if not any(one.wants_renewal for one in others):
                    root.end_renewal()
                return False
            self.close()
            return True

    def close(self) -> None:
        """Let nobody have it again."""
        with _deciding:
            self.is_closed = True
            if self.flow.holds.get(self.spot) is self:
                del self.flow.holds[self.spot]


def is_over(grant: Grant) -> bool:
    """Whether the lock is lost or its lease over, whoever has been told."""
    return grant.is_known_lost or clock.now() >= grant.lease.end


def _after_fork_in_child() -> None:
    global _deciding
    _deciding = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
