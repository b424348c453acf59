from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any, Literal

import pytest
import redis

from django_setnx_lock import LockError, LockLost
from django_setnx_lock.core import LockHandle, RedisLock, clock
from django_setnx_lock.core.protocol import commands
from tests.core.helpers import ask, send


@pytest.fixture
def held(redis_client: redis.Redis) -> LockHandle:
    return RedisLock(redis_client, "lock:a", timeout=30, key="a").take(0)


def test_a_handle_tells_what_it_holds(held: LockHandle, redis_client: redis.Redis) -> None:
    assert held.key == "a"
    assert held.name == "lock:a"
    assert held.client is redis_client
    assert held.timeout == 30
    assert held.fence > 1_500_000_000_000_000
    assert held.is_here
    assert not held.lost
    assert not held.released


def test_a_fresh_lock_is_ours(held: LockHandle) -> None:
    held.check()

    assert held.owned()
    assert held.locked()
    assert 26 < held.remaining() <= 30


def test_a_released_lock_is_nobodys(held: LockHandle, redis_client: redis.Redis) -> None:
    held.release()

    assert held.released
    assert not held.lost
    assert not held.owned()
    assert not held.locked()
    assert held.remaining() == 0.0
    assert not redis_client.exists("lock:a")


def test_releasing_a_second_time_is_an_error(held: LockHandle) -> None:
    held.release()

    with pytest.raises(LockError, match="was released already") as caught:
        held.release()

    assert type(caught.value) is LockError


@pytest.mark.parametrize("what", ["check", "reacquire", "extend"])
def test_a_released_lock_cannot_be_used(held: LockHandle, what: str) -> None:
    held.release()

    with pytest.raises(LockError, match=f"cannot {'extend' if what == 'reacquire' else what}"):
        getattr(held, what)(*[10] if what == "extend" else [])


