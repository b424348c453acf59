"""The handle of a lock that is held."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import clock, protocol
from .aio.held import AsyncHeld
from .errors import LockError, LockLost, LockUnavailable

if TYPE_CHECKING:
    from typing_extensions import Self


class Held(AsyncHeld):
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads and tasks, but belongs to the process that took it.
    """

    def check(self) -> None:
        """Ask Redis whether the lock is still ours. One round trip.

        Raises LockLost when it is not (it tells who force-released it and why),
        LockUnavailable when Redis cannot say, LockError when it was released.
        """
        self.refuse_if_over("check")
        self._kept(self._call(self.checking()))

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
        self._target.may_block()
        self.refuse_if_over("extend")
        self.refuse_if_followed()
        return self._replace(extra_ms) if replace_ttl else self._renew(extra_ms, "add")

    def reacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of lease again. Raises as :meth:`extend`.

        What is left is never cut, so that a copy of the request that arrives late cannot cut
        what :meth:`extend` added since.
        """
        self.refuse_if_over("extend")
        return self._renew(protocol.milliseconds(self.timeout, "timeout"), "least")

    def _renew(self, lease_ms: int, how: Literal["add", "least"]) -> Literal[True]:
        sent, cuts = clock.now(), self.lease.cuts
        reply = self._kept(self._call(self.renewing(lease_ms, how)))
        self.lease.confirm(sent, int(reply[1]) / 1000, cuts)
        return True

    def _replace(self, lease_ms: int) -> Literal[True]:
        sent, seconds = clock.now(), lease_ms / 1000
        before = self.lease.begin_cut(sent, seconds)
        copies: list[bool] = []
        request = self.renewing(lease_ms, "replace")
        self._kept(self._call(request, repeated=lambda: copies.append(True)))
        self.has_replaced(sent, seconds, before, may_come_again=bool(copies))
        return True

    def give_away(self, within: float | None = None) -> str:
        """Leave the lock held, for another process to take over with :meth:`RedisLock.adopt`.

        Gives the ticket to send there, which holds the token: whoever has it can take the lock.
        Nobody here holds the lock from then on, by this handle or another: it is neither renewed
        nor released. ``within``: the seconds in which it is to be taken over, after which it is
        free (default: ``timeout``); a lease that is longer is not cut. One round trip.

        Raises ValueError for a ``within`` that is no finite number above zero, LockLost,
        LockUnavailable (then it is held as before), LockError when it was released or belongs to
        another process, and LockUnsupported when it is held with others or on several masters.
        """
        request = self.giving_away(within)
        self._kept(self._call(request))
        return self.gave_away()

    def __enter__(self) -> Self:
        """Hold it for a block, at whose end it is let go."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish(exc_value)

    def release(self) -> None:
        """Let the lock go, or if this is a share of it or shared, count it out.

        Where the lock has an ``ending`` it may put that off: it is held then until that lets it go.
        A lease that is over by the local clock is released all the same when Redis confirms
        that nobody else has had the lock. Raises LockLost when it is no longer ours, LockError
        when it was released already or belongs to another process, and LockUnavailable when
        Redis cannot be asked; after that it can be called again.
        """
        self._target.may_block()
        if not self.puts_off():
            self.release_now()

    def release_now(self) -> None:
        """As :meth:`release`, whatever would put it off."""
        request = self.to_release()
        if request is None:
            return
        try:
            reply = self._call(request)
        except LockUnavailable as error:
            raise self.not_released(error) from error.__cause__
        self.read_release(reply)

    def finish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden.

        When it is interrupted, as by Ctrl-C, it releases all the same before it raises that.
        """
        try:
            if not self.is_let_go and self.is_here:
                self.release()
        except LockError as error:
            self.tell_at_end(error, body_error, to_raise=raise_on_release_error)
        except BaseException:
            # Whatever Redis has heard of: releasing twice is as good as once.
            with suppress(LockError):
                if not self.is_let_go:
                    self.release()
            raise

    def _call(self, request: protocol.Request, **options: Any) -> Any:
        return self._target.call(request, within=self.answer_within, **options)
