"""The handle of several locks that are held together, and what is called when one is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal
from weakref import WeakSet

from .. import clock, protocol, sharing
from ..batch import ask_each, release_each
from ..errors import LockError, LockLost
from ..held import Held
from ..lease import Upkeep
from .async_held import AsyncMultiHeld
from .handle import raise_first


class MultiHeld(AsyncMultiHeld):
    """Several locks that are held together; what ``with lock("a", "b") as held`` gives.

    ``held["a"]`` is the handle of one of them. It may be passed to other threads and tasks, but
    belongs to the process that took it. On one server, each method is one round trip for all.
    """

    def check(self) -> None:
        """Ask Redis whether all the locks are still ours.

        Raises LockLost when one is not (``key`` names it), LockUnavailable when Redis cannot say,
        LockError when one was released.
        """
        self.read_kept(self._ask(self.to_check()))

    def owned(self) -> bool:
        """Whether all are ours, as :meth:`check` without the exception. Raises LockUnavailable."""
        if self.lost or not self.is_here or any(held.released for held in self.parts):
            return False
        try:
            self.check()
        except LockLost:
            return False
        return True

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of each lease, or make it the lease.

        ``replace_ttl`` (default False) replaces what is left, by one request for each lock. Raises
        as :meth:`Held.extend`, having extended those that can be.
        """
        extra_ms = protocol.milliseconds(additional_time, "additional_time")
        if not replace_ttl:
            return self._renew(extra_ms)
        self.to_renew(extra_ms)
        errors: list[LockError] = []
        for held in self.parts:
            try:
                held.extend(additional_time, replace_ttl=True)
            except LockError as error:
                errors.append(error)
        raise_first(errors)
        return True

    def reacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of each lease again. Raises as :meth:`extend`."""
        return self._renew(None)

    def _renew(self, additional_ms: int | None) -> Literal[True]:
        sent, renewing = clock.now(), self.to_renew(additional_ms)
        self.read_renewed(renewing, self._ask([one.request for one in renewing]), sent)
        return True

    def _ask(self, requests: Sequence[protocol.Request]) -> list[Any]:
        targets = [held.target for held in self.parts]
        targets[0].may_block()
        return ask_each(targets, requests)

    def release(self) -> None:
        """Let all the locks go, also when one of them cannot be.

        Raises what :meth:`Held.release` raises for that one: LockLost if any was lost. After
        LockUnavailable it can be called again.
        """
        parts = self.to_release()
        parts[0].target.may_block()
        raise_first(release_each(parts))

    def finish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden."""
        try:
            if not self.is_let_go and self.is_here:
                self.release()
        except LockError as error:
            self.parts[0].tell_at_end(error, body_error, to_raise=raise_on_release_error)
        except BaseException:
            # As in Held.finish().
            with suppress(LockError):
                if not self.is_let_go:
                    self.release()
            raise

    def give_back(self) -> None:
        """Let go of all that was taken when nobody will be told of it. Raises no LockError."""
        self.forgo_min_hold()
        with suppress(LockError):
            release_each(self.parts, now=True)

    def count_out(self) -> None:
        """Have no share of a lock count any more that could not be released."""
        for held in self.parts:
            if not held.is_let_go:
                sharing.leave(held)


class LossRelay:
    """Calls ``on_lost`` with the handle of all the locks, once, when the first of them is lost.

    In the place of the ``on_lost`` of each of them. Raises TypeError as :class:`Upkeep`.
    """

    def __init__(self, on_lost: Callable[[MultiHeld], object]) -> None:
        Upkeep(on_lost=on_lost)
        self._on_lost = on_lost
        self._untold: WeakSet[MultiHeld] = WeakSet()

    def watch(self, held: MultiHeld) -> None:
        """Tell of ``held`` if it is lost from now on."""
        self._untold.add(held)

    def __call__(self, lost: Held) -> None:
        for held in list(self._untold):
            if any(part is lost for part in held.parts):
                try:
                    self._untold.remove(held)
                except KeyError:
                    # Another thread tells of it.
                    continue
                self._on_lost(held)