def test_the_request_to_release_may_arrive_twice(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    request = held.grant.releasing()
    again = [send(redis_client, request) for _ in range(2)]

    assert [reply[0] for reply in again] == [b"OK", b"OK"]


def test_the_second_copy_of_a_release_takes_nothing_from_the_next_holder(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    held.release()
    other = RedisLock(redis_client, "lock:a").take(0)
    request = held.grant.releasing()

    send(redis_client, request)

    assert other.owned()


def test_extending_adds_to_what_is_left(held: LockHandle, redis_client: redis.Redis) -> None:
    assert held.extend(15) is True

    assert 41 < held.remaining() <= 45
    assert 44_000 < redis_client.pttl("lock:a") <= 45_000


def test_extending_can_set_what_is_left_at_the_least(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    held.extend(50, replace_ttl=True)

    assert 46 < held.remaining() <= 50
    assert 49_000 < redis_client.pttl("lock:a") <= 50_000


@pytest.mark.parametrize(
    "options",
    [{}, {"shared": True}, {"limit": 2}, {"polling": True}, {"protocol": "timestamp"}],
    ids=str,
)
def test_no_lease_is_ever_shortened(redis_client: redis.Redis, options: dict[str, Any]) -> None:
    held = RedisLock(redis_client, "lock:a", timeout=30, **options).take(0)

    held.extend(5, replace_ttl=True)

    assert 26 < held.remaining() <= 30
    assert redis_client.pttl("lock:a") > 29_000


def test_a_late_copy_of_an_extension_adds_nothing(redis_client: redis.Redis) -> None:
    held = RedisLock(redis_client, "lock:a", timeout=30).take(0)
    copy = held.extending(15, replace_ttl=False)
    send(redis_client, copy)

    send(redis_client, copy)

    assert 44_000 < redis_client.pttl("lock:a") <= 45_000


def test_reacquiring_starts_the_lease_anew(held: LockHandle, redis_client: redis.Redis) -> None:
    redis_client.pexpire("lock:a", 5_000)

    assert held.reacquire() is True

    assert 26 < held.remaining() <= 30
    assert 29_000 < redis_client.pttl("lock:a") <= 30_000


def test_the_lease_here_ends_before_that_in_redis(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    held.extend(0.4)

    there = redis_client.pttl("lock:a") / 1000

    # The server's clock is set now and then; the local one is not.
    assert held.remaining() <= there + 0.02


@pytest.mark.parametrize("seconds", [0, -1, True, float("nan"), float("inf"), "5", None], ids=repr)
def test_extending_by_no_time_is_refused(held: LockHandle, seconds: float) -> None:
    with pytest.raises(ValueError, match="additional_time") as caught:
        held.extend(seconds)

    assert not isinstance(caught.value, LockError)


@pytest.mark.parametrize("what", ["check", "release", "reacquire"])
def test_a_lock_somebody_overwrote_is_lost(
    held: LockHandle, redis_client: redis.Redis, what: str
) -> None:
    redis_client.set("lock:a", "somebody", px=30_000)

    with pytest.raises(LockLost, match="no longer ours"):
        getattr(held, what)()

    assert held.lost
    assert held.remaining() == 0.0
    assert not held.owned()
    assert redis_client.get("lock:a") == b"somebody"


def test_a_lock_whose_key_is_no_string_any_more_is_lost(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    redis_client.delete("lock:a")
    redis_client.lpush("lock:a", "x")

    with pytest.raises(LockLost):
        held.release()

    assert redis_client.lrange("lock:a", 0, -1) == [b"x"]


def test_a_lock_is_lost_when_its_lease_is_over_here(
    held: LockHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 60)

    assert held.lost
    assert held.remaining() == 0.0
    with pytest.raises(LockLost, match="lease of the lock 'a' ran out"):
        held.check()


def test_a_lease_that_is_over_here_is_not_extended(
    held: LockHandle, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 60)

    with pytest.raises(LockLost):
        held.extend(60)

    assert redis_client.pttl("lock:a") <= 30_000


def test_a_loss_is_final_even_if_the_token_reappears(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    redis_client.set("lock:a", "somebody")
    with pytest.raises(LockLost):
        held.check()

    redis_client.set("lock:a", held.token)

    assert held.lost
    with pytest.raises(LockLost):
        held.check()


def test_a_handle_may_be_released_by_another_thread(held: LockHandle) -> None:
    thread = threading.Thread(target=held.release)

    thread.start()
    thread.join(10)

    assert held.released
    assert not held.locked()


def test_finishing_after_a_body_that_succeeded_raises_what_went_wrong(
    held: LockHandle, redis_client: redis.Redis
) -> None:
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        held.finish(None)


def test_finishing_never_hides_the_error_of_the_body(
    held: LockHandle, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.delete("lock:a")
    body_error = RuntimeError("the body's own")

    with caplog.at_level(logging.WARNING, logger="django_setnx_lock"):
        held.finish(body_error)

    assert "'a' is no longer ours" in caplog.text
    if sys.version_info >= (3, 11):
        shown = "".join(traceback.format_exception(body_error))
        assert "the lock 'a' is no longer ours" in shown


def test_finishing_can_log_instead_of_raising(
    held: LockHandle, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.delete("lock:a")

    with caplog.at_level(logging.WARNING, logger="django_setnx_lock"):
        held.finish(None, raise_on_release_error=False)

    assert [record.name for record in caplog.records] == ["django_setnx_lock.lock"]


def test_finishing_a_lock_the_body_released_does_nothing(held: LockHandle) -> None:
    held.release()

    held.finish(None)

    assert held.released


@pytest.mark.parametrize("state", ["held", "released", "lost"])
def test_a_handle_shows_its_state_and_never_its_token(
    held: LockHandle, redis_client: redis.Redis, state: str
) -> None:
    if state == "released":
        held.release()
    if state == "lost":
        redis_client.delete("lock:a")
        assert not held.owned()

    shown = repr(held)

    assert shown == f"<LockHandle 'a' fence={held.fence} {state}>"
    assert held.token not in shown


@pytest.mark.parametrize("late", ["acquire", "reacquire"])
def test_a_late_copy_of_a_request_does_not_cut_what_was_added_since(
    redis_client: redis.Redis, late: Literal["acquire", "reacquire"]
) -> None:
    turn = RedisLock(redis_client, "lock:a", timeout=5).attempt()
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    copy = turn.request(waits=False)
    if late == "reacquire":
        copy = commands.SETNX.renew(turn.target.keys, None, held.token, 5_000)
    held.extend(100)

    send(redis_client, copy)

    assert redis_client.pttl("lock:a") > 100_000


def test_reacquire_keeps_what_was_added_to_the_lease(redis_client: redis.Redis) -> None:
    held = RedisLock(redis_client, "lock:a", timeout=5).take()
    held.extend(100)

    held.reacquire()

    assert held.remaining() > 100
    assert redis_client.pttl("lock:a") > 100_000
