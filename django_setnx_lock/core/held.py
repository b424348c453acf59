"""The handle of a lock that is held."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

from . import clock, events, protocol, watchdog
from .errors import LockError, LockLost, LockUnavailable
from .grant import Grant

logger = logging.getLogger("django_setnx_lock")


class Held(Grant):
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads, but belongs to the process that took it.
    """

    def check(self) -> None:
        """Ask Redis whether the lock is still ours. One round trip.

        Raises LockLost when it is not (it tells who force-released it and why),
        LockUnavailable when Redis cannot say, LockError when it was released.
        """
        self._refuse_if_over("check")
        self._kept(self._target.call(protocol.check(self._target.keys, self._token)))

    def owned(self) -> bool:
        """Whether the lock is ours, as :meth:`check` without the exception.

        Raises LockUnavailable.
        """
        if self._released or self.lost or not self.is_here:
            return False
        try:
            self.check()
        except LockLost:
            return False
        return True

    def locked(self) -> bool:
        """Whether anybody holds the name now. Raises LockUnavailable."""
        return self._target.locked()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of the lease, or make it the lease.

        ``replace_ttl`` (default False) replaces what is left. Raises ValueError for a time
        that is no finite number above zero, LockLost, LockUnavailable, and LockError when the
        lock was released.
        """
        extra_ms = protocol.milliseconds(additional_time, "additional_time")
        self._refuse_if_over("extend")
        return self._replace(extra_ms) if replace_ttl else self._renew(extra_ms, "add")

    def reacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of lease again. Raises as :meth:`extend`.

        What is left is never cut, so that a copy of the request that arrives late cannot cut
        what :meth:`extend` added since.
        """
        self._refuse_if_over("extend")
        return self._renew(protocol.milliseconds(self.timeout, "timeout"), "least")

    def use_token(self, token: str) -> None:
        """Know that ``token`` is what stands at the name now."""
        self._token = token

    def _renew(self, lease_ms: int, how: Literal["add", "least"]) -> Literal[True]:
        sent, cuts = clock.now(), self.lease.cuts
        reply = self._kept(self._target.call(self.renewing(lease_ms, how)))
        self.lease.confirm(sent, int(reply[1]) / 1000, cuts)
        return True

    def _replace(self, lease_ms: int) -> Literal[True]:
        sent, seconds = clock.now(), lease_ms / 1000
        before = self.lease.begin_cut(sent, seconds)
        copies: list[bool] = []
        request = self.renewing(lease_ms, "replace")
        self._kept(self._target.call(request, repeated=lambda: copies.append(True)))
        self.lease.end_cut(sent, seconds, before, may_come_again=bool(copies))
        if self._upkeep.renew:
            self.lease.plan(sent)
            watchdog.WATCHDOG.hurry(self)
        return True

    def release(self) -> None:
        """Let the lock go.

        A lease that is over by the local clock is released all the same when Redis confirms
        that nobody else has had the lock. Raises LockLost when it is no longer ours, LockError
        when it was released already or belongs to another process, and LockUnavailable when
        Redis cannot be asked; after that it can be called again.
        """
        if self._released:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        self._refuse_elsewhere()
        request = self.releasing()
        if self._losses and not self._may_still_stand:
            raise self._losses[0]
        try:
            reply = self._target.call(request)
        except LockUnavailable:
            if not self._losses:
                raise
            raise self._losses[0] from None
        self.read_release(reply)

    def read_release(self, reply: Any) -> None:
        """Take note of the ``reply`` to :meth:`releasing`. Raises LockLost, LockUnavailable."""
        if isinstance(reply, LockError):
            raise reply
        head = protocol.read_handed_on(reply)
        if head:
            watchdog.owe_look(self._target, head)
        self._kept(reply)
        if self._losses:
            # Its time was over here, and the holder knew: Redis alone does not make it held.
            self._may_still_stand = False
            raise self._losses[0]
        self._released = True
        if events.RELEASED.listeners:
            events.RELEASED.tell(**self.about())

    def finish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden."""
        if self._released or not self.is_here:
            return
        try:
            self.release()
        except LockError as error:
            if body_error is None and raise_on_release_error:
                raise
            if error is body_error:
                return
            logger.warning("%s", error)
            if body_error is not None and hasattr(body_error, "add_note"):
                body_error.add_note(str(error))

    def _refuse_elsewhere(self) -> None:
        if not self.is_here:
            raise LockError(
                f"the lock {self.key!r} belongs to process {self._pid}, this one's parent",
                key=self.key,
            )

    def _refuse_if_over(self, what: str) -> None:
        if self._released:
            raise LockError(f"cannot {what} the lock {self.key!r}: it was released", key=self.key)
        self._refuse_elsewhere()
        if not self._losses and clock.now() >= self.lease.end:
            self.lose(self.ran_out())
        if self._losses:
            raise self._losses[0]

    def _kept(self, reply: Sequence[Any]) -> Sequence[Any]:
        try:
            return protocol.read_kept(reply, self.key)
        except LockLost as error:
            self._may_still_stand = False
            raise self.lose(error) from None
