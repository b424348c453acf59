"""The queue, and a lock that goes from one to the next; the scripts alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.locks import queue_of, server_ms, text, value_of
from tests.wire.running import CLAIM, INDEX, LEASE, RECORD, SLICE, Wire, box, keys, tokens_in

LATE = 2_000
LONG, SHORT = 20_000, 3_000
ways = pytest.mark.parametrize("how", ["", "repeat", "cancel", "doubt", "force"])


# The queue


def test_who_asks_again_keeps_its_place(wire: Wire) -> None:
    wire.take()
    wire.queue("w1", "w2", "w3")
    wire.queue("w3", "w1", "w1")

    assert queue_of(wire.client) == ["w1", "w2", "w3"]


def test_who_comes_later_is_later_though_the_clock_was_stepped_back(wire: Wire) -> None:
    ahead = 9_000_000_000_000_000
    wire.take()
    wire.client.zadd("{lock:a}:waiters", {"early": ahead})
    wire.queue("w1", "w2")

    ranks = [wire.client.zscore("{lock:a}:waiters", token) for token in ("w1", "w2")]
    assert ranks == [ahead + 1, ahead + 2]


def test_a_fence_is_larger_though_the_clock_was_stepped_back(wire: Wire) -> None:
    # A time of the year 2112, as a server has left it whose clock ran ahead.
    ahead = 4_500_000_000_000_000
    wire.client.set("{lock:a}:meta", f"{ahead} x {{}}", px=60_000)

    assert wire.take("w1") == ahead + 1
    wire.let_go("w1")
    assert [wire.take(f"read:w{number}") for number in (2, 3)] == [ahead + 2, ahead + 3]


def test_waiters_who_ask_no_more_are_skipped_and_dropped(wire: Wire) -> None:
    wire.take()
    wire.queue("w1", "w2", "w3", "w4")
    wire.let_lapse("w1")
    wire.let_lapse("w2")

    assert wire.let_go() == ["w3"]
    assert queue_of(wire.client) == ["w4"]
    assert sorted(wire.client.hkeys("{lock:a}:waiting")) == [b"w3", b"w4"]


@pytest.mark.parametrize("lease", [5_000, 3_600_000])
def test_a_waiter_and_the_queue_live_for_longer_than_it_may_sleep(wire: Wire, lease: int) -> None:
    before = server_ms(wire.client)
    wire.take(lease=lease)
    wire.queue("w1")
    after = server_ms(wire.client)

    alive, again, *_ = wire.row_of("w1")
    longest = min(lease, SLICE)
    assert before + longest - 2 <= int(again) <= after + longest + 2
    assert int(alive) - int(again) == LATE
    for end in ("waiters", "waiting"):
        assert SLICE + LATE < wire.client.pttl(f"{{lock:a}}:{end}") <= SLICE + 4 * LATE


# Given to the next


@ways
def test_a_lock_that_is_let_go_is_given_to_the_first_for_a_moment(wire: Wire, how: str) -> None:
    fence = wire.take()
    wire.queue("w1", "w2")

    assert wire.let_go(how=how) == ["w1"]
    # A copy changes nothing.
    assert wire.let_go(how=how) == []

    assert value_of(wire.client) == "w1"
    assert 0 < wire.client.pttl("lock:a") <= CLAIM
    assert wire.woken("w1", "w2") == ["w1"]
    assert 0 < wire.client.pttl(box("w1")) <= 60_000
    assert queue_of(wire.client) == ["w2"]
    assert wire.client.lock("lock:a", timeout=30).acquire(blocking=False) is False
    assert wire.take("w1") > fence
    assert wire.client.pttl("lock:a") > CLAIM


def test_who_was_given_the_lock_has_it_for_its_lease_however_short(wire: Wire) -> None:
    wire.take()
    wire.queue("w1", lease=200)
    wire.let_go()

    # Shorter than it was given for. Else nobody follows at its end, should it be killed.
    assert wire.ask("w1", 200)[0] == b"OK"
    assert wire.client.pttl("lock:a") <= 200


@ways
def test_who_gives_up_what_it_was_given_leaves_it_to_the_next(wire: Wire, how: str) -> None:
    wire.take()
    wire.queue("w1", "w2")
    wire.let_go()

    assert wire.let_go("w1", how) == ["w2"]
    assert value_of(wire.client) == "w2"


@pytest.mark.parametrize(("token", "how"), [("holder", ""), ("w1", "cancel"), ("w1", "doubt")])
def test_who_leaves_a_lock_that_is_free_gives_it_to_who_waits(
    wire: Wire, token: str, how: str
) -> None:
    wire.take()
    wire.queue("w1", "w2")
    wire.client.delete("lock:a")

    assert wire.let_go(token, how) == ["w1" if token == "holder" else "w2"]


# Looks


def given_to_the_first(wire: Wire, *waiters: str) -> None:
    wire.take()
    wire.queue(*waiters)
    assert wire.let_go() == ["w1"]


def test_a_lock_whose_mail_is_not_fetched_goes_to_the_next(wire: Wire) -> None:
    given_to_the_first(wire, "w1", "w2", "w3")

    assert wire.look("w1") == ["w2"]

    assert value_of(wire.client) == "w2"
    assert 0 < wire.client.pttl("lock:a") <= CLAIM
    # Who was passed over keeps its place.
    assert queue_of(wire.client) == ["w1", "w3"]
    wire.take("w2")
    assert wire.let_go("w2") == ["w1"]


def test_one_that_was_fetched_is_left_to_who_fetched_it_and_another_is_roused(wire: Wire) -> None:
    given_to_the_first(wire, "w1", "w2")
    wire.fetch("w1")

    # Should the first not come, this one asks when the claim is over.
    assert wire.look("w1") == ["w2"]

    assert value_of(wire.client) == "w1"
    (reply,) = wire.queue("w2")
    assert 0 < reply[1] <= CLAIM
    wire.take("w1")
    assert wire.look("w1") == []
    assert value_of(wire.client) == "w1"


def test_a_look_passes_by_those_who_ask_no_more(wire: Wire) -> None:
    given_to_the_first(wire, "w1", "w2", "w3")
    wire.let_lapse("w2")

    assert wire.look("w1") == ["w3"]


def test_behind_another_program_the_next_is_woken_to_ask_on(wire: Wire) -> None:
    given_to_the_first(wire, "w1", "w2")
    wire.client.set("lock:a", "somebody", px=60_000)

    assert wire.look("w1") == ["w2"]

    assert wire.woken("w2") == ["w2"]
    assert value_of(wire.client) == "somebody"


def test_a_permit_that_nobody_fetches_goes_to_the_next(wire: Wire) -> None:
    permits = [f"permit:2:w{number}" for number in range(4)]
    for token in permits[:2]:
        wire.take(token)
    wire.queue(*permits[2:])

    assert wire.let_go(permits[0]) == [permits[2]]
    assert wire.look(permits[2]) == [permits[3]]

    assert queue_of(wire.client) == [permits[2]]
    assert sorted(wire.client.zrange("{lock:a}:shares", 0, -1)) == [
        permits[1].encode(),
        permits[3].encode(),
    ]


# When a lease ends


def followed_by(wire: Wire, lease: int, *waiters: str) -> list[str]:
    """Have a lock of 20 s go to one with a ``lease``; return who is roused."""
    wire.take(lease=LONG)
    wire.queue("next", lease=lease)
    wire.queue(*waiters)
    wire.let_go()
    reply = wire.ask("next", lease)
    assert reply[0] == b"OK"
    return tokens_in(reply[3])


def test_a_shorter_lease_rouses_the_last_waiter_alone(wire: Wire) -> None:
    assert followed_by(wire, SHORT, "w1", "w2") == ["w2"]
    assert wire.woken("w1", "w2") == ["w2"]


def test_a_longer_lease_rouses_nobody(wire: Wire) -> None:
    assert followed_by(wire, 2 * LONG, "w1", "w2") == []
    wire.run("renew", "next", "60000")
    assert wire.woken("w1", "w2") == []


@pytest.mark.parametrize("how", ["cancel", "doubt", "its time is over"])
def test_who_leaves_and_was_roused_has_another_asked_in_its_place(wire: Wire, how: str) -> None:
    followed_by(wire, SHORT, "w1", "w2")
    wire.fetch("w2")
    wire.queue("w2")

    if how == "its time is over":
        assert wire.ask("w2")[3] == b"w1"
    else:
        assert wire.let_go("w2", how) == ["w1"]

    assert wire.woken("w1") == ["w1"]


# Those who hold it together


def test_all_readers_up_to_the_next_writer_are_let_in_at_once(wire: Wire) -> None:
    wire.take()
    wire.queue("read:1", "read:2", "writer", "read:3")

    assert wire.let_go() == ["read:1", "read:2"]

    assert wire.woken("read:1", "read:2", "writer", "read:3") == ["read:1", "read:2"]
    assert queue_of(wire.client) == ["writer", "read:3"]
    wire.take("read:1")
    wire.take("read:2")
    assert wire.let_go("read:1") == []
    assert wire.let_go("read:2") == ["writer"]
    assert value_of(wire.client) == "writer"


def test_readers_and_permits_do_not_mix(wire: Wire) -> None:
    wire.take("read:1")
    assert wire.ask("permit:9:1")[0] == b"BUSY"
    wire.let_go("read:1")
    wire.take("permit:9:1")
    assert wire.ask("read:1")[0] == b"BUSY"


def test_a_share_whose_lease_is_over_is_free(wire: Wire) -> None:
    first, second, third = (f"permit:2:{number}" for number in range(3))
    wire.take(first, lease=SHORT)
    wire.take(second)
    word, left, *_ = wire.ask(third)
    assert (word, SHORT - 1_000 < left <= SHORT) == (b"BUSY", True)

    wire.client.zadd("{lock:a}:shares", {first: 1})

    wire.take(third)
    assert wire.run("renew", first, "-1")[0] == b"LOST"
    assert wire.run("renew", second, "-1")[0] == b"OK"


def test_shares_that_were_left_behind_count_for_nothing(wire: Wire) -> None:
    wire.take("read:1", lease=3_600_000)
    wire.client.delete("lock:a")

    wire.take("read:2")

    assert wire.client.zrange("{lock:a}:shares", 0, -1) == [b"read:2"]
    assert wire.run("renew", "read:1", "-1")[0] == b"LOST"


def test_a_name_whose_shares_are_gone_is_nobodys_until_its_lease_ends(wire: Wire) -> None:
    # Evicted, or on the way to the node that its slot moves to.
    wire.take("permit:1:1")
    shares = wire.client.dump("{lock:a}:shares")
    wire.client.delete("{lock:a}:shares")

    assert wire.ask("writer")[0] == b"BUSY"
    assert wire.ask("permit:1:2")[0] == b"BUSY"

    wire.client.restore("{lock:a}:shares", 0, shares or b"")
    assert wire.run("renew", "permit:1:1", "-1")[0] == b"OK"


@pytest.mark.parametrize("how", ["", "force"])
def test_the_name_is_taken_for_as_long_as_the_longest_lease(wire: Wire, how: str) -> None:
    wire.take("read:long", lease=60_000)
    wire.take("read:short", lease=10_000)
    wire.queue("writer")
    assert 50_000 < wire.client.pttl("lock:a") <= 60_000

    # Who waits hears of it, in its turn.
    assert wire.let_go("read:long", how) == ["writer"]

    assert 0 < wire.client.pttl("lock:a") <= 10_000
    assert value_of(wire.client) != "writer"


# The index


def test_a_lock_that_somebody_met_or_waits_for_is_listed(wire: Wire) -> None:
    wire.take()
    assert wire.client.zscore(INDEX, "lock:a") is None

    assert wire.ask("other")[0] == b"BUSY"

    ends = wire.client.zscore(INDEX, "lock:a") or 0
    assert LEASE - 5_000 < ends - server_ms(wire.client) <= LEASE
    wire.let_go()
    assert wire.client.zscore(INDEX, "lock:a") is None


def test_a_name_that_is_entered_sweeps_those_that_ended_long_ago(wire: Wire) -> None:
    wire.client.zadd(INDEX, {"lock:crashed": 1})
    wire.take()

    wire.ask("other")

    assert wire.client.zrange(INDEX, 0, -1) == [b"lock:a"]


# Deadlocks


def search(wire: Wire, token: str, held: str, holder: str) -> list[Any]:
    """Say that ``token``, whose caller is the holder of ``held``, waits here; and search."""
    at = (*keys(wire.name)[:2], held)
    found: list[Any] = wire.run("deadlock", token, "5000", RECORD, holder, at=at)
    return [text(one) for one in found]


def test_a_deadlock_that_one_has_found_nobody_else_finds(wire: Wire) -> None:
    other = Wire(wire.client, "lock:b")
    wire.take("ann")
    other.take("bob")
    wire.queue("bob-too")
    other.queue("ann-too")

    # The first has not left the queue yet.
    first = search(other, "ann-too", "lock:a", "ann")
    second = search(wire, "bob-too", "lock:b", "bob")
    third = search(other, "ann-too", "lock:a", "ann")

    assert first == []
    assert sorted(second[1::2]) == ["lock:a", "lock:b"]
    assert third == []
