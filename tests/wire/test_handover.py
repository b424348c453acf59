"""The queue, and a lock that goes from one to the next; the scripts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.locks import queue_of, server_ms, value_of
from tests.wire.running import (
    CLAIM,
    INDEX,
    LEASE,
    SLICE,
    ask,
    box,
    fetch,
    let_go,
    let_lapse,
    look,
    queue,
    row_of,
    run,
    take,
    tokens_in,
    woken,
)

if TYPE_CHECKING:
    import redis

LATE = 2_000
LONG, SHORT = 20_000, 3_000
ways = pytest.mark.parametrize("how", ["", "repeat", "cancel", "doubt", "force"])


# The queue


def test_who_asks_again_keeps_its_place(redis_client: redis.Redis) -> None:
    take(redis_client)
    queue(redis_client, "w1", "w2", "w3")
    queue(redis_client, "w3", "w1", "w1")

    assert queue_of(redis_client) == ["w1", "w2", "w3"]


def test_who_comes_later_is_later_though_the_clock_was_stepped_back(
    redis_client: redis.Redis,
) -> None:
    ahead = 9_000_000_000_000_000
    take(redis_client)
    redis_client.zadd("{lock:a}:waiters", {"early": ahead})
    queue(redis_client, "w1", "w2")

    ranks = [redis_client.zscore("{lock:a}:waiters", token) for token in ("w1", "w2")]
    assert ranks == [ahead + 1, ahead + 2]


def test_a_fence_is_larger_though_the_clock_was_stepped_back(redis_client: redis.Redis) -> None:
    # A time of the year 2112, as a server has left it whose clock ran ahead.
    ahead = 4_500_000_000_000_000
    redis_client.set("{lock:a}:meta", f"{ahead} x {{}}", px=60_000)

    assert take(redis_client, "w1") == ahead + 1
    let_go(redis_client, "w1")
    assert [take(redis_client, f"read:w{number}") for number in (2, 3)] == [ahead + 2, ahead + 3]


def test_waiters_who_ask_no_more_are_skipped_and_dropped(redis_client: redis.Redis) -> None:
    take(redis_client)
    queue(redis_client, "w1", "w2", "w3", "w4")
    let_lapse(redis_client, "w1")
    let_lapse(redis_client, "w2")

    assert let_go(redis_client) == ["w3"]
    assert queue_of(redis_client) == ["w4"]
    assert sorted(redis_client.hkeys("{lock:a}:waiting")) == [b"w3", b"w4"]


@pytest.mark.parametrize("lease", [5_000, 3_600_000])
def test_a_waiter_and_the_queue_live_for_longer_than_it_may_sleep(
    redis_client: redis.Redis, lease: int
) -> None:
    before = server_ms(redis_client)
    take(redis_client, lease=lease)
    queue(redis_client, "w1")
    after = server_ms(redis_client)

    alive, again, *_ = row_of(redis_client, "w1")
    longest = min(lease, SLICE)
    assert before + longest - 2 <= int(again) <= after + longest + 2
    assert int(alive) - int(again) == LATE
    for end in ("waiters", "waiting"):
        assert SLICE + LATE < redis_client.pttl(f"{{lock:a}}:{end}") <= SLICE + 4 * LATE


# Given to the next


@ways
def test_a_lock_that_is_let_go_is_given_to_the_first_for_a_moment(
    redis_client: redis.Redis, how: str
) -> None:
    fence = take(redis_client)
    queue(redis_client, "w1", "w2")

    assert let_go(redis_client, how=how) == ["w1"]
    # A copy changes nothing.
    assert let_go(redis_client, how=how) == []

    assert value_of(redis_client) == "w1"
    assert 0 < redis_client.pttl("lock:a") <= CLAIM
    assert woken(redis_client, "w1", "w2") == ["w1"]
    assert 0 < redis_client.pttl(box("w1")) <= 60_000
    assert queue_of(redis_client) == ["w2"]
    assert redis_client.lock("lock:a", timeout=30).acquire(blocking=False) is False
    assert take(redis_client, "w1") > fence
    assert redis_client.pttl("lock:a") > CLAIM


def test_who_was_given_the_lock_has_it_for_its_lease_however_short(
    redis_client: redis.Redis,
) -> None:
    take(redis_client)
    queue(redis_client, "w1", lease=200)
    let_go(redis_client)

    # Shorter than it was given for. Else nobody follows at its end, should it be killed.
    assert ask(redis_client, "w1", 200)[0] == b"OK"
    assert redis_client.pttl("lock:a") <= 200


@ways
def test_who_gives_up_what_it_was_given_leaves_it_to_the_next(
    redis_client: redis.Redis, how: str
) -> None:
    take(redis_client)
    queue(redis_client, "w1", "w2")
    let_go(redis_client)

    assert let_go(redis_client, "w1", how) == ["w2"]
    assert value_of(redis_client) == "w2"


@pytest.mark.parametrize(("token", "how"), [("holder", ""), ("w1", "cancel"), ("w1", "doubt")])
def test_who_leaves_a_lock_that_is_free_gives_it_to_who_waits(
    redis_client: redis.Redis, token: str, how: str
) -> None:
    take(redis_client)
    queue(redis_client, "w1", "w2")
    redis_client.delete("lock:a")

    assert let_go(redis_client, token, how) == ["w1" if token == "holder" else "w2"]


# Looks


def given_to_the_first(client: redis.Redis, *waiters: str) -> None:
    take(client)
    queue(client, *waiters)
    assert let_go(client) == ["w1"]


def test_a_lock_whose_mail_is_not_fetched_goes_to_the_next(redis_client: redis.Redis) -> None:
    given_to_the_first(redis_client, "w1", "w2", "w3")

    assert look(redis_client, "w1") == ["w2"]

    assert value_of(redis_client) == "w2"
    assert 0 < redis_client.pttl("lock:a") <= CLAIM
    # Who was passed over keeps its place.
    assert queue_of(redis_client) == ["w1", "w3"]
    take(redis_client, "w2")
    assert let_go(redis_client, "w2") == ["w1"]


def test_one_that_was_fetched_is_left_to_who_fetched_it_and_another_is_roused(
    redis_client: redis.Redis,
) -> None:
    given_to_the_first(redis_client, "w1", "w2")
    fetch(redis_client, "w1")

    # Should the first not come, this one asks when the claim is over.
    assert look(redis_client, "w1") == ["w2"]

    assert value_of(redis_client) == "w1"
    (reply,) = queue(redis_client, "w2")
    assert 0 < reply[1] <= CLAIM
    take(redis_client, "w1")
    assert look(redis_client, "w1") == []
    assert value_of(redis_client) == "w1"


def test_a_look_passes_by_those_who_ask_no_more(redis_client: redis.Redis) -> None:
    given_to_the_first(redis_client, "w1", "w2", "w3")
    let_lapse(redis_client, "w2")

    assert look(redis_client, "w1") == ["w3"]


def test_behind_another_program_the_next_is_woken_to_ask_on(redis_client: redis.Redis) -> None:
    given_to_the_first(redis_client, "w1", "w2")
    redis_client.set("lock:a", "somebody", px=60_000)

    assert look(redis_client, "w1") == ["w2"]

    assert woken(redis_client, "w2") == ["w2"]
    assert value_of(redis_client) == "somebody"


def test_a_permit_that_nobody_fetches_goes_to_the_next(redis_client: redis.Redis) -> None:
    permits = [f"permit:2:w{number}" for number in range(4)]
    for token in permits[:2]:
        take(redis_client, token)
    queue(redis_client, *permits[2:])

    assert let_go(redis_client, permits[0]) == [permits[2]]
    assert look(redis_client, permits[2]) == [permits[3]]

    assert queue_of(redis_client) == [permits[2]]
    assert sorted(redis_client.zrange("{lock:a}:shares", 0, -1)) == [
        permits[1].encode(),
        permits[3].encode(),
    ]


# When a lease ends


def followed_by(client: redis.Redis, lease: int, *waiters: str) -> list[str]:
    """Have a lock of 20 s go to one with a ``lease``; return who is roused."""
    take(client, lease=LONG)
    queue(client, "next", lease=lease)
    queue(client, *waiters)
    let_go(client)
    reply = ask(client, "next", lease)
    assert reply[0] == b"OK"
    return tokens_in(reply[3])


def test_a_shorter_lease_rouses_the_last_waiter_alone(redis_client: redis.Redis) -> None:
    assert followed_by(redis_client, SHORT, "w1", "w2") == ["w2"]
    assert woken(redis_client, "w1", "w2") == ["w2"]


def test_a_longer_lease_rouses_nobody(redis_client: redis.Redis) -> None:
    assert followed_by(redis_client, 2 * LONG, "w1", "w2") == []
    run(redis_client, "renew", "next", "60000")
    assert woken(redis_client, "w1", "w2") == []


@pytest.mark.parametrize("how", ["cancel", "doubt", "its time is over"])
def test_who_leaves_and_was_roused_has_another_asked_in_its_place(
    redis_client: redis.Redis, how: str
) -> None:
    followed_by(redis_client, SHORT, "w1", "w2")
    fetch(redis_client, "w2")
    queue(redis_client, "w2")

    if how == "its time is over":
        assert ask(redis_client, "w2")[3] == b"w1"
    else:
        assert let_go(redis_client, "w2", how) == ["w1"]

    assert woken(redis_client, "w1") == ["w1"]


# Those who hold it together


def test_all_readers_up_to_the_next_writer_are_let_in_at_once(redis_client: redis.Redis) -> None:
    take(redis_client)
    queue(redis_client, "read:1", "read:2", "writer", "read:3")

    assert let_go(redis_client) == ["read:1", "read:2"]

    assert woken(redis_client, "read:1", "read:2", "writer", "read:3") == ["read:1", "read:2"]
    assert queue_of(redis_client) == ["writer", "read:3"]
    take(redis_client, "read:1")
    take(redis_client, "read:2")
    assert let_go(redis_client, "read:1") == []
    assert let_go(redis_client, "read:2") == ["writer"]
    assert value_of(redis_client) == "writer"


def test_readers_and_permits_do_not_mix(redis_client: redis.Redis) -> None:
    take(redis_client, "read:1")
    assert ask(redis_client, "permit:9:1")[0] == b"BUSY"
    let_go(redis_client, "read:1")
    take(redis_client, "permit:9:1")
    assert ask(redis_client, "read:1")[0] == b"BUSY"


def test_a_share_whose_lease_is_over_is_free(redis_client: redis.Redis) -> None:
    first, second, third = (f"permit:2:{number}" for number in range(3))
    take(redis_client, first, lease=SHORT)
    take(redis_client, second)
    word, left, *_ = ask(redis_client, third)
    assert (word, SHORT - 1_000 < left <= SHORT) == (b"BUSY", True)

    redis_client.zadd("{lock:a}:shares", {first: 1})

    take(redis_client, third)
    assert run(redis_client, "renew", first, "-1")[0] == b"LOST"
    assert run(redis_client, "renew", second, "-1")[0] == b"OK"


def test_shares_that_were_left_behind_count_for_nothing(redis_client: redis.Redis) -> None:
    take(redis_client, "read:1", lease=3_600_000)
    redis_client.delete("lock:a")

    take(redis_client, "read:2")

    assert redis_client.zrange("{lock:a}:shares", 0, -1) == [b"read:2"]
    assert run(redis_client, "renew", "read:1", "-1")[0] == b"LOST"


@pytest.mark.parametrize("how", ["", "force"])
def test_the_name_is_taken_for_as_long_as_the_longest_lease(
    redis_client: redis.Redis, how: str
) -> None:
    take(redis_client, "read:long", lease=60_000)
    take(redis_client, "read:short", lease=10_000)
    queue(redis_client, "writer")
    assert 50_000 < redis_client.pttl("lock:a") <= 60_000

    # Who waits hears of it, in its turn.
    assert let_go(redis_client, "read:long", how) == ["writer"]

    assert 0 < redis_client.pttl("lock:a") <= 10_000
    assert value_of(redis_client) != "writer"


def test_of_those_who_hold_it_one_that_does_is_named(redis_client: redis.Redis) -> None:
    for number, lease in enumerate((LEASE, LEASE // 2)):
        about = f'{{"label":"reader {number}"}}'
        run(redis_client, "acquire", f"read:{number}", str(lease), about, "0", "")

    let_go(redis_client, "read:1")

    assert ask(redis_client, "writer")[2] == b'{"label":"reader 0"}'


# The index


def test_a_lock_that_somebody_met_or_waits_for_is_listed(redis_client: redis.Redis) -> None:
    take(redis_client)
    assert redis_client.zscore(INDEX, "lock:a") is None

    assert ask(redis_client, "other")[0] == b"BUSY"

    ends = redis_client.zscore(INDEX, "lock:a") or 0
    assert LEASE - 5_000 < ends - server_ms(redis_client) <= LEASE
    let_go(redis_client)
    assert redis_client.zscore(INDEX, "lock:a") is None


def test_a_name_that_is_entered_sweeps_those_that_ended_long_ago(
    redis_client: redis.Redis,
) -> None:
    redis_client.zadd(INDEX, {"lock:crashed": 1})
    take(redis_client)

    ask(redis_client, "other")

    assert redis_client.zrange(INDEX, 0, -1) == [b"lock:a"]
