"""Callers, an operator and a foreign program at one lock, with lost replies and late copies.

Hypothesis looks for an order of events in which two believe to hold the lock, a fence repeats, or
a token nobody holds any more takes it; and finds one for each rule that is taken out.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_setnx_lock import LockError
from django_setnx_lock.core import Inspector, LockHandle, Outcome, RedisLock, clock
from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.protocol import commands
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.servers import RealServer
from tests.support import seams
from tests.support.locks import listed, queue_of, value_of
from tests.wire.helpers import FakeTime, ask, cancel, send

pytestmark = pytest.mark.unmeasured

ANY = st.integers(0, 10**6)
MANY = settings(
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class OneLock(RuleBasedStateMachine):
    """The events, and what must be true after each."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.time = FakeTime()
        self.patched = contextlib.ExitStack()
        self.patched.enter_context(mock.patch.object(clock, "now", self.now))
        # Nobody looks but when the machine does.
        seams.pause_renewals(self.patched.enter_context(pytest.MonkeyPatch.context()))
        self.turns: list[AcquireAttempt] = []
        self.held: list[LockHandle] = []
        self.forced: set[str] = set()
        self.over: set[str] = set()
        self.sent: list[commands.Request] = []
        self.fences: dict[str, int] = {}

    def now(self) -> float:
        return self.time.now

    def teardown(self) -> None:
        self.patched.close()

    @property
    def lock(self) -> RedisLock:
        return listed(self.client, "a")

    def ask(self, turn: AcquireAttempt, *, waits: bool) -> None:
        token = turn.token
        first_come = self.at_the_name() in (token, f"baton:{token}")
        queue = queue_of(self.client)
        answer = ask(turn, waits=waits)
        if isinstance(answer, LockHandle):
            assert first_come or not queue or queue[0] == token, "overtaken"
            self.held.append(answer)
            self.fences.setdefault(answer.token, answer.fence)
        elif waits:
            self.turns.append(turn)
        if turn.token != token or (not waits and not isinstance(answer, LockHandle)):
            self.over.add(token)

    @rule(waits=st.booleans())
    def take(self, waits: bool) -> None:
        turn = self.lock.attempt()
        self.sent.append(turn.request(waits=waits))
        self.ask(turn, waits=waits)

    @rule()
    def take_and_lose_the_reply(self) -> None:
        turn = self.lock.attempt()
        send(self.client, turn.request(waits=True))
        self.turns.append(turn)

    @precondition(lambda self: self.turns)
    @rule(which=ANY, waits=st.booleans())
    def ask_again(self, which: int, waits: bool) -> None:
        turn = self.turns.pop(which % len(self.turns))
        self.sent.append(turn.request(waits=waits))
        self.ask(turn, waits=waits)

    @precondition(lambda self: self.turns)
    @rule(which=ANY)
    def give_up(self, which: int) -> None:
        turn = self.turns.pop(which % len(self.turns))
        self.sent += [turn.request(waits=True), turn.cancelling()]
        cancel(turn)
        self.over.add(turn.token)

    @precondition(lambda self: self.held)
    @rule(which=ANY, copies=st.integers(1, 2))
    def release(self, which: int, copies: int) -> None:
        held = self.held[which % len(self.held)]
        believed = held in self.believers()
        # Of a lock that is known to be lost Redis is told nothing more.
        tells = not held.grant.losses
        self.held.remove(held)
        self.sent.append(held.grant.releasing())
        if copies == 2:
            send(self.client, held.grant.releasing())
        try:
            held.release()
        except LockError:
            assert not believed, "a lock that was held all along was reported lost"
        if tells or copies == 2:
            self.over.add(held.token)

    @precondition(lambda self: self.held)
    @rule(which=ANY)
    def renew(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        keys, index = held.target.keys, held.target.index
        self.sent.append(commands.SETNX.renew(keys, index, held.token, 30_000))
        with contextlib.suppress(LockError):
            held.reacquire()
            assert self.at_the_name() == held.token, "renewed what is not ours"

    @precondition(lambda self: self.sent)
    @rule(which=ANY)
    def deliver_late(self, which: int) -> None:
        send(self.client, self.sent[which % len(self.sent)])

    @rule()
    def look(self) -> None:
        value = self.at_the_name() or ""
        send(
            self.client,
            commands.SETNX.check_handoff(lock_keys(self.lock.name), value.removeprefix("baton:")),
        )

    @rule()
    def end_every_lease(self) -> None:
        self.time.now += 31
        if self.client.get("lock:a") != b"foreign":
            self.client.delete("lock:a")

    @rule(changes=st.booleans())
    def force_release(self, changes: bool) -> None:
        inspector = Inspector(self.client, "lock:")
        seen = inspector.get("lock:a")
        if changes and self.held:
            self.release(0, 1)
            self.take(waits=False)
        with mock.patch.object(Inspector, "get", return_value=seen):
            outcome = inspector.force_release("lock:a", seen.fingerprint, by="joe")
        if outcome is Outcome.RELEASED and seen.token != b"foreign":
            self.forced.add(seen.token.decode())
            self.over.add(seen.token.decode())

    @rule()
    def foreign_program_takes(self) -> None:
        self.client.set("lock:a", "foreign", nx=True, px=30_000)

    @rule()
    def foreign_program_releases(self) -> None:
        if self.client.get("lock:a") == b"foreign":
            self.client.delete("lock:a")

    def believers(self) -> list[LockHandle]:
        """Return the handles that are believed to be held; whom an operator forced out may err."""
        return [held for held in self.held if not held.lost and held.token not in self.forced]

    def at_the_name(self) -> str | None:
        return value_of(self.client)

    @invariant()
    def at_most_one_believes_and_redis_agrees(self) -> None:
        tokens = {held.token for held in self.believers()}
        assert len(tokens) <= 1, "two believers"
        assert not tokens or tokens == {self.at_the_name()}, "a believer without the lock"

    @invariant()
    def no_token_that_is_over_has_the_lock_or_is_to_have_it(self) -> None:
        assert (self.at_the_name() or "").removeprefix("baton:") not in self.over, "a ghost"
        assert not self.over & set(queue_of(self.client)), "a ghost in the queue"

    @invariant()
    def fences_grow_from_holder_to_holder(self) -> None:
        fences = list(self.fences.values())
        assert fences == sorted(set(fences)), "a fence repeats"


@pytest.fixture(autouse=True)
def on_a_real_server(real_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the machines work on it: the fake takes ten times as long for a script."""
    monkeypatch.setattr(OneLock, "client", real_server.client(), raising=False)


@pytest.mark.parametrize("examples", [30, pytest.param(100, marks=pytest.mark.matrix)])
def test_no_order_of_events_breaks_the_lock(examples: int) -> None:
    run_state_machine_as_test(OneLock, settings=settings(MANY, max_examples=examples))
