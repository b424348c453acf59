"""Notable ends, for the history that operators read: of holds, and of waits that were in vain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import clock, events
from ..errors import LockBusy
from ..holder import Holder

if TYPE_CHECKING:
    from ..errors import LockError
    from ..options import Target
    from .grant import Grant


def note_wait(
    target: Target, grants: Iterable[Grant], waited: float, error: BaseException | None
) -> None:
    """Note that a caller waited so many seconds, for ``grants`` or in vain, if that is long."""
    if waited < events.LONG_WAIT or not events.ENDED.listeners:
        return
    for grant in grants:
        # Told when that ends.
        vars(grant)["waited"] = waited
    if isinstance(error, LockBusy):
        record = "" if error.holder is None else error.holder.to_json()
        _tell(target, record, error, held_for=None, waited=waited, fence=None)


def note_end(grant: Grant, error: LockError | None = None) -> None:
    """Note the end of a hold, if it was long, or came after a long wait, or by a loss."""
    held_for, waited = clock.now() - grant.sent, vars(grant).get("waited")
    is_notable = held_for >= events.LONG_HOLD or waited is not None or error is not None
    if is_notable and events.ENDED.listeners:
        record = Holder.here(*grant.target.options.about).to_json()
        _tell(grant.target, record, error, held_for=held_for, waited=waited, fence=grant.fence)


def _tell(target: Target, record: str, error: LockError | None, **about: Any) -> None:
    events.ENDED.tell(target=target, record=record, error=error, **about)
