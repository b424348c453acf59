"""One attempt of one caller to take several locks of one server: what it sends, what it is told.

They are asked for in the order of their names, and whoever waits for one holds none that comes
after it: so no two callers wait for each other. Each request asks for all of them, also for those
that are held by then. That renews these while the caller waits for another, tells if one was lost
meanwhile, and in the end gives all of them a whole lease.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import clock, protocol
from ..batch import leave_each
from ..calling import call, call_replicated, unavailable, worth_undoing
from ..errors import LockUnavailable
from ..held import Held
from ..turn import Turn

# How often a caller whose time is up asks again when all he was told is that a token was given up:
# so it is when the answer to a first copy of his request was lost.
_TRIES = 2
# What a server may say of one lock when it has granted those before it.
_OF_ONE = frozenset({"wrongtype", "denied", "memory"})


class Blocked(NamedTuple):
    """Why not all were granted: ``answer`` is that to ``turn``, the first that was not.

    ``is_vague``: a token of this caller was given up, which tells nothing of who has the lock.
    """

    turn: Turn
    answer: protocol.Busy
    is_vague: bool = False


class Outcome(NamedTuple):
    """The answers to a request: ``at`` is the number of the first lock that is not to be had.

    ``to_leave``: what is to be given up before anything else is done.
    """

    answers: Sequence[protocol.Answer | protocol.Left]
    at: int | None
    to_leave: Sequence[Turn] = ()


class ManyTurn:
    """An attempt at several locks, by ``turns`` in the order of their names."""

    # That of the lock which the caller waits for.
    awaited: Turn | None = None

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = turns
        self._waits = False
        # How many are held, by the last answer.
        self._taken = 0
        # Whether more may be: what was asked since has not been answered.
        self._is_unsure = False
        self._tries = _TRIES
        self._lease = min(turn.lease_ms for turn in turns) / 1000

    @property
    def longest_sleep(self) -> float:
        """For how many seconds at most to sleep until what is held is to be renewed, by asking."""
        return self._lease / 3 if self._taken else math.inf

    def asks_again(self, blocked: Blocked) -> bool:
        """Whether a caller whose time is up asks once more."""
        self._tries -= 1
        return blocked.is_vague and self._tries >= 0

    def waits_for(self, blocked: Blocked) -> bool:
        """The caller waits because of ``blocked``. Gives whether it is for another lock now."""
        if blocked.turn is self.awaited:
            return False
        self.awaited = blocked.turn
        self.awaited.tell_wait(blocked.answer)
        return True

    def outlast(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """As :meth:`Turn.outlast`."""
        self._is_unsure = True
        if self.awaited is None:
            raise error
        return self.awaited.outlast(error, give_up_at)

    def request(self, *, waits: bool) -> protocol.Request:
        self._waits = waits
        return protocol.acquire_all([turn.request(waits=waits) for turn in self.turns])

    def ask(self, *, waits: bool, within: float | None = None) -> list[Held] | Blocked:
        """Ask once, as :meth:`Turn.ask`.

        Raises LockUnavailable; also when one of the names holds what is no lock.
        """
        sent = clock.now()
        request, client = self.request(waits=waits), self.turns[0].target.client
        replicas, copies = self.turns[0].replicas, list[bool]()
        if replicas is None:
            reply = call(
                client,
                request,
                "",
                repeated=lambda: copies.append(True),
                within=within,
                undo=self.undo,
            )
        else:
            reply = call_replicated(client, request, "", replicas, within=within, undo=self.undo)
        outcome = self.read(reply, sent, is_certain=replicas is None and not copies)
        if outcome.to_leave:
            leave_each(outcome.to_leave)
        return self.settle(outcome, sent)

    def undo(self) -> list[protocol.Request]:
        """What gives all of them up."""
        return [turn.leaving() for turn in self.turns]

    def read(self, reply: Any, sent: float, *, is_certain: bool) -> Outcome:
        """What ``reply`` to a request sent at ``sent`` means.

        ``is_certain``: whether no copy of it can have been granted more. Raises LockUnavailable.
        """
        answers: list[protocol.Answer | protocol.Left] = []
        for turn, answer in zip(self.turns, protocol.read_acquire_all(reply), strict=False):
            if isinstance(answer, Exception):
                raise unavailable(answer, turn.target.key) from answer
            answers.append(answer)
        if isinstance(answers[-1], protocol.Granted):
            if clock.now() < sent + self._lease:
                return Outcome(answers, None)
            # That took longer than it lasts.
            return Outcome([protocol.Gone()], 0, self.turns)
        at = len(answers) - 1
        may_hold_later_ones = (
            at < self._taken or self._is_unsure or (self._waits and not is_certain)
        )
        return Outcome(answers, at, self.turns[at + 1 :] if may_hold_later_ones else ())

    def settle(self, outcome: Outcome, sent: float) -> list[Held] | Blocked:
        """The handles, or why there are none; what is to be given up has been."""
        answers, at, to_leave = outcome
        self._is_unsure = False
        if at is None:
            # That none is late is known.
            settled = [
                turn.settle(answer, sent, sent)
                for turn, answer in zip(self.turns, answers, strict=True)
                if not isinstance(answer, protocol.Left)
            ]
            return [held for held in settled if isinstance(held, Held)]
        for turn, answer in zip(self.turns, answers, strict=False):
            if isinstance(answer, protocol.Left):
                if answer.head:
                    turn.watchlist.owe_look(turn.target, answer.head)
                _begin_anew(turn)
        for turn in to_leave:
            _begin_anew(turn)
        self._taken = at if self._waits else 0
        turn, last = self.turns[at], answers[-1]
        if isinstance(last, protocol.Busy):
            turn.settle(last, sent, sent)
            return Blocked(turn, last)
        _begin_anew(turn)
        return Blocked(turn, protocol.Busy(remaining=0.0, holder=None), is_vague=True)

    def is_worth_undoing(self, error: BaseException) -> bool:
        """Whether to give everything up after ``error``. As :func:`worth_undoing`."""
        if isinstance(error, LockUnavailable) and error.is_undone:
            return False
        is_of_one = isinstance(error, LockUnavailable) and error.cause in _OF_ONE
        return self._taken > 0 or is_of_one or worth_undoing(error)


def _begin_anew(turn: Turn) -> None:
    """Have another token from now on: what was given up is never granted again."""
    turn.settle(protocol.Gone(), 0.0, 0.0)
