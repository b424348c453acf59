"""The rules of renewal, with the time and the answers given by the tests."""

from __future__ import annotations

import gc
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from redis import exceptions as redis_exceptions

from django_setnx_lock import LockLost
from django_setnx_lock.core import events
from django_setnx_lock.core.connections.endpoints import Target
from tests.core.watching import (
    START,
    IdleWatchdog,
    Wire,
    granted,
    held_for,
    lost,
    pass_time,
    renewals,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import LockHandle
    from tests.core.helpers import FakeTime

    Watch = Callable[..., LockHandle]


def test_a_lock_is_renewed_when_a_third_of_its_lease_is_over(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    fake_time.now += 9.9
    next_at = dog.tick()
    before = list(wire.writes)

    fake_time.now += 0.1
    dog.tick()

    assert next_at == pytest.approx(START + 10)
    assert before == []
    assert renewals(wire.sent) == [("lock:a", 30_000)]
    assert held.remaining() == 30


def test_a_lock_is_renewed_for_as_long_as_it_is_held(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)

    pass_time(dog, fake_time, 3600)

    assert not held.lost
    assert len(wire.writes) == 360
    assert wire.connections == 1


def test_without_the_watchdog_the_lock_is_lost_with_its_first_lease(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    dog.forget(held.grant)

    pass_time(dog, fake_time, 3600)

    assert held.lost


def test_locks_that_will_soon_be_due_go_along(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    first = watch("lock:a", timeout=30)
    fake_time.now += 4.9
    second = watch("lock:b", timeout=30)
    fake_time.now += 0.2
    third = watch("lock:c", timeout=30)

    fake_time.now = START + 10
    dog.tick()

    assert [renewals(write) for write in wire.writes] == [[("lock:a", 30_000), ("lock:b", 30_000)]]
    assert all(not held.lost for held in (first, second, third))


def test_a_thousand_locks_are_renewed_in_four_writes_a_cycle(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = [watch(f"lock:{number}", timeout=30) for number in range(1000)]

    pass_time(dog, fake_time, 10)

    assert [len(write) for write in wire.writes] == [250] * 4
    assert wire.connections == 1
    assert {one.remaining() for one in held} == {30}


def test_one_look_at_all_locks_serves_all_batches(
    dog: IdleWatchdog,
    wire: Wire,
    watch: Watch,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []

    def route(one: Target) -> Any:
        looked_at.append(one.key)
        return one.client

    monkeypatch.setattr(Target, "route", route)
    for number in range(1000):
        watch(f"lock:{number}")
    fake_time.now += 10

    pass_time(dog, fake_time, 0)

    # And one more look when all is done.
    assert len(renewals(wire.sent)) == 1000
    assert len(looked_at) == 2000


def test_a_lock_that_is_let_go_before_its_batch_is_sent_is_not_renewed(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = [watch(f"lock:{number}") for number in range(500)]
    fake_time.now += 10

    dog.tick()
    dog.forget(held[-1].grant)
    pass_time(dog, fake_time, 0)

    assert [len(write) for write in wire.writes] == [250, 249]


def test_a_lock_that_was_let_go_is_renewed_no_longer(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch()
    held.grant.releasing()

    pass_time(dog, fake_time, 60)

    assert wire.writes == []


def test_a_renewed_lease_counts_from_before_the_request_was_sent(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    fake_time.now += 10
    wire.takes = 0.9

    dog.tick()

    assert fake_time.now == START + 10.9
    assert held.remaining() == pytest.approx(29.1)


@pytest.mark.parametrize(("timeout", "pause"), [(30, 0.25), (1, 0.1)])
def test_a_renewal_that_fails_is_tried_again_soon(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime, timeout: float, pause: float
) -> None:
    held = watch(timeout=timeout)
    wire.down = True
    fake_time.now += timeout / 3
    dog.tick()
    again_at = dog.tick()

    wire.down = False
    fake_time.now += pause
    dog.tick()

    assert again_at == pytest.approx(START + timeout / 3 + pause)
    assert held.remaining() == timeout


def test_a_lock_that_cannot_be_renewed_is_lost_when_its_lease_is_over_and_says_why(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    found: list[tuple[LockHandle, float]] = []
    held = watch(timeout=30, on_lost=lambda held: found.append((held, fake_time.now)))
    wire.down = True

    pass_time(dog, fake_time, 40)

    assert found == [(held, START + 30)]
    with pytest.raises(LockLost, match=r"could not be renewed before its lease ended: .*refused"):
        held.check()


def test_a_server_that_does_not_answer_keeps_nobody_from_hearing_of_the_loss_in_time(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    found: list[float] = []
    held = watch(timeout=2, on_lost=lambda held: found.append(fake_time.now))
    wire.silent = True

    pass_time(dog, fake_time, 3)

    assert found == [START + 2]
    with pytest.raises(LockLost, match="did not answer in time"):
        held.check()


def test_a_server_that_does_not_answer_is_asked_again_on_another_connection(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    wire.silent = True
    fake_time.now += 10
    pass_time(dog, fake_time, 1.2)
    wire.silent = False

    pass_time(dog, fake_time, 0.3)

    assert (wire.connections, wire.open) == (2, 1)
    assert held.remaining() == pytest.approx(30, abs=0.3)


def test_a_slow_server_is_given_more_time_with_each_try(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch(timeout=60)
    wire.silent = True
    fake_time.now += 20

    pass_time(dog, fake_time, 1 + 2 + 4 + 3 * 0.25 + 0.1)

    assert len(wire.writes) == 4


def test_a_server_that_answers_again_is_given_no_more_time_than_at_first(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch(timeout=60)
    wire.silent = True
    fake_time.now += 20
    pass_time(dog, fake_time, 1 + 2 + 0.5)
    wire.silent = False
    pass_time(dog, fake_time, 20)
    wire.silent = True
    wire.writes.clear()

    pass_time(dog, fake_time, 20)
    pass_time(dog, fake_time, 1.5)

    assert len(wire.writes) > 1


def test_a_server_that_does_not_answer_leaves_a_short_lease_time_for_another_connection(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch(timeout=1.2)
    wire.silent = True

    pass_time(dog, fake_time, 1.1)

    assert wire.connections > 1


def test_what_has_passed_its_deadline_is_lost_and_not_renewed(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    found: list[LockHandle] = []
    held = watch(timeout=30, on_lost=found.append)
    fake_time.now += 31

    dog.tick()

    assert wire.writes == []
    assert found == [held]
    with pytest.raises(LockLost, match="ran out: this process stood still"):
        held.check()


def test_an_answer_that_comes_after_the_deadline_comes_too_late(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    fake_time.now += 29.5
    wire.takes = 1

    dog.tick()

    assert held.lost
    assert held.remaining() == 0


def test_a_lock_that_redis_gave_away_is_lost_at_the_next_renewal_and_says_by_whom(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    found: list[LockHandle] = []
    held = watch(on_lost=found.append)
    wire.answer = lost
    fake_time.now += 10

    dog.tick()

    assert held.lost
    assert found == [held]
    with pytest.raises(LockLost, match="force-released by joe: stuck") as caught:
        held.check()
    assert (caught.value.forced_by, caught.value.reason) == ("joe", "stuck")


def test_a_lock_that_is_lost_is_renewed_no_longer(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch()
    wire.answer = lost
    fake_time.now += 10

    pass_time(dog, fake_time, 60)

    assert len(wire.writes) == 1


def test_a_loss_is_logged_without_the_token(
    dog: IdleWatchdog,
    watch: Watch,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = watch()
    fake_time.now += 31

    dog.tick()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "lease of the lock 'a' ran out" in caplog.text
    assert held.token not in caplog.text


def test_who_asks_for_it_is_told_of_each_failure_and_of_the_loss_and_nothing_is_logged(
    dog: IdleWatchdog,
    wire: Wire,
    watch: Watch,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[float, bool]] = []
    held = watch(timeout=30)
    held.on_trouble = lambda: told.append((fake_time.now - START, held.loss is not None))
    wire.down = True
    pass_time(dog, fake_time, 10.3)

    wire.down = False
    pass_time(dog, fake_time, 10)
    wire.answer = lost
    pass_time(dog, fake_time, 10)

    assert told == [(10, False), (10.25, False), (20.5, True)]
    assert caplog.records == []


def test_trouble_is_logged_when_it_begins_and_when_it_is_over(
    dog: IdleWatchdog,
    wire: Wire,
    watch: Watch,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = watch(timeout=30)
    caplog.set_level(logging.INFO)
    wire.down = True
    pass_time(dog, fake_time, 12)

    wire.down = False
    pass_time(dog, fake_time, 12)

    assert not held.lost
    assert [record.getMessage() for record in caplog.records] == [
        "cannot renew the lock 'a', trying on for 20.0 s: "
        "the lock 'a' is unavailable: Redis cannot be reached (refused), at tcp localhost:6379/0",
        "the lock 'a' is renewed again",
    ]


def test_what_on_trouble_raises_is_logged_and_stops_nothing(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[LockHandle] = []
    held = watch(on_lost=found.append)
    held.on_trouble = lambda: 1 / 0
    fake_time.now += 31

    dog.tick()

    assert found == [held]
    assert [record.getMessage() for record in caplog.records] == [
        "on_trouble of the lock 'a' failed"
    ]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what listeners are told of renewals that were late."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(events.RENEWED_LATE, "listeners", [lambda **about: found.append(about)])
    return found


def test_a_renewal_after_an_outage_of_a_third_of_the_lease_is_told(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime, late: list[dict[str, Any]]
) -> None:
    held = watch(timeout=30)
    wire.down = True

    pass_time(dog, fake_time, 22)
    wire.down = False
    pass_time(dog, fake_time, 10)

    (told,) = late
    assert (told["key"], told["fence"]) == (held.target.key, held.fence)
    assert 12 <= told["late"] < 13


def test_a_renewal_after_a_pause_of_the_process_is_told(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime, late: list[dict[str, Any]]
) -> None:
    watch(timeout=30)

    fake_time.now += 25
    pass_time(dog, fake_time, 1)

    assert [round(told["late"]) for told in late] == [15]


def test_a_renewal_after_a_short_outage_is_not_told(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime, late: list[dict[str, Any]]
) -> None:
    watch(timeout=30)
    wire.down = True

    pass_time(dog, fake_time, 19)
    wire.down = False
    pass_time(dog, fake_time, 60)

    assert late == []


def test_a_lease_knows_since_when_it_is_tried_to_renew_it(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    before = held.lease.tried_since
    wire.down = True

    pass_time(dog, fake_time, 12)
    failing = held.lease.tried_since
    wire.down = False
    pass_time(dog, fake_time, 1)

    assert (before, failing, held.lease.tried_since) == (None, START + 10, None)


@pytest.mark.parametrize("answer", [granted, lost], ids=["OK", "LOST"])
def test_the_answer_to_a_renewal_means_nothing_once_the_lock_was_let_go(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime, answer: Callable[..., Any]
) -> None:
    found: list[LockHandle] = []
    held = watch(on_lost=found.append)
    fake_time.now += 10
    wire.answer = answer
    wire.silent = True
    dog.tick()

    held.grant.releasing()
    wire.silent = False
    dog.tick()
    held.read_release([b"OK", None])

    assert len(wire.writes) == 1
    assert found == []
    assert held.released
    assert not held.lost


def test_the_last_renewal_asks_for_what_is_left_of_max_hold(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30, max_hold=45)

    pass_time(dog, fake_time, 20)

    assert renewals(wire.sent) == [("lock:a", 30_000), ("lock:a", 25_000)]
    assert held.remaining() == pytest.approx(25)


def test_a_lock_is_lost_when_it_was_held_for_max_hold(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    found: list[float] = []
    held = watch(timeout=30, max_hold=45, on_lost=lambda held: found.append(fake_time.now))

    pass_time(dog, fake_time, 60)

    assert found == [pytest.approx(START + 45)]
    assert len(wire.writes) < 10
    with pytest.raises(LockLost, match="'a' was held for its max_hold of 45 s"):
        held.check()


def test_a_force_release_is_still_heard_of_in_the_last_stretch_of_max_hold(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30, max_hold=45)
    pass_time(dog, fake_time, 20)
    wire.answer = lost

    pass_time(dog, fake_time, 11)

    with pytest.raises(LockLost, match="by joe"):
        held.check()


def test_a_server_that_lost_the_script_is_sent_its_text_once(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = [watch(f"lock:{name}") for name in "abc"]
    wire.answer = forgetful()
    fake_time.now += 10

    pass_time(dog, fake_time, 0.01)

    assert [[command[0] for command in write] for write in wire.writes] == [
        ["EVALSHA"] * 3,
        ["EVAL", "EVALSHA", "EVALSHA"],
    ]
    assert [round(one.remaining()) for one in held] == [30] * 3


def forgetful() -> Callable[[Any], Any]:
    """Answer as a server that knows no script until it has seen its text."""
    known: list[bool] = []

    def answer(command: Any) -> Any:
        if command[0] == "EVAL":
            known.append(True)
        return granted(command) if known else redis_exceptions.NoScriptError("NOSCRIPT")

    return answer


def test_a_server_that_refuses_the_text_too_is_asked_again_later(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch(timeout=30)
    wire.answer = lambda command: redis_exceptions.NoScriptError("NOSCRIPT")
    fake_time.now += 10

    pass_time(dog, fake_time, 0.3)

    assert [len(write) for write in wire.writes] == [1] * 4


def test_the_error_of_one_lock_does_not_keep_the_others_from_being_renewed(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = [watch(f"lock:{name}") for name in "abc"]
    wrong = redis_exceptions.ResponseError("OOM command not allowed")
    wire.answer = lambda command: wrong if "lock:b" in command else granted(command)
    fake_time.now += 10

    pass_time(dog, fake_time, 20)

    assert [one.lost for one in held] == [False, True, False]
    with pytest.raises(LockLost, match=r"could not be renewed .* out of memory"):
        held[1].check()


def test_an_answer_that_cannot_be_read_does_not_stop_the_watchdog(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = [watch(f"lock:{name}") for name in "ab"]
    wire.answer = lambda command: [b"WHAT"] if "lock:a" in command else granted(command)
    fake_time.now += 10

    dog.tick()

    assert held[1].remaining() == 30


def test_a_primary_that_became_a_replica_is_looked_up_anew(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch()
    wire.answer = lambda command: redis_exceptions.ReadOnlyError("READONLY")
    fake_time.now += 10
    dog.tick()
    wire.answer = granted

    pass_time(dog, fake_time, 0.3)

    assert wire.connections == 2
    assert held.remaining() == pytest.approx(30, abs=0.1)


def test_one_server_that_does_not_answer_keeps_no_other_lock_from_being_renewed(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    other = Wire()
    deaf = watch("lock:a", timeout=30)
    healthy = watch("lock:b", client=other.client, timeout=1)
    wire.silent = True

    pass_time(dog, fake_time, 15)

    assert not healthy.lost
    assert not deaf.lost
    assert deaf.remaining() < 20


@dataclass(slots=True)
class Astray(Target):
    """One of which nobody knows where it is, as of a cluster none of whose nodes is known."""

    def route(self) -> Any:
        raise IndexError("list index out of range")


def test_a_lock_that_leads_to_no_server_keeps_no_other_from_being_renewed(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    astray, other = watch("lock:a", timeout=3), watch("lock:b", timeout=3)
    found = astray.target
    astray.grant.target = Astray(found.client, found.keys, found.key, None)

    pass_time(dog, fake_time, 10)

    assert not other.lost
    with pytest.raises(LockLost, match="could not be renewed before its lease ended"):
        astray.check()
    first = caplog.records[0].getMessage()
    assert first.startswith("cannot renew the lock 'a', trying on for 2.0 s")


def test_a_lock_that_leads_to_no_server_for_a_moment_is_kept(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=3)
    found = held.target
    held.grant.target = Astray(found.client, found.keys, found.key, None)
    pass_time(dog, fake_time, 2.5)

    held.grant.target = found
    pass_time(dog, fake_time, 10)

    assert not held.lost


def test_a_look_that_leads_to_no_server_keeps_no_lock_from_being_renewed(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch("lock:b", timeout=3)
    found = held.target
    dog.schedule_handoff_check(Astray(found.client, found.keys, found.key, None), "waiter 1")

    pass_time(dog, fake_time, 10)

    assert not held.lost
    assert not dog.handoff_checks()


def test_clients_of_one_pool_share_a_connection(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    pool = wire.client.connection_pool
    clients = [type(wire.client)(connection_pool=pool) for _ in range(5)]
    held = [watch(f"lock:{number}", client=one) for number, one in enumerate(clients)]

    pass_time(dog, fake_time, 10)

    assert (wire.connections, len(wire.writes)) == (1, 1)
    assert {one.remaining() for one in held} == {30}


def test_the_connection_is_kept_from_one_renewal_to_the_next(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    watch(timeout=60)

    for _ in range(60):
        pass_time(dog, fake_time, 1)

    assert len(wire.writes) == 3
    assert wire.connections == 1


def test_the_connection_is_closed_some_seconds_after_the_last_lock(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch()
    pass_time(dog, fake_time, 12)
    dog.forget(held.grant)
    before = wire.open

    fake_time.now += 6
    dog.tick()

    assert (before, wire.open) == (1, 0)


def in_ended_thread(work: Callable[[], LockHandle]) -> LockHandle:
    found: list[LockHandle] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(10)
    return found[0]


def test_a_lock_whose_thread_has_ended_is_no_longer_renewed_and_named_once(
    dog: IdleWatchdog,
    wire: Wire,
    watch: Watch,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = in_ended_thread(watch)

    pass_time(dog, fake_time, 60)

    assert wire.writes == []
    assert held.lost
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "thread that took the lock 'a' has ended" in caplog.text
    assert held.token not in caplog.text


def test_a_lock_that_was_handed_over_outlives_its_thread(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime
) -> None:
    held = in_ended_thread(watch)
    held.handover()

    pass_time(dog, fake_time, 60)

    assert not held.lost


def test_a_lock_can_be_handed_over_after_it_was_given_up_on(
    dog: IdleWatchdog, watch: Watch, fake_time: FakeTime
) -> None:
    held = in_ended_thread(watch)
    pass_time(dog, fake_time, 12)
    held.handover()

    pass_time(dog, fake_time, 60)

    assert not held.lost


def test_a_lock_that_nobody_can_let_go_is_no_longer_renewed_and_named_once(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    held = held_for(wire.client, fake_time.now)
    token = held.token
    dog.watch(held.grant)
    del held
    gc.collect()
    dog.tick()
    told_early = list(caplog.records)

    fake_time.now += 10
    dog.tick()
    dog.tick()

    assert told_early == []
    assert wire.writes == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "nobody refers to the lock 'a' any more" in caplog.text
    assert token not in caplog.text


def test_what_was_added_to_a_lease_stays(
    dog: IdleWatchdog, wire: Wire, watch: Watch, fake_time: FakeTime
) -> None:
    held = watch(timeout=30)
    held.lease.confirm(fake_time.now, 600)

    pass_time(dog, fake_time, 30)

    assert held.remaining() == pytest.approx(570)


def test_there_is_nothing_to_do_without_locks(dog: IdleWatchdog) -> None:
    assert dog.tick() == float("inf")
