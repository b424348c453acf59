from __future__ import annotations

import json
from typing import Any

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import Holder, values
from django_setnx_lock.core.protocol import commands, replies, scripts
from django_setnx_lock.core.protocol.commands import PROTOCOLS, READERS
from django_setnx_lock.core.protocol.keys import lock_keys

KEYS = lock_keys("lock:a")
COMMAND_SETS: list[Any] = [*PROTOCOLS.values(), READERS]


@pytest.mark.parametrize(
    ("seconds", "ms"), [(1, 1000), (0.001, 1), (2.5, 2500), (0.0019, 1), (86400, 86_400_000)]
)
def test_seconds_become_whole_milliseconds(seconds: float, ms: int) -> None:
    assert values.milliseconds(seconds, "timeout") == ms


def test_a_request_runs_as_evalsha_takes_it() -> None:
    request = commands.SETNX.check(KEYS, "t")

    assert request.script is scripts.CHECK
    assert request.arguments == (
        "5", "lock:a", "{lock:a}:waiters", "{lock:a}:alive", "{lock:a}:gone:t", "{lock:a}:meta",
        "t",
    )  # fmt: skip


@pytest.mark.parametrize("word", ["OK", b"OK"], ids=repr)
def test_a_grant_carries_its_fence(word: Any) -> None:
    assert replies.read_acquire([word, b"17"]) == replies.Granted(17)


def test_a_busy_answer_carries_holder_and_what_is_left() -> None:
    record = Holder(host="web1", pid=7)

    answer = replies.read_acquire([b"BUSY", 1500, b"ours", record.to_json().encode()])

    assert answer == replies.Busy(1.5, record)


@pytest.mark.parametrize("word", ["baton", b"baton"], ids=repr)
def test_a_busy_answer_about_a_lock_that_changes_hands_knows_how_long_at_most(word: Any) -> None:
    answer = replies.read_acquire(["BUSY", 1000, word])

    assert answer == replies.Busy(1.0, None, handed_on=True)


@pytest.mark.parametrize("word", ["foreign", b"foreign"], ids=repr)
def test_a_busy_answer_about_a_foreign_lock_without_end_says_only_that(word: Any) -> None:
    answer = replies.read_acquire(["BUSY", -1, word])

    assert answer == replies.Busy(None, None, foreign=True)


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
    assert replies.read_handed_on(reply) == head


@pytest.mark.parametrize(
    "read", [replies.read_acquire, lambda r: replies.read_kept(r, "a")], ids=["acquire", "kept"]
)
def test_an_answer_no_script_gives_is_not_taken_for_one(read: Any) -> None:
    with pytest.raises(AssertionError, match="WAT"):
        read([b"WAT", b"x"])


def test_a_lost_lock_tells_who_took_it_and_why() -> None:
    mark = json.dumps({"by": "joe", "reason": "stuck"}).encode()

    with pytest.raises(LockLost, match=r"'a' was force-released by joe: stuck") as caught:
        replies.read_kept([b"LOST", mark], "a")

    assert (caught.value.key, caught.value.forced_by, caught.value.reason) == ("a", "joe", "stuck")


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "mark",
    [None, b"left", b"released", b"[]", b"{", b"7", b"[" * 100_000],
    ids=lambda mark: repr(mark)[:9],
)
def test_a_lock_lost_to_nobody_known_says_its_lease_ran_out(mark: bytes | None) -> None:
    with pytest.raises(LockLost, match="lease ran out") as caught:
        replies.read_kept([b"LOST", mark], "a")

    assert caught.value.forced_by == ""


def test_a_force_release_without_a_name_was_by_an_operator() -> None:
    mark = json.dumps({"by": "", "reason": ""})

    assert str(replies.lost("a", mark)) == "the lock 'a' was force-released by an operator"


def test_who_took_it_and_why_are_told_in_one_short_line() -> None:
    mark = json.dumps({"by": "joe\n\udce4", "reason": "x\nERROR forged\x1b[2J" + "x" * 1_000_000})

    lost = replies.lost("a", mark)

    assert str(lost).startswith(
        r"the lock 'a' was force-released by joe\n\udce4: x\nERROR forged\x1b[2Jx"
    )
    assert len(str(lost)) < 600
    assert lost.forced_by == r"joe\n\udce4"
    assert lost.reason.startswith(r"x\nERROR forged\x1b[2Jx")


@pytest.mark.parametrize("value", ["7", "null", "[]", '{"a":1}', "NaN", "true"])
def test_a_mark_whose_texts_are_none_was_made_by_an_operator(value: str) -> None:
    mark = f'{{"by":{value},"reason":{value}}}'

    assert str(replies.lost("a", mark)) == "the lock 'a' was force-released by an operator"


@pytest.mark.parametrize("command_set", COMMAND_SETS, ids=[*PROTOCOLS, "shared"])
def test_who_takes_it_and_why_are_sent_in_one_short_line(command_set: Any) -> None:
    request = command_set.force_release(KEYS, None, b"t", None, "joe\n", "x" * 1_000_000)

    (mark,) = [one for one in request.args if str(one).startswith("{")]
    assert json.loads(mark) == {"by": r"joe\n", "reason": "x" * 499 + "…"}


@pytest.mark.parametrize("value", [b"caf\xe9", "caf\\xe9"])
def test_a_reply_is_text_whatever_its_bytes(value: Any) -> None:
    assert replies.text(value) == "caf\\xe9"
