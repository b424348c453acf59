"""A lock on a Redis Cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from .. import protocol
from ..calling import Undo, call
from ..errors import LockUnavailable
from ..target import Target
from .routes import is_moving, routes_of
from .routing import told_by
from .shared import is_cluster

# Who waits asks again so often, in seconds: the node that he listens at may be gone, unheard.
LONGEST_SLEEP = 5.0
# For how long a slot that moves is waited for: by a caller that asks again anyway, and by others.
_MEANWHILE, _AT_ONCE = 0.1, 1.0


@dataclass(slots=True)
class ClusterTarget(Target):
    """One whose keys are at one node at a time, which changes. It is in no index."""

    def __post_init__(self) -> None:
        # Its key would be in another slot.
        self.index = None

    def ask(
        self,
        request: protocol.Request,
        *,
        waits: bool,
        within: float | None = None,
        undo: Undo | None = None,
    ) -> Any:
        """As in :class:`Target`. Who waits is told to ask again while the slot moves."""
        patience = self.patience(waits=waits)
        try:
            return call(self.client, request, self.key, patience=patience, within=within, undo=undo)
        except LockUnavailable as error:
            return self.instead(error, waits=waits)

    def patience(self, *, waits: bool) -> float | None:
        """As in :class:`Target`."""
        return _MEANWHILE if waits else _AT_ONCE

    def instead(self, error: LockUnavailable, *, waits: bool) -> Any:
        """As in :class:`Target`."""
        if not waits or not is_moving(told_by(error)):
            raise error
        return ("BUSY", "100", "foreign")

    def home(self) -> Any:
        """The client of the node to listen at. Raises what redis-py raises."""
        return routes_of(self.client).home(self.keys.name)

    def route(self) -> Any:
        """What renewals are to be sent to."""
        return routes_of(self.client).home_or_any(self.keys.name)

    def longest_sleep(self, seconds: float) -> float:
        """As in :class:`Target`."""
        return min(seconds, LONGEST_SLEEP)

    def learn(self, error: Exception) -> None:
        """As in :class:`Target`."""
        routes_of(self.client).learn(told_by(error), waits=False)

    def moved(self, error: LockUnavailable) -> float | None:
        """As in :class:`Target`."""
        self.learn(error)
        if not is_moving(told_by(error)):
            return None
        return _MEANWHILE / 5 * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load

    def alone(self, token: str, lease_ms: int, error: Exception | None) -> protocol.Request | None:
        """As in :class:`Target`: what needs one key is served while the slot moves."""
        moves = isinstance(error, LockUnavailable) and error.cause == "moving"
        if not moves or self.dialect is not protocol:
            return None
        return protocol.renew_alone(self.keys, token, lease_ms)


def kind_of(client: Any) -> type[Target]:
    """What a lock of ``client`` is asked for by."""
    return ClusterTarget if is_cluster(client) else Target
