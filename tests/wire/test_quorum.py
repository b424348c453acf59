from __future__ import annotations

import json
from typing import Any

import pytest
from redis import exceptions as redis_exceptions

from django_setnx_lock.core import Holder
from django_setnx_lock.core.protocol import quorum, replies

DEAD = redis_exceptions.ConnectionError("refused")
OK = [b"OK", 1]
ANN = Holder(host="ann").to_json().encode()
BUSY = [b"BUSY", 5000, b"ours", ANN]
FOREIGN = [b"BUSY", -1, b"foreign"]
GONE = [b"GONE"]
KEPT = [b"OK", 10_000]
LOST = [b"LOST", None]


@pytest.mark.parametrize(("count", "needed"), [(3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(count: int, needed: int) -> None:
    assert quorum.majority(count) == needed


def test_the_drift_is_one_per_cent_and_two_milliseconds() -> None:
    assert quorum.drift(30) == pytest.approx(0.302)


@pytest.mark.parametrize("seconds", [0.3, 1, 30, 86400])
def test_of_the_lease_that_is_asked_for_the_seconds_wanted_are_left(seconds: float) -> None:
    asked = quorum.lease_for(seconds)

    assert asked - quorum.drift(asked) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ([OK, OK, OK, OK, OK], replies.Granted),
        ([OK, OK, OK, DEAD, DEAD], replies.Granted),
        ([OK, OK, OK, BUSY, BUSY], replies.Granted),
        ([BUSY, BUSY, BUSY, OK, OK], replies.Busy),
        # Two took it at once and nobody has a majority.
        ([OK, OK, BUSY, BUSY, GONE], replies.Busy),
        # As many as are needed could be asked, and one of them is somebody else's.
        ([OK, OK, BUSY, DEAD, DEAD], replies.Busy),
        ([OK, OK, DEAD, DEAD, DEAD], type(None)),
        ([BUSY, BUSY, DEAD, DEAD, DEAD], type(None)),
        # Of four, two are no majority.
        ([OK, OK, DEAD, DEAD], type(None)),
        ([OK, OK, BUSY, BUSY], replies.Busy),
    ],
)
def test_what_the_answers_to_a_taking_come_to(replies: list[Any], kind: type) -> None:
    assert type(quorum.read_acquires(replies)) is kind


def test_a_busy_lock_is_held_by_who_has_most_of_it_for_as_long_as_the_last_of_these() -> None:
    longer = [b"BUSY", 7000, b"ours", ANN]

    answer = quorum.read_acquires([BUSY, longer, FOREIGN, OK, DEAD])

    assert answer == replies.Busy(remaining=7.0, holder=Holder(host="ann"))


def test_a_busy_lock_that_never_expires_somewhere_has_no_end() -> None:
    answer = quorum.read_acquires([FOREIGN, [b"BUSY", 7000, b"foreign"], DEAD])

    assert answer == replies.Busy(remaining=None, holder=None)


def test_a_taking_that_all_had_given_up_is_busy_without_holder() -> None:
    assert quorum.read_acquires([GONE, GONE, GONE]) == replies.Busy(remaining=0.0, holder=None)


@pytest.mark.parametrize(
    ("replies", "word"),
    [
        ([KEPT, KEPT, KEPT, DEAD, DEAD], "OK"),
        ([KEPT, KEPT, KEPT, LOST, LOST], "OK"),
        ([LOST, LOST, LOST, KEPT, KEPT], "LOST"),
        ([LOST, LOST, LOST, DEAD, DEAD], "LOST"),
        ([KEPT, KEPT, LOST, LOST, DEAD], None),
        ([KEPT, KEPT, DEAD, DEAD, DEAD], None),
        ([LOST, LOST, DEAD, DEAD, DEAD], None),
        ([KEPT, KEPT, LOST, LOST], "LOST"),
    ],
)
def test_what_the_answers_to_a_renewal_come_to(replies: list[Any], word: str | None) -> None:
    reply = quorum.read_kept(replies)

    assert (reply and reply[0]) == word


def test_a_renewal_has_given_what_a_majority_has_less_the_drift() -> None:
    replies = [[b"OK", ms] for ms in (9000, 10_000, 20_000, 1000, 30_000)]

    reply = quorum.read_kept(replies)

    # The third longest, less 1 % and 2 ms.
    assert reply == ["OK", 9898]


def test_a_release_tells_of_nobody_to_look_after() -> None:
    assert quorum.read_kept([[b"OK", b"waiter"], [b"OK", None], DEAD]) == ["OK", None]


def test_a_lease_without_end_stays_one() -> None:
    assert quorum.read_kept([[b"OK", -1], [b"OK", -1], [b"OK", 5]]) == ["OK", -1]


def test_a_loss_tells_who_took_it_by_force() -> None:
    forced = json.dumps({"by": "joe", "reason": "stuck"})

    reply = quorum.read_kept([LOST, [b"LOST", forced.encode()], [b"LOST", b"left"]])

    assert reply == ["LOST", forced]


@pytest.mark.parametrize(
    ("replies", "held"),
    [
        ([1, 1, 1, 0, 0], True),
        ([1, 1, 0, 0, 0], False),
        ([1, 1, 1, DEAD, DEAD], True),
        ([1, 1, DEAD, DEAD, DEAD], None),
        # Nobody can get three of four any more.
        ([1, 1, 0, 0], True),
    ],
)
def test_a_lock_is_held_where_nobody_can_have_a_majority(
    replies: list[Any], held: bool | None
) -> None:
    assert quorum.may_be_held(replies) is held


def test_a_request_to_stop_at_one_master_is_heard() -> None:
    reply = quorum.read_kept([[b"OK", 1000], [b"OK", 1000, b'{"stop":{}}'], [b"OK", 1000]])

    assert reply == ["OK", 988, b'{"stop":{}}']
