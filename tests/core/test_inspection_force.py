from __future__ import annotations

import pytest
import redis

from django_setnx_lock import LockLost
from django_setnx_lock.core import Inspector, LockInfo, Outcome
from tests.core.helpers import INDEX, listed


def test_a_force_release_frees_the_lock_that_was_seen(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a").take()
    seen = inspector.get("lock:a")

    outcome = inspector.force_release("lock:a", seen.fingerprint, by="joe", reason="stuck")

    assert outcome is Outcome.RELEASED
    assert not redis_client.exists("lock:a", INDEX)


@pytest.mark.parametrize("what", ["check", "release", "reacquire"])
def test_the_old_holder_learns_who_took_its_lock_and_why(
    redis_client: redis.Redis, inspector: Inspector, what: str
) -> None:
    held = listed(redis_client, "a").take()
    seen = inspector.get("lock:a")
    inspector.force_release("lock:a", seen.fingerprint, by="joé", reason='it said "stuck"')
    listed(redis_client, "a").take()

    with pytest.raises(LockLost, match='force-released by joé: it said "stuck"') as caught:
        getattr(held, what)()

    assert caught.value.forced_by == "joé"
    assert caught.value.reason == 'it said "stuck"'
    assert redis_client.exists("lock:a")


def test_a_forced_out_holder_is_told_for_as_long_as_its_lease_would_have_lasted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", timeout=7200).take()
    seen = inspector.get("lock:a")

    inspector.force_release("lock:a", seen.fingerprint, by="joe")

    assert redis_client.pttl("{lock:a}:gone:" + held.token) > 7_100_000


def test_the_next_caller_has_the_lock_after_a_force_release(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    first = listed(redis_client, "a").take()
    inspector.force_release("lock:a", inspector.get("lock:a").fingerprint)

    assert listed(redis_client, "a").take(0).fence > first.fence


def test_a_lock_that_changed_hands_is_not_released(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"):
        seen = inspector.get("lock:a")
    now = listed(redis_client, "a").take()

    outcome = inspector.force_release("lock:a", seen.fingerprint, by="joe")

    assert outcome is Outcome.CHANGED_HANDS
    now.check()


def test_a_lock_that_changes_hands_in_the_middle_is_not_released(
    redis_client: redis.Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listed(redis_client, "a").take()
    seen = inspector.get("lock:a")

    def get_and_then_change(self: Inspector, name: str) -> LockInfo:
        first.release()
        listed(redis_client, "a").take()
        return seen

    monkeypatch.setattr(Inspector, "get", get_and_then_change)

    assert inspector.force_release("lock:a", seen.fingerprint) is Outcome.CHANGED_HANDS
    assert redis_client.exists("lock:a")


def test_a_lock_released_in_the_middle_is_free(
    redis_client: redis.Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listed(redis_client, "a").take()
    seen = inspector.get("lock:a")

    def get_and_then_release(self: Inspector, name: str) -> LockInfo:
        first.release()
        return seen

    monkeypatch.setattr(Inspector, "get", get_and_then_release)

    assert inspector.force_release("lock:a", seen.fingerprint) is Outcome.FREE


def test_a_free_lock_cannot_be_force_released(inspector: Inspector) -> None:
    assert inspector.force_release("lock:a", "") is Outcome.FREE
    assert inspector.force_release("lock:a", "0" * 32) is Outcome.FREE


def test_an_empty_fingerprint_releases_nothing(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a").take()

    assert inspector.force_release("lock:a", "") is Outcome.CHANGED_HANDS
    held.check()


@pytest.mark.parametrize("value", [b"somebody", b"\xff\x00", b"", "é".encode()], ids=repr)
def test_a_foreign_lock_can_be_force_released(
    redis_client: redis.Redis, inspector: Inspector, value: bytes
) -> None:
    redis_client.set("lock:a", value)
    seen = inspector.get("lock:a")

    assert inspector.force_release("lock:a", seen.fingerprint) is Outcome.RELEASED
    assert not redis_client.exists("lock:a")


def test_what_is_no_lock_is_never_removed(redis_client: redis.Redis, inspector: Inspector) -> None:
    redis_client.lpush("lock:a", "x")

    assert inspector.force_release("lock:a", "") is Outcome.FREE
    assert redis_client.exists("lock:a")
