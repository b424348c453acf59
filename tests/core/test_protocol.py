from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest

from django_setnx_lock.core import protocol, scripts
from django_setnx_lock.core.errors import LockError, LockLost
from django_setnx_lock.core.holder import Holder
from django_setnx_lock.core.keys import lock_keys

KEYS = lock_keys("lock:a")
NO_SECONDS = [True, False, "5", b"5", [5], Decimal(5), dt.timedelta(seconds=5)]
NOT_POSITIVE = [0, -1, -0.5, 0.0, math.nan, math.inf, -math.inf, 0.0009]


@pytest.mark.parametrize(
    ("seconds", "ms"), [(1, 1000), (0.001, 1), (2.5, 2500), (0.0019, 1), (86400, 86_400_000)]
)
def test_seconds_become_whole_milliseconds(seconds: float, ms: int) -> None:
    assert protocol.milliseconds(seconds, "timeout") == ms


@pytest.mark.parametrize("seconds", [None, *NO_SECONDS], ids=repr)
def test_a_lease_that_is_no_number_is_refused(seconds: object) -> None:
    with pytest.raises(ValueError, match="timeout is a number of seconds, not"):
        protocol.milliseconds(seconds, "timeout")


@pytest.mark.parametrize("seconds", NOT_POSITIVE, ids=repr)
def test_a_lease_that_is_not_positive_and_finite_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"at least 0\.001 and finite"):
        protocol.milliseconds(seconds, "timeout")


@pytest.mark.parametrize("seconds", [10**400, 1e300, 1e15], ids=["10**400", "1e300", "1e15"])
def test_a_lease_longer_than_redis_can_count_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        protocol.milliseconds(seconds, "timeout")


@pytest.mark.parametrize("seconds", [None, 0, 0.5, 10])
def test_a_waiting_time_may_be_none_or_zero(seconds: float | None) -> None:
    assert protocol.waiting_time(seconds) == seconds


@pytest.mark.parametrize("seconds", NO_SECONDS, ids=repr)
def test_a_waiting_time_that_is_no_number_is_refused(seconds: object) -> None:
    with pytest.raises(ValueError, match="blocking_timeout is a number of seconds or None"):
        protocol.waiting_time(seconds)


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf], ids=repr)
def test_a_waiting_time_below_zero_or_endless_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite number >= 0 or None"):
        protocol.waiting_time(seconds)


def test_a_waiting_time_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ValueError, match="blocking_timeout"):
        protocol.waiting_time(10**400)


def test_a_request_runs_as_evalsha_takes_it() -> None:
    request = protocol.check(KEYS, "t")

    assert request.script is scripts.CHECK
    assert request.arguments == (
        "4", "lock:a", "{lock:a}:waiters", "{lock:a}:alive", "{lock:a}:gone:t", "t",
    )  # fmt: skip


def test_a_request_goes_out_without_ints() -> None:
    request = protocol.acquire(KEYS, None, "t", 30_000, "{}", 0)

    assert [type(word) for word in request.arguments] == [str] * len(request.arguments)


@pytest.mark.parametrize(
    ("with_index", "without"),
    [
        (
            protocol.acquire(KEYS, "i", "t", 1, "{}", 0),
            protocol.acquire(KEYS, None, "t", 1, "{}", 0),
        ),
        (protocol.release(KEYS, "i", "t"), protocol.release(KEYS, None, "t")),
        (protocol.leave(KEYS, "i", "t"), protocol.leave(KEYS, None, "t")),
        (protocol.renew(KEYS, "i", "t", 1, "least"), protocol.renew(KEYS, None, "t", 1, "least")),
        (protocol.force(KEYS, "i", b"t", "", ""), protocol.force(KEYS, None, b"t", "", "")),
        (protocol.inspect(KEYS, "i"), protocol.inspect(KEYS, None)),
    ],
    ids=["acquire", "release", "leave", "renew", "force", "inspect"],
)
def test_the_index_is_the_last_key_when_there_is_one(
    with_index: protocol.Request, without: protocol.Request
) -> None:
    assert with_index.keys == (*without.keys, "i")
    assert with_index.args == without.args


def test_each_addition_to_a_lease_is_another_one() -> None:
    first, second = (protocol.renew(KEYS, None, "t", 1, "add").args[2] for _ in range(2))

    assert first != second


