"""The handle of a lock that is held."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Literal

from . import clock, protocol
from .errors import LockError, LockLost
from .target import Target

logger = logging.getLogger("django_setnx_lock")


class Held:
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads, but belongs to the process that took it. The lease is
    counted on a local clock from before the request for it was sent, so it ends here before
    it ends in Redis.
    """

    def __init__(
        self, target: Target, *, token: str, fence: int, timeout: float, deadline: float
    ) -> None:
        self._target = target
        self._token = token
        self._fence = fence
        self._timeout = timeout
        self._deadline = deadline
        self._pid = os.getpid()
        self._released = False
        self._loss: LockLost | None = None

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} fence={self._fence} {state}>"

    @property
    def key(self) -> str:
        """The key as the caller wrote it."""
        return self._target.key

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self._target.keys.name

    @property
    def client(self) -> Any:
        """The redis-py client it was taken with."""
        return self._target.client

    @property
    def token(self) -> str:
        """The secret value at the name in Redis. Whoever knows it can release the lock."""
        return self._token

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier holder of this name."""
        return self._fence

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return self._timeout

    @property
    def released(self) -> bool:
        """Whether it was let go by :meth:`release`."""
        return self._released

    @property
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""
        return not self._released and (self._loss is not None or clock.now() >= self._deadline)

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self._released or self.lost or not self.is_here:
            return 0.0
        return max(self._deadline - clock.now(), 0.0)

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
        sent = clock.now()
        if replace_ttl:
            # Redis may shorten the lease although its answer does not arrive.
            self._deadline = min(self._deadline, sent + extra_ms / 1000)
        return self._renew(extra_ms, "replace" if replace_ttl else "add", sent)

    def reacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of lease again. Raises as :meth:`extend`.

        What is left is never cut, so that a copy of the request that arrives late cannot cut
        what :meth:`extend` added since.
        """
        self._refuse_if_over("extend")
        return self._renew(protocol.milliseconds(self._timeout, "timeout"), "least", clock.now())

    def use_token(self, token: str) -> None:
        """Know that ``token`` is what stands at the name now."""
        self._token = token

    def _renew(
        self, lease_ms: int, how: Literal["replace", "add", "least"], sent: float
    ) -> Literal[True]:
        target = self._target
        request = protocol.renew(target.keys, target.index, self._token, lease_ms, how)
        reply = self._kept(target.call(request))
        self._deadline = sent + int(reply[1]) / 1000
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
        if self._loss:
            raise self._loss
        self.read_release(self._target.call(self.releasing()))

    def releasing(self) -> protocol.Request:
        """The request that lets the lock go."""
        return protocol.release(self._target.keys, self._target.index, self._token)

    def read_release(self, reply: Any) -> None:
        """Take note of the ``reply`` to :meth:`releasing`. Raises LockLost, LockUnavailable."""
        if isinstance(reply, LockError):
            raise reply
        self._kept(reply)
        self._released = True

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self._pid == os.getpid()

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
        if self._loss is None and clock.now() >= self._deadline:
            self._loss = LockLost(f"the lease of the lock {self.key!r} ran out", key=self.key)
        if self._loss:
            raise self._loss

    def _kept(self, reply: Sequence[Any]) -> Sequence[Any]:
        try:
            return protocol.read_kept(reply, self.key)
        except LockLost as error:
            self._loss = error
            raise
