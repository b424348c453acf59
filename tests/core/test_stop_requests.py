"""An operator asks the holder of a lock to stop: who hears it, and what stays as it is."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockUnsupported
from django_setnx_lock.core import Inspector, LockInfo, MultiLock, Outcome, StopRequest
from django_setnx_lock.signals import lock_stop_requested
from tests.core.helpers import listed
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """Give what is told of requests to stop."""
    found: list[dict[str, Any]] = []

    def listen(**about: Any) -> None:
        found.append(about)

    lock_stop_requested.connect(listen)
    yield found
    lock_stop_requested.disconnect(listen)


def ask(inspector: Inspector, name: str = "lock:a", reason: str = "deploy") -> Outcome:
    """Ask the holder of now to stop."""
    seen = inspector.get(name).fingerprint
    return inspector.ask_to_stop(name, seen, by="joe", reason=reason)


@pytest.mark.parametrize(
    ("what", "args"),
    [("check", ()), ("owned", ()), ("reacquire", ()), ("extend", (10,)), ("extend", (10, True))],
)
def test_the_holder_hears_who_asks_it_to_stop_and_why(
    redis_client: redis.Redis, inspector: Inspector, what: str, args: tuple[Any, ...]
) -> None:
    held = listed(redis_client, "a").take()

    outcome = ask(inspector)
    before = held.stop_requested
    getattr(held, what)(*args)

    assert (outcome, before) == (Outcome.ASKED, None)
    assert held.stop_requested is not None
    assert (held.stop_requested.by, held.stop_requested.reason) == ("joe", "deploy")
    assert str(held.stop_requested) == "joe asks to stop: deploy"


def test_a_holder_that_nobody_asked_hears_nothing(
    redis_client: redis.Redis, inspector: Inspector, told: list[dict[str, Any]]
) -> None:
    with listed(redis_client, "b"), listed(redis_client, "a", note=',"stop":{"by":"x"}') as held:
        ask(inspector, "lock:b")
        held.check()
        held.reacquire()

    assert held.stop_requested is None
    assert told == []
    assert inspector.get("lock:a").stop_requested is None


def test_the_lock_stays_held(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a", timeout=20) as held:
        seen = inspector.get("lock:a")
        ask(inspector)
        held.check()
        now = inspector.get("lock:a")

    assert (now.fingerprint, now.state, now.fence) == (seen.fingerprint, seen.state, seen.fence)
    assert now.holder == seen.holder
    assert held.released


def test_a_renewal_brings_it_and_tells_of_it_once(
    redis_client: redis.Redis, inspector: Inspector, told: list[dict[str, Any]]
) -> None:
    with listed(redis_client, "a", timeout=20, template="<x>") as held:
        ask(inspector)
        for _ in range(2):
            held.reacquire()
            held.check()

    (about,) = told
    assert (about["key"], about["template"], about["fence"]) == ("a", "<x>", held.fence)
    assert about["stop_request"] is held.stop_requested
    assert about["held_for"] >= 0


def test_each_handle_of_a_grant_hears_it(
    redis_client: redis.Redis, inspector: Inspector, told: list[dict[str, Any]]
) -> None:
    with (
        listed(redis_client, "a", reentrant=True) as outer,
        listed(redis_client, "a", reentrant=True) as inner,
    ):
        ask(inspector)
        inner.check()

    assert outer.stop_requested is inner.stop_requested is not None
    assert len(told) == 1


def test_the_next_holder_is_not_asked(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a"):
        ask(inspector)
        asked = inspector.get("lock:a").stop_requested
    with listed(redis_client, "a") as held:
        held.check()
        now = inspector.get("lock:a").stop_requested

    assert asked is not None
    assert (held.stop_requested, now) == (None, None)


def test_a_lock_that_changed_hands_is_not_asked(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"):
        seen = inspector.get("lock:a").fingerprint
    with listed(redis_client, "a") as held:
        outcome = inspector.ask_to_stop("lock:a", seen)
        held.check()

    assert outcome is Outcome.CHANGED_HANDS
    assert held.stop_requested is None
    assert inspector.ask_to_stop("lock:a", seen) is Outcome.FREE


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lock_that_changes_hands_in_the_middle_is_not_asked(
    redis_client: redis.Redis,
    inspector: Inspector,
    monkeypatch: pytest.MonkeyPatch,
    is_taken: bool,
) -> None:
    first = listed(redis_client, "a").take()
    seen = inspector.get("lock:a")

    def get_and_then_change(self: Inspector, name: str) -> LockInfo:
        first.release()
        if is_taken:
            listed(redis_client, "a").take()
        return seen

    with monkeypatch.context() as patched:
        patched.setattr(Inspector, "get", get_and_then_change)
        outcome = inspector.ask_to_stop("lock:a", seen.fingerprint)

    assert outcome is (Outcome.CHANGED_HANDS if is_taken else Outcome.FREE)
    assert inspector.get("lock:a").stop_requested is None


def test_a_renewal_reads_the_token_and_the_record_and_nothing_else(
    real_server: RealServer,
) -> None:
    client = real_server.client()

    def reads() -> int:
        return int(client.info("commandstats")["cmdstat_get"]["calls"])

    with listed(client, "a", timeout=20) as held:
        held.reacquire()
        counts = [reads()]
        for _ in range(3):
            held.reacquire()
            counts.append(reads())

    assert {after - before for before, after in itertools.pairwise(counts)} == {2}


def test_who_has_been_asked_is_not_asked_again(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a") as held:
        outcomes = [ask(inspector, reason="first"), ask(inspector, reason="second")]
        held.check()

    assert outcomes == [Outcome.ASKED, Outcome.ASKED_BEFORE]
    assert held.stop_requested is not None
    assert held.stop_requested.reason == "first"


def test_the_operator_sees_that_it_was_asked_and_when(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"):
        before = inspector.get("lock:a")
        ask(inspector)
        after = inspector.get("lock:a")

    assert before.stop_requested is None
    assert after.stop_requested is not None
    assert (after.stop_requested.by, after.stop_requested.reason) == ("joe", "deploy")
    assert before.as_of <= after.stop_requested.at <= after.as_of


def test_texts_of_an_operator_are_made_plain(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a") as held:
        seen = inspector.get("lock:a").fingerprint
        inspector.ask_to_stop("lock:a", seen, by="j\no%1", reason='"}\x1b[2J\u202e' + "x" * 999)
        held.check()

    assert held.stop_requested is not None
    assert held.stop_requested.by == "j\\no%1"
    assert held.stop_requested.reason.startswith('"}\\x1b[2J\\u202exx')
    assert len(held.stop_requested.reason) == 500
    assert held.released


@pytest.mark.parametrize("options", [{"shared": True}, {"limit": 3}], ids=["readers", "permits"])
def test_each_of_several_holders_is_asked_alone(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(listed(redis_client, "a", note=str(number), **options))
            for number in range(2)
        )
        shares = inspector.get("lock:a").shares
        (one,) = [one for one in shares if one.holder and one.holder.note == "1"]
        outcome = inspector.ask_to_stop("lock:a", one.fingerprint, by="joe")
        first.check()
        second.check()
        asked = [one.stop_requested is not None for one in inspector.get("lock:a").shares]

    assert outcome is Outcome.ASKED
    assert first.stop_requested is None
    assert second.stop_requested is not None
    assert sorted(asked) == [False, True]


def test_of_several_keys_the_whole_tells_the_first(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    names = [f"lock:{key}" for key in "abc"]
    with MultiLock(redis_client, names, keys=list("abc")) as held:
        before = held.stop_requested
        ask(inspector, "lock:c", "last")
        ask(inspector, "lock:b", "middle")
        held.check()

    assert before is None
    assert held["a"].stop_requested is None
    assert held["c"].stop_requested is not None
    assert held["b"].stop_requested is held.stop_requested
    assert held.stop_requested is not None
    assert held.stop_requested.reason == "middle"


@pytest.mark.parametrize(
    ("options", "why"),
    [({"protocol": "timestamp"}, "protocol='timestamp'"), ({"polling": True}, "polling=True")],
)
def test_a_holder_that_would_not_hear_it_is_not_asked(
    redis_client: redis.Redis, options: dict[str, Any], why: str
) -> None:
    inspector = Inspector(redis_client, "lock:", unit="ms")
    with listed(redis_client, "a", **options), pytest.raises(LockUnsupported) as refused:
        ask(inspector)

    assert str(refused.value) == (
        f"cannot ask the holder of the lock 'a' to stop: it is held with {why}"
    )


def test_another_program_is_not_asked(redis_client: redis.Redis, inspector: Inspector) -> None:
    redis_client.set("lock:a", "theirs", ex=30)

    with pytest.raises(LockUnsupported, match="it is 'foreign'"):
        ask(inspector)


def test_a_request_leaves_no_key_behind(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a"):
        before = set(redis_client.keys())
        ask(inspector)
        during = set(redis_client.keys())

    assert before == during


@pytest.mark.parametrize(
    "record",
    ["", "[]", '{"stop":1}', '{"stop":{"by":1,"reason":[],"at":"x"}}', '{"stop":' + "[" * 99_999],
)
def test_what_others_wrote_in_a_record_does_no_harm(record: str) -> None:
    read = StopRequest.from_record(record)

    assert read is None or (read.by, read.reason, read.at) == ("", "", 0.0)


def test_a_renewal_in_the_background_brings_it(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a", timeout=1.5, renew=True) as held:
        ask(inspector)
        eventually(lambda: held.stop_requested)

    assert str(held.stop_requested) == "joe asks to stop: deploy"