@pytest.mark.parametrize("word", ["OK", b"OK"], ids=repr)
def test_a_grant_carries_its_fence(word: Any) -> None:
    assert protocol.read_acquire([word, b"17"]) == protocol.Granted(17)


def test_a_busy_answer_carries_holder_and_what_is_left() -> None:
    record = Holder(host="web1", pid=7)

    answer = protocol.read_acquire([b"BUSY", 1500, b"ours", record.to_json().encode()])

    assert answer == protocol.Busy(1.5, record)


@pytest.mark.parametrize("word", ["baton", b"baton"], ids=repr)
def test_a_busy_answer_about_a_lock_that_changes_hands_knows_how_long_at_most(word: Any) -> None:
    answer = protocol.read_acquire(["BUSY", 1000, word])

    assert answer == protocol.Busy(1.0, None, handed_on=True)


@pytest.mark.parametrize("word", ["foreign", b"foreign"], ids=repr)
def test_a_busy_answer_about_a_foreign_lock_without_end_says_only_that(word: Any) -> None:
    answer = protocol.read_acquire(["BUSY", -1, word])

    assert answer == protocol.Busy(None, None, foreign=True)


def test_a_token_that_was_given_up_is_gone() -> None:
    assert protocol.read_acquire(["GONE"]) == protocol.Gone()


@pytest.mark.parametrize(
    ("reply", "head"),
    [
        ([b"OK", b"t2"], "t2"),
        (["OK", "t2"], "t2"),
        ([b"OK", None], None),
        ([b"OK"], None),
        ([b"LOST", None, b"t2"], "t2"),
        ([b"LOST", b"left", None], None),
        ([b"LOST", b"left"], None),
        ([b"CHANGED"], None),
        ([b"FREE"], None),
    ],
    ids=repr,
)
def test_an_answer_tells_whom_to_look_after(reply: list[Any], head: str | None) -> None:
    assert protocol.read_handed_on(reply) == head


@pytest.mark.parametrize(
    "read", [protocol.read_acquire, lambda r: protocol.read_kept(r, "a")], ids=["acquire", "kept"]
)
def test_an_answer_no_script_gives_is_not_taken_for_one(read: Any) -> None:
    with pytest.raises(AssertionError, match="WAT"):
        read([b"WAT", b"x"])


def test_a_lost_lock_tells_who_took_it_and_why() -> None:
    mark = json.dumps({"by": "joe", "reason": "stuck"}).encode()

    with pytest.raises(LockLost, match=r"'a' was force-released by joe: stuck") as caught:
        protocol.read_kept([b"LOST", mark], "a")

    assert (caught.value.key, caught.value.forced_by, caught.value.reason) == ("a", "joe", "stuck")


@pytest.mark.parametrize("mark", [None, b"left", b"released", b"[]", b"{", b"7"])
def test_a_lock_lost_to_nobody_known_says_its_lease_ran_out(mark: bytes | None) -> None:
    with pytest.raises(LockLost, match="lease ran out") as caught:
        protocol.read_kept([b"LOST", mark], "a")

    assert caught.value.forced_by == ""


def test_a_force_release_without_a_name_was_by_an_operator() -> None:
    mark = json.dumps({"by": "", "reason": ""})

    assert str(protocol.lost("a", mark)) == "the lock 'a' was force-released by an operator"


def test_a_kept_lock_gives_the_rest_of_the_answer() -> None:
    assert protocol.read_kept([b"OK", 900], "a")[1] == 900


@pytest.mark.parametrize("value", [b"caf\xe9", "caf\\xe9"])
def test_a_reply_is_text_whatever_its_bytes(value: Any) -> None:
    assert protocol.text(value) == "caf\\xe9"


def test_what_is_left_of_a_lease_is_in_seconds() -> None:
    assert protocol.seconds_left(1500) == 1.5
    assert protocol.seconds_left(0) == 0
    assert protocol.seconds_left(-1) is None


def test_a_value_error_about_a_time_is_no_lock_error() -> None:
    with pytest.raises(ValueError, match="timeout") as caught:
        protocol.milliseconds(0, "timeout")

    assert not isinstance(caught.value, LockError)
