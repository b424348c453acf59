"""The rules of a lock that is held: what may be asked for it, and what an answer means."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from . import clock, events, protocol, reentrancy, sharing, tickets
from .errors import LockError, LockLost, LockUnavailable
from .grant import Grant
from .waiting import ANSWER_WITHIN

logger = logging.getLogger("django_setnx_lock.lock")


class Handle(Grant):
    """A grant and the rules for using it. Asks nobody: see :class:`Held`.

    ``began_release``: whether it was ever asked for the release.
    """

    began_release = False
    # Whether what is on its way lets readers in, and nothing go.
    _lets_in = False

    @property
    def answer_within(self) -> float:
        """The seconds in which Redis has to answer what is asked about it: while it is ours."""
        return max(self.lease.end - clock.now(), ANSWER_WITHIN)

    def use_token(self, token: str) -> None:
        """Know that ``token`` is what stands at the name now."""
        self._token = token

    def puts_off(self) -> bool:
        """Whether the release is to come later: somebody else has been asked to see to it.

        Raises LockError when he has been already. What is lost is not put off.
        """
        if self.is_put_off:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        upkeep = self._upkeep
        if upkeep.ending is None or self._released or not self.is_here or sharing.is_over(self):
            return False
        if not upkeep.ending.puts_off(self):  # type: ignore[arg-type]  # every Handle is a Held
            return False
        if not self.root.is_noted:
            reentrancy.note(self.root)
        self.began_release = self.is_put_off = True
        return True

    def to_release(self) -> protocol.Request | None:
        """The request that lets the lock go; None where others share it, and nothing is to be sent.

        Raises LockError when that cannot be asked for.
        """
        self.began_release = True
        if self._released:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        self._refuse_elsewhere()
        if not sharing.leave(self):
            if self._losses:
                raise self._losses[0].again()
            if self._only_readers_are_left():
                self._lets_in = True
                return self.root.letting_readers_in()
            self._released = True
            return None
        self._lets_in = False
        request = self.releasing()
        if self._losses and not self._may_still_stand:
            raise self._losses[0].again()
        return request

    def _only_readers_are_left(self) -> bool:
        """Whether the last who wanted the lock alone lets go, and others of its flow still read."""
        root = self.root
        if self.reads_only or root.is_followed or root.target.dialect is not protocol:
            return self._lets_in
        others = [one for one in sharing.handles_of(root) if one is not self]
        return bool(others) and all(one.reads_only for one in others)

    def not_released(self, error: LockUnavailable) -> LockError:
        """What a release that ended in ``error`` is to raise."""
        return self._losses[0].again() if self._losses else error

    def read_release(self, reply: Any) -> None:
        """Take note of the ``reply`` to :meth:`releasing`. Raises LockLost, LockUnavailable."""
        if isinstance(reply, LockError):
            raise reply
        head = protocol.read_handed_on(reply)
        if head:
            self.watchdog.owe_look(self._target, head)
        self._kept(reply)
        if self._lets_in:
            self._released = True
            return
        if self._losses:
            # Its time was over here, and the holder knew: Redis alone does not make it held.
            self._may_still_stand = False
            raise self._losses[0].again()
        self._released = True
        self.lease.close()
        if logger.isEnabledFor(logging.DEBUG):
            held_for = clock.now() - self._taken_at
            logger.debug("released the lock %r: held for %.3f s", self.key, held_for)
        if events.RELEASED.listeners:
            events.RELEASED.tell(**self.about())

    def tell_at_end(
        self, error: LockError, body_error: BaseException | None, *, to_raise: bool
    ) -> None:
        """Tell of ``error``, in which the release at the end of a block ended.

        Raises it if that is wanted and the block raised nothing itself; nothing is hidden.
        """
        if body_error is None and to_raise:
            raise error
        if type(error) is type(body_error) and error.args == body_error.args:
            # Of the same loss.
            return
        logger.warning("%s", error)
        if body_error is not None and hasattr(body_error, "add_note"):
            body_error.add_note(str(error))

    def refuse_if_followed(self) -> None:
        """Raise LockError if the lease is not ours to change."""
        if self.is_followed:
            raise LockError(
                f"cannot extend the lock {self.key!r}: with_lock, under which this process runs, "
                "holds it and keeps its lease",
                key=self.key,
            )

    def giving_away(self, within: float | None) -> protocol.Request:
        """The request for the lease that the lock is given away with.

        Raises as :meth:`Held.give_away`.
        """
        lease_ms = protocol.milliseconds(self.timeout, "timeout")
        if within is not None:
            lease_ms = max(lease_ms, protocol.milliseconds(within, "within"))
        self.refuse_if_over("give away")
        if self.is_followed:
            raise LockError(
                f"cannot give away the lock {self.key!r}: with_lock, under which this process "
                "runs, holds it",
                key=self.key,
            )
        tickets.refuse_unless_possible(self._target)
        return self.renewing(lease_ms, "least")

    def gave_away(self) -> str:
        """The ticket, once that was granted: nobody here has the lock any more."""
        root = self.root
        self.watchdog.forget(root)
        handles = [root, self, *sharing.handles_of(self)]
        sharing.close(root)
        for one in handles:
            one._released = True
        self.lease.close()
        return tickets.Ticket(self.name, self._token, self._fence).to_text()

    def has_replaced(
        self, sent: float, seconds: float, before: float, *, may_come_again: bool
    ) -> None:
        """The lease was made ``seconds``. See :meth:`Lease.end_cut`."""
        self.lease.end_cut(sent, seconds, before, may_come_again=may_come_again)
        if self._is_renewed:
            self.lease.plan(sent)
            self.watchdog.hurry(self.root)

    def _refuse_elsewhere(self) -> None:
        if not self.is_here:
            raise LockError(
                f"the lock {self.key!r} belongs to process {self._pid}, this one's parent",
                key=self.key,
            )

    def refuse_if_over(self, what: str) -> None:
        """Raise LockError or LockLost if it is known that nothing can be asked for any more."""
        if self._released:
            raise LockError(f"cannot {what} the lock {self.key!r}: it was released", key=self.key)
        self._refuse_elsewhere()
        self.lease.settle()
        if not self._losses and self.lease.is_over(clock.now()):
            self.lose(self.ran_out())
        if self._losses:
            raise self._losses[0].again()

    def read_check(self, reply: Sequence[Any]) -> None:
        """Take note of the ``reply`` to :meth:`checking`. Raises LockLost."""
        self._kept(reply)

    def _kept(self, reply: Sequence[Any]) -> Sequence[Any]:
        try:
            return protocol.read_kept(reply, self.key)
        except LockLost as error:
            self._may_still_stand = False
            first = self.lose(error)
            raise first if first is error else first.again() from None
