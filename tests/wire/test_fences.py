"""What is remembered of the last fence is never gone below, whatever the server's clock says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.locks import holder

if TYPE_CHECKING:
    import redis

# A time of the year 2112, as a server has left it whose clock ran ahead.
AHEAD = 4_500_000_000_000_000


def test_a_fence_is_larger_than_one_of_a_clock_that_ran_ahead(redis_client: redis.Redis) -> None:
    redis_client.set("{lock:a}:meta", f"{AHEAD} 5 token {{}} ", px=60_000)

    with holder(redis_client) as held:
        assert held.fence == AHEAD + 1


def test_fence_and_record_outlast_the_lease_however_it_is_extended(
    redis_client: redis.Redis,
) -> None:
    with holder(redis_client, 1) as held:
        held.extend(600)

        assert redis_client.pttl("{lock:a}:meta") > redis_client.pttl("lock:a") > 600_000
