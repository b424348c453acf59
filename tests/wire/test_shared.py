"""Who may hold a lock together, and who comes when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.locks.mailbox import time_to_sleep
from tests.support.locks import holder, queue_of, value_of
from tests.wire.helpers import Meta, ask, called, cancel, meta_of, write_meta
from tests.wire.queueing import baton_of, caller, claim, handed_on, is_busy, is_woken, open_mail
from tests.wire.sharers import LIMIT, let_run_out, reader, shares_of, taker

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core.locks.attempt import AcquireAttempt

pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


@pytest.mark.parametrize("wanting", [reader, taker])
def test_fences_grow_even_when_the_clock_of_the_server_stepped_back(
    redis_client: redis.Redis, wanting: Callable[[redis.Redis], AcquireAttempt]
) -> None:
    ahead = 9_000_000_000_000_000
    write_meta(redis_client, Meta(ahead, "x", "{}"))

    first, second = claim(wanting(redis_client)), claim(wanting(redis_client))

    assert (first.fence, second.fence) == (ahead + 1, ahead + 2)


def test_all_readers_up_to_the_next_writer_are_let_in_at_once(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    readers = [reader(redis_client) for _ in range(3)]
    writer, late = caller(redis_client), reader(redis_client)
    for turn in (*readers, writer, late):
        assert is_busy(turn)

    held.release()
    first = claim(readers[0])

    assert [is_woken(turn) for turn in (*readers[1:], writer)] == [True, True, False]
    assert is_busy(late)
    assert claim(readers[2]).fence > first.fence
    claim(readers[1])
    assert queue_of(redis_client) == [writer.token, late.token]


def test_the_last_reader_leaves_it_to_the_writer(redis_client: redis.Redis) -> None:
    held = claim(reader(redis_client))
    writer = caller(redis_client)
    assert is_busy(writer)

    held.release()

    assert value_of(redis_client) == baton_of(writer)
    assert is_woken(writer)


def test_a_writer_that_gives_up_lets_in_the_readers_behind_it(redis_client: redis.Redis) -> None:
    claim(reader(redis_client))
    writer, behind = caller(redis_client), reader(redis_client)
    assert is_busy(writer)
    assert is_busy(behind)

    cancel(writer)

    assert is_woken(behind)
    claim(behind)


def test_so_does_one_whose_time_to_wait_is_over(redis_client: redis.Redis) -> None:
    claim(reader(redis_client))
    writer, behind = caller(redis_client), reader(redis_client)
    assert is_busy(writer)
    assert is_busy(behind)

    assert is_busy(writer, waits=False)

    assert is_woken(behind)


def test_a_permit_goes_to_the_first_who_waits(redis_client: redis.Redis) -> None:
    held = [claim(taker(redis_client)) for _ in range(LIMIT)]
    first, second = taker(redis_client), taker(redis_client)
    assert is_busy(first)
    assert is_busy(second)

    held[0].release()

    assert is_busy(second)
    assert is_busy(taker(redis_client), waits=False)
    claim(first)


def test_permits_that_are_free_are_all_left_to_those_who_wait(redis_client: redis.Redis) -> None:
    held = [claim(taker(redis_client)) for _ in range(LIMIT)]
    waiting = [taker(redis_client) for _ in range(LIMIT + 1)]
    for turn in waiting:
        assert is_busy(turn)

    for one in held:
        one.release()
    # The last left what nobody held any more to the first, who lets the others in.
    claim(waiting[0])

    assert [is_woken(turn) for turn in waiting[1:]] == [True, False]


def test_a_permit_whose_lease_is_over_is_free(redis_client: redis.Redis) -> None:
    held = [claim(taker(redis_client)) for _ in range(LIMIT)]
    let_run_out(redis_client, held[0].token)

    claim(taker(redis_client))
    with pytest.raises(LockLost):
        held[0].check()
    held[1].check()


def test_one_that_waits_for_a_permit_asks_again_when_the_first_lease_is_over(
    redis_client: redis.Redis,
) -> None:
    claim(taker(redis_client, lease=3600))
    claim(taker(redis_client, lease=1.5))

    with pytest.raises(LockBusy) as busy:
        RedisLock(redis_client, "lock:a", limit=LIMIT).take(0)

    assert busy.value.remaining == pytest.approx(1.5, abs=0.5)


def test_who_waits_for_readers_asks_again_after_five_seconds_at_the_latest(
    redis_client: redis.Redis,
) -> None:
    claim(reader(redis_client, lease=3600))
    writer = caller(redis_client)

    answer = ask(writer, waits=True)

    assert not hasattr(answer, "fence")
    assert answer.remaining == pytest.approx(3600, abs=5)
    assert time_to_sleep(answer, 1, None) == pytest.approx(5, abs=0.1)


def test_the_name_is_taken_for_as_long_as_the_longest_lease(redis_client: redis.Redis) -> None:
    long, short = claim(reader(redis_client, 60)), claim(reader(redis_client, 10))

    both = redis_client.pttl("lock:a")
    long.release()
    one = redis_client.pttl("lock:a")

    assert both == pytest.approx(60_000, abs=2_000)
    assert one == pytest.approx(10_000, abs=2_000)
    short.check()


def test_who_was_told_of_a_longer_lease_is_woken_when_that_one_leaves(
    redis_client: redis.Redis,
) -> None:
    long = claim(reader(redis_client, 4))
    claim(reader(redis_client, 1))
    writer = caller(redis_client)
    assert is_busy(writer)

    long.release()

    assert is_woken(writer)


def test_what_a_holder_says_of_himself_is_told_while_he_is_there(redis_client: redis.Redis) -> None:
    first = RedisLock(redis_client, "lock:a", shared=True, label="first").take(0)
    second = RedisLock(redis_client, "lock:a", shared=True, label="second").take(0)

    both = meta_of(redis_client).record
    second.release()
    one = meta_of(redis_client).record

    assert '"second"' in both
    assert '"first"' in one
    first.release()


def test_shares_that_were_left_behind_count_for_nothing_later(redis_client: redis.Redis) -> None:
    old = claim(reader(redis_client, 3600))
    redis_client.delete("lock:a")

    new = claim(reader(redis_client))

    assert shares_of(redis_client) == [new.token]
    with pytest.raises(LockLost):
        old.check()


def test_a_permit_that_nobody_fetches_is_passed_on(redis_client: redis.Redis) -> None:
    held = [claim(taker(redis_client)) for _ in range(LIMIT)]
    dead, living = taker(redis_client), taker(redis_client)
    assert is_busy(dead)
    assert is_busy(living)
    held[0].release()

    request = living.target.command_set.check_handoff(living.target.keys, dead.token)
    next_one = handed_on(living, request)

    assert next_one == living.token
    claim(living)


def test_one_that_was_fetched_is_not(redis_client: redis.Redis) -> None:
    held = [claim(taker(redis_client)) for _ in range(LIMIT)]
    slow, behind = taker(redis_client), taker(redis_client)
    assert is_busy(slow)
    assert is_busy(behind)
    held[0].release()
    open_mail(slow)

    next_one = handed_on(
        behind, behind.target.command_set.check_handoff(behind.target.keys, slow.token)
    )

    assert next_one == slow.token
    assert is_busy(behind)
    claim(slow)


def test_a_writer_behind_a_reader_that_is_dead_gets_it(redis_client: redis.Redis) -> None:
    first = holder(redis_client)
    dead, writer = reader(redis_client), caller(redis_client)
    living = reader(redis_client)
    for turn in (living, dead, writer):
        assert is_busy(turn)
    first.release()
    held = claim(living)
    held.release()

    next_one = handed_on(
        writer, writer.target.command_set.check_handoff(writer.target.keys, dead.token)
    )
    shared = handed_on(
        living, living.target.command_set.check_handoff(living.target.keys, dead.token)
    )

    assert writer.token in (next_one, shared)
    claim(writer)


@pytest.mark.parametrize("options", [{}, {"shared": True}], ids=["alone", "shared"])
def test_a_late_copy_that_takes_it_wakes_the_caller_who_sleeps(
    redis_client: redis.Redis, options: dict[str, bool]
) -> None:
    _first = holder(redis_client)
    waiting = caller(redis_client, **options)
    copy = waiting.request(waits=True)
    assert is_busy(waiting)
    redis_client.delete("lock:a")

    called(waiting.target, copy)

    assert is_woken(waiting)
