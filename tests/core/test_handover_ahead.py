"""What a waiter sends ahead takes the lock that is left to it, and does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core.protocol import commands, replies, scripts
from tests.core.helpers import meta_of, queue_of, send, value_of
from tests.core.queueing import (
    caller,
    holder,
    is_busy,
    is_woken,
    left_to_the_first,
    looked,
    waiters,
)
from tests.faults.controls import take_out

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle
    from django_setnx_lock.core.locks.attempt import AcquireAttempt

pytestmark = pytest.mark.usefixtures("nobody_looks")


def ahead(client: redis.Redis, turn: AcquireAttempt) -> Any:
    """Send what ``turn`` would send ahead; return the raw reply."""
    keys, token = turn.target.keys, turn.token
    return send(client, commands.ahead(keys, None, token, turn.lease_ms, turn.record).take)


def taken_ahead(client: redis.Redis, behind: int = 0) -> list[AcquireAttempt]:
    """Have a lock taken up by the first of some waiters by what it sent ahead."""
    queued = left_to_the_first(client, behind + 1)
    assert replies.read_ahead(ahead(client, queued[0]))
    return queued


def test_it_takes_the_lock_that_is_left_to_its_token(redis_client: redis.Redis) -> None:
    (turn,) = left_to_the_first(redis_client, 1)

    fence = replies.read_ahead(ahead(redis_client, turn))

    assert value_of(redis_client) == turn.token
    assert (meta_of(redis_client).fence, meta_of(redis_client).token) == (fence, turn.token)


def test_it_does_so_for_the_claim_time_only(redis_client: redis.Redis) -> None:
    taken_ahead(redis_client)

    assert 0 < redis_client.pttl("lock:a") <= commands.CLAIM_MS


def free(client: redis.Redis) -> AcquireAttempt:
    return caller(client)


def held_by_another(client: redis.Redis) -> AcquireAttempt:
    client.held = holder(client)  # type: ignore[attr-defined]  # to live as long
    return waiters(client, 1)[0]


def left_to_another(client: redis.Redis) -> AcquireAttempt:
    return left_to_the_first(client, 2)[1]


def held_already(client: redis.Redis) -> AcquireAttempt:
    (turn,) = taken_ahead(client)
    client.pexpire("lock:a", 20_000)
    return turn


def given_up(client: redis.Redis) -> AcquireAttempt:
    (turn,) = left_to_the_first(client, 1)
    client.set(turn.target.keys.tombstone(turn.token), "left")
    return turn


def behind_one_that_would_sleep_too_long(client: redis.Redis) -> AcquireAttempt:
    held = holder(client, 60)
    turn = caller(client, 5)
    assert is_busy(turn)
    waiters(client, 1)
    held.release()
    return turn


@pytest.mark.parametrize(
    "scene",
    [
        free,
        held_by_another,
        left_to_another,
        held_already,
        given_up,
        behind_one_that_would_sleep_too_long,
    ],
)
def test_else_it_changes_nothing(redis_client: redis.Redis, scene: Any) -> None:
    turn = scene(redis_client)
    keys = sorted(redis_client.keys())
    before = value_of(redis_client), queue_of(redis_client), redis_client.pttl("lock:a") > 1000

    reply = ahead(redis_client, turn)

    assert replies.read_ahead(reply) is None
    assert sorted(redis_client.keys()) == keys
    after = value_of(redis_client), queue_of(redis_client), redis_client.pttl("lock:a") > 1000
    assert after == before


def test_the_next_in_the_queue_is_not_woken_for_the_time_of_a_claim(
    redis_client: redis.Redis,
) -> None:
    _, behind = taken_ahead(redis_client, 1)

    assert not is_woken(behind)


def test_who_handed_it_on_looks_again_while_it_may_be_for_the_claim_time_only(
    redis_client: redis.Redis,
) -> None:
    turn, _ = taken_ahead(redis_client, 1)

    assert looked(turn) == turn.token


def test_who_handed_it_on_looks_no_more_once_the_whole_lease_was_had(
    redis_client: redis.Redis,
) -> None:
    turn, _ = taken_ahead(redis_client, 1)
    redis_client.pexpire("lock:a", 20_000)

    assert looked(turn) is None


def test_a_look_leaves_to_the_next_what_nobody_asked_the_whole_lease_for(
    redis_client: redis.Redis,
) -> None:
    turn, behind = taken_ahead(redis_client, 1)
    redis_client.delete("lock:a")

    head = looked(turn)

    assert head == behind.token
    assert is_woken(behind)


def test_without_looking_again_the_next_would_sleep_beside_a_free_lock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "LOOK", "left > CLAIM", "true")
    turn, _ = taken_ahead(redis_client, 1)

    assert looked(turn) is None


def test_the_claim_time_is_the_one_of_the_scripts() -> None:
    assert f"local CLAIM = {commands.CLAIM_MS} " in scripts.LOOK.source


def handoff_confirmed(client: redis.Redis, monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> bool:
    """Tell whether who asks takes the lock for one that need not be looked after."""
    turn, noted = caller(client), []
    monkeypatch.setattr(
        type(turn.watchlist), "handoff_confirmed", lambda _, target, sent: noted.append(target)
    )
    assert is_busy(turn, waits=waits)
    return bool(noted)


@pytest.mark.parametrize("waits", [True, False])
def test_only_who_waits_need_not_look_after_one_that_has_it_for_the_claim_time(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    taken_ahead(redis_client)

    assert handoff_confirmed(redis_client, monkeypatch, waits=waits) is waits


def test_nobody_need_look_after_one_that_has_it_for_longer(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: LockHandle = holder(redis_client)

    assert handoff_confirmed(redis_client, monkeypatch, waits=False)
    held.release()
