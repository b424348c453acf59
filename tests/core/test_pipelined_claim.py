"""The lease of a lock that was taken up by what its waiter had sent ahead."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis import exceptions as redis_exceptions

from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.locks.options import LockOptions
from django_setnx_lock.core.locks.pipelined_claim import (
    MAX_CLAIM_AGE,
    PipelinedClaim,
    ProvisionalLease,
)
from django_setnx_lock.core.protocol import commands, replies
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.watching import (
    START,
    FakeLine,
    IdleWatchdog,
    Wire,
    held_for,
    lost,
    pass_time,
    renewals,
)

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from tests.core.helpers import FakeTime

LEASE_MS = 30_000
WHOLE = commands.SETNX.renew(lock_keys("lock:a"), None, "token", LEASE_MS, "least")

pytestmark = pytest.mark.usefixtures("fake_time")


class Given:
    """Where the connections of waiters that nobody needs are kept."""

    def __init__(self) -> None:
        self.back: list[Any] = []

    def checkin(self, client: Any, connection: Any) -> None:
        self.back.append(connection)


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def claim(wire: Wire, given: Any) -> PipelinedClaim:
    connection: Any = FakeLine(wire.client, connect_timeout=1)
    return PipelinedClaim(
        given, wire.client, 7, START, connection, WHOLE, connection.pack(WHOLE.by_sha)
    )


def claimed(claim: PipelinedClaim, sent: float = START) -> ProvisionalLease:
    claim.sent = sent
    return ProvisionalLease(LEASE_MS / 1000, claim)


def test_the_whole_lease_is_asked_for_at_once(wire: Wire, claim: PipelinedClaim) -> None:
    claimed(claim)

    assert renewals(wire.sent) == [("lock:a", LEASE_MS)]


def test_once_redis_has_answered_it_is_whole(claim: PipelinedClaim, given: Given) -> None:
    lease = claimed(claim)

    assert lease.end == START + 30
    assert lease.due == START + 10
    assert given.back == [claim.connection]


def test_until_redis_has_answered_it_is_the_claim(
    wire: Wire, claim: PipelinedClaim, given: Given
) -> None:
    wire.silent = True

    lease = claimed(claim, START - 0.2)

    assert lease.end == pytest.approx(START + 0.8)
    assert START < lease.due < lease.end
    assert not given.back


def test_it_counts_from_when_the_whole_of_it_was_asked_for(
    fake_time: FakeTime, claim: PipelinedClaim
) -> None:
    lease = claimed(claim, START - 0.4)

    fake_time.now += 0.3

    assert lease.end == START + 30


def test_a_process_that_stood_still_beyond_the_claim_has_it_if_redis_had_answered(
    fake_time: FakeTime, claim: PipelinedClaim
) -> None:
    lease = claimed(claim)

    fake_time.now += 5

    assert lease.end == START + 30


def test_an_answer_that_comes_after_it_was_found_to_be_over_changes_nothing(
    fake_time: FakeTime, wire: Wire, claim: PipelinedClaim, given: Given
) -> None:
    wire.silent = True
    lease = claimed(claim)
    fake_time.now += 1.5
    assert lease.end < fake_time.now

    wire.silent = False

    assert lease.end < fake_time.now
    assert not given.back
    assert wire.open == 0


def test_who_asks_how_much_is_left_waits_for_the_answer(wire: Wire, claim: PipelinedClaim) -> None:
    lease = claimed(claim)
    wire.takes = 0.3

    lease.settle()

    assert lease._end == START + 30


def test_it_is_not_waited_for_longer_than_the_claim_runs(
    fake_time: FakeTime, wire: Wire, claim: PipelinedClaim
) -> None:
    wire.silent = True
    lease = claimed(claim)

    lease.settle()

    assert fake_time.now == pytest.approx(START + 1)
    assert lease.end <= fake_time.now


def test_a_loss_is_left_to_the_renewal_that_is_due(
    wire: Wire, claim: PipelinedClaim, given: Given
) -> None:
    wire.answer = lost

    lease = claimed(claim)

    assert lease.end == START + 1
    assert lease.due < lease.end
    assert given.back == [claim.connection]


def test_the_script_is_sent_along_where_the_server_lacks_it(
    wire: Wire, claim: PipelinedClaim
) -> None:
    known = wire.answer

    def lacks_it(command: Any) -> Any:
        if command[0] == "EVALSHA":
            return redis_exceptions.NoScriptError("NOSCRIPT")
        return known(command)

    wire.answer = lacks_it
    lease = claimed(claim)

    assert (lease.end, lease.end) == (START + 1, START + 30)
    assert [command[0] for command in wire.sent] == ["EVALSHA", "EVAL"]


def test_a_line_that_breaks_is_not_used_again(
    wire: Wire, claim: PipelinedClaim, given: Given
) -> None:
    wire.answer = lambda command: redis_exceptions.ConnectionError("reset")

    lease = claimed(claim)

    assert lease.end == START + 1
    assert not given.back
    assert wire.open == 0


def test_a_line_that_cannot_be_written_to_leaves_a_renewal_due(
    wire: Wire, claim: PipelinedClaim
) -> None:
    wire.down = True

    lease = claimed(claim)

    assert lease.due == START
    assert lease.end == START + 1


def test_a_line_whose_answer_never_came_is_dropped_at_the_end(
    wire: Wire, claim: PipelinedClaim, given: Given
) -> None:
    wire.silent = True
    lease = claimed(claim)

    lease.close()

    assert not given.back
    assert wire.open == 0


def test_a_child_process_leaves_the_line_alone(
    wire: Wire, claim: PipelinedClaim, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = claimed(claim)
    monkeypatch.setattr(os, "getpid", lambda: -1)

    lease.close()

    assert lease.end == START + 1
    assert wire.open == 1


def claim_watched(wire: Wire, claim: PipelinedClaim, dog: IdleWatchdog) -> LockHandle:
    held = held_for(wire.client, START)
    held.grant.lease = claimed(claim)
    dog.watch(held.grant)
    return held


def test_the_watchdog_asks_again_before_the_claim_is_over(
    wire: Wire,
    claim: PipelinedClaim,
    dog: IdleWatchdog,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its own connection is answered, the waiter's is not.
    monkeypatch.setattr(claim.connection, "wait", lambda seconds: False)
    held = claim_watched(wire, claim, dog)

    pass_time(dog, fake_time, 0.5)

    assert renewals(wire.sent) == [("lock:a", LEASE_MS)] * 2
    assert held.lease.end > START + 30
    assert not held.lost


def test_the_watchdog_does_not_ask_again_when_the_answer_has_come(
    wire: Wire, claim: PipelinedClaim, dog: IdleWatchdog, fake_time: FakeTime
) -> None:
    held = claim_watched(wire, claim, dog)

    pass_time(dog, fake_time, 5)

    assert len(renewals(wire.sent)) == 1
    assert held.remaining() == pytest.approx(25)


def attempt(wire: Wire, lease_ms: int = LEASE_MS, **options: Any) -> AcquireAttempt:
    holder = SimpleNamespace(to_json=lambda: "{}")
    chosen = LockOptions(**{"renew": True, **options})
    return AcquireAttempt(held_for(wire.client, START).target, lease_ms, holder, chosen)  # type: ignore[arg-type]


OURS = replies.Busy(remaining=20, holder=None)


def test_who_renews_sends_ahead(wire: Wire) -> None:
    turn = attempt(wire)

    ahead = turn.ahead(OURS)

    assert isinstance(ahead, commands.Ahead)
    request = ahead.take
    assert request.args[:2] == (turn.token, str(commands.CLAIM_MS))
    assert request.args[-1] == str(LEASE_MS)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"renew": False}, OURS),
        ({"max_hold": 60}, OURS),
        ({"lease_ms": commands.CLAIM_MS}, OURS),
        ({}, replies.Busy(remaining=20, holder=None, foreign=True)),
    ],
    ids=["not renewed", "bounded", "as short as a claim", "behind a foreign holder"],
)
def test_others_do_not(wire: Wire, changes: Any, answer: replies.Busy) -> None:
    assert attempt(wire, **changes).ahead(answer) is None


def test_what_was_sent_ahead_long_ago_is_asked_for_again(
    wire: Wire, claim: PipelinedClaim, given: Given, fake_time: FakeTime, dog: IdleWatchdog
) -> None:
    turn = attempt(wire)

    fake_time.now += MAX_CLAIM_AGE
    late = turn.take_up(claim)
    fake_time.now -= 0.01
    fresh = turn.take_up(claim)

    assert late is None
    assert given.back == [claim.connection]
    assert fresh is not None
    assert (fresh.fence, fresh.token) == (7, turn.token)
