"""An operator gives a holder more time: who believes it, and what stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnsupported
from django_setnx_lock.core import Inspector, MultiLock, Outcome, RedisLock, State
from tests.core.helpers import PREFIX, listed
from tests.processes import eventually

if TYPE_CHECKING:
    import redis


def extend(inspector: Inspector, seconds: float = 600, name: str = "lock:a") -> Outcome:
    """Give the holder of now more time."""
    return inspector.extend(name, inspector.get(name).fingerprint, seconds, by="joe")


@pytest.mark.parametrize(
    "options", [{}, {"shared": True}, {"limit": 2}, {"polling": True}], ids=str
)
def test_what_is_left_of_the_lease_grows_by_the_time(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    listed(redis_client, "a", timeout=20, **options).take()

    assert extend(inspector) is Outcome.EXTENDED
    assert inspector.get("lock:a").remaining == pytest.approx(620, abs=2)


def test_renewals_cut_nothing(redis_client: redis.Redis, inspector: Inspector) -> None:
    held = listed(redis_client, "a", timeout=20).take()
    extend(inspector)

    held.reacquire()

    assert inspector.get("lock:a").remaining == pytest.approx(620, abs=2)


@pytest.mark.parametrize("what", ["check", "owned", "reacquire"])
def test_the_holder_believes_it_from_its_next_renewal_or_check_on(
    redis_client: redis.Redis, inspector: Inspector, what: str
) -> None:
    held = listed(redis_client, "a", timeout=20).take()
    extend(inspector)
    before = held.remaining()

    getattr(held, what)()

    assert before <= 20
    assert held.remaining() == pytest.approx(620, abs=2)


def test_the_holder_of_several_believes_it_too(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with MultiLock(redis_client, ["lock:a", "lock:b"], timeout=20) as held:
        for name in ("lock:a", "lock:b"):
            extend(inspector, name=name)
        held.check()

        assert held.remaining() == pytest.approx(620, abs=2)


def test_a_check_makes_no_lease_longer_than_it_is_in_redis(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", timeout=20).take()

    held.check()

    # Asked first: what is left only shrinks from then on.
    in_redis = redis_client.pttl("lock:a")
    assert held.remaining() * 1000 <= in_redis + 1


def test_who_did_not_hear_of_it_in_time_takes_the_lock_for_lost_and_nobody_else_gets_it(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a", timeout=0.3).take()
    extend(inspector)
    eventually(lambda: held.lost)

    with pytest.raises(LockLost):
        held.check()
    assert inspector.get("lock:a").state is State.HELD
    assert not listed(redis_client, "a").acquire(blocking=False)


def test_one_of_several_who_hold_it_together_is_extended_alone(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for _ in range(2):
        listed(redis_client, "a", timeout=20, shared=True).take()
    first = inspector.get("lock:a").shares[0]

    assert inspector.extend("lock:a", first.fingerprint, 600) is Outcome.EXTENDED

    left = [share.remaining for share in inspector.get("lock:a").shares]
    assert left == [pytest.approx(20, abs=2), pytest.approx(620, abs=2)]


def test_a_next_holder_is_not_extended(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a"):
        seen = inspector.get("lock:a").fingerprint

    assert inspector.extend("lock:a", seen, 600) is Outcome.FREE
    with listed(redis_client, "a", timeout=20):
        assert inspector.extend("lock:a", seen, 600) is Outcome.CHANGED_HANDS
        assert (inspector.get("lock:a").remaining or 0) <= 20


def test_the_lock_of_another_program_can_be_extended(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "theirs", px=20_000)

    assert extend(inspector) is Outcome.EXTENDED
    assert redis_client.pttl("lock:a") == pytest.approx(620_000, abs=2000)


def test_a_lock_without_end_is_not_given_one(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "theirs")

    with pytest.raises(LockUnsupported, match="never expires"):
        extend(inspector)
    assert redis_client.pttl("lock:a") == -1


def test_a_time_cannot_be_extended(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a", protocol="timestamp").take()

    with pytest.raises(LockUnsupported, match="timestamp"):
        extend(Inspector(redis_client, PREFIX))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True])
def test_a_time_that_is_none_is_refused(
    redis_client: redis.Redis, inspector: Inspector, seconds: float
) -> None:
    listed(redis_client, "a").take()

    with pytest.raises(ValueError, match="seconds"):
        extend(inspector, seconds)
