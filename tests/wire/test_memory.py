"""What Redis remembers of a token that is over outlasts copies of its requests that come late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import Inspector, RedisLock
from tests.support.locks import holder
from tests.wire.helpers import send
from tests.wire.queueing import caller, claim

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle


def released_then_asked_late(client: redis.Redis) -> LockHandle:
    """Release a lock that another takes; then comes a copy of the acquire, which waits not."""
    turn = caller(client)
    late = turn.request(waits=False)
    held = claim(turn)
    # Applied, but the answer is lost.
    send(client, held.grant.releasing())
    holder(client)
    send(client, late)
    return held


def test_a_release_sent_again_is_no_loss_although_a_copy_of_the_acquire_came_between(
    redis_client: redis.Redis,
) -> None:
    held = released_then_asked_late(redis_client)

    held.release()

    assert held.released


def test_who_was_forced_out_learns_by_whom_although_a_copy_of_the_acquire_came_between(
    redis_client: redis.Redis,
) -> None:
    inspector = Inspector(redis_client, "lock:")
    turn = caller(redis_client)
    late = turn.request(waits=False)
    held = claim(turn)
    inspector.force_release("lock:a", inspector.get("lock:a").fingerprint, by="joe")
    RedisLock(redis_client, "lock:a").take(0)
    send(redis_client, late)

    with pytest.raises(LockLost, match="by joe"):
        held.check()
