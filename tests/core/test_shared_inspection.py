"""What is told of those who hold a lock together, and taking it from one of them or all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import Outcome, State
from tests.core.helpers import ask, listed

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import Inspector


@pytest.mark.parametrize(
    ("options", "state"), [({"shared": True}, State.READ), ({"limit": 2}, State.PERMITS)]
)
def test_all_who_hold_it_are_told(
    redis_client: redis.Redis,
    inspector: Inspector,
    options: dict[str, Any],
    state: State,
) -> None:
    first = listed(redis_client, "a", timeout=10, label="one", **options).take(0)
    second = listed(redis_client, "a", timeout=20, label="two", **options).take(0)

    info = inspector.get("lock:a")

    assert info.state is state
    assert [one.holder.label for one in info.shares if one.holder] == ["one", "two"]
    assert [one.fence for one in info.shares] == [first.fence, second.fence]
    assert info.shares[0].remaining == pytest.approx(10, abs=2)
    assert info.remaining == pytest.approx(20, abs=2)
    assert len({info.fingerprint, *(one.fingerprint for one in info.shares)}) == 3


def test_of_permits_it_is_told_how_many_there_are(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a", limit=2).take(0)
    listed(redis_client, "a", limit=7).take(0)
    listed(redis_client, "b", shared=True).take(0)
    listed(redis_client, "c").take(0)

    assert [inspector.get(f"lock:{key}").limit for key in "abc"] == [7, None, None]


@pytest.mark.parametrize(
    "number", ["", "x", "-3", "9" * 5000, "\xb2", "\u0663"], ids=lambda one: ascii(one)[:6]
)
def test_what_is_no_number_of_permits_is_not_told(
    redis_client: redis.Redis, inspector: Inspector, number: str
) -> None:
    held = listed(redis_client, "a", limit=2).take(0)
    redis_client.hset("{lock:a}:holders", f"permit:{number}:x", f"{held.fence} ")
    redis_client.zadd("{lock:a}:shares", {f"permit:{number}:x": time.time() * 1000 + 60_000})

    info = inspector.get("lock:a")

    assert (len(info.shares), info.limit) == (2, 2)


def test_no_token_is_given_away(redis_client: redis.Redis, inspector: Inspector) -> None:
    held = listed(redis_client, "a", shared=True).take(0)

    assert held.token not in repr(inspector.get("lock:a"))


def test_they_are_listed_once(redis_client: redis.Redis, inspector: Inspector) -> None:
    for _ in range(2):
        listed(redis_client, "a", shared=True).take(0)

    page = inspector.find()

    assert [(one.key, one.state, len(one.shares)) for one in page.locks] == [("a", State.READ, 2)]


def test_it_is_listed_no_longer_when_the_last_has_let_go(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = [listed(redis_client, "a", shared=True).take(0) for _ in range(2)]

    for one in held:
        one.release()

    assert inspector.find().total == 0


def test_one_of_them_is_released_by_force(redis_client: redis.Redis, inspector: Inspector) -> None:
    first = listed(redis_client, "a", timeout=10, shared=True).take(0)
    second = listed(redis_client, "a", timeout=20, shared=True).take(0)
    seen = inspector.get("lock:a").shares[0].fingerprint

    outcome = inspector.force_release("lock:a", seen, by="joe", reason="stuck")

    assert outcome is Outcome.RELEASED
    with pytest.raises(LockLost, match="by joe: stuck"):
        first.check()
    second.check()


def test_all_of_them_are_not_released_at_once(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = [listed(redis_client, "a", limit=2).take(0) for _ in range(2)]

    outcome = inspector.force_release("lock:a", inspector.get("lock:a").fingerprint)

    assert outcome is Outcome.CHANGED_HANDS
    assert all(one.owned() for one in held)


def test_the_next_who_waits_gets_it(redis_client: redis.Redis, inspector: Inspector) -> None:
    listed(redis_client, "a", shared=True).take(0)
    writer = listed(redis_client, "a").attempt()
    ask(writer, waits=True)
    seen = inspector.get("lock:a").fingerprint

    inspector.force_release("lock:a", seen)

    assert inspector.get("lock:a").state is State.CHANGING_HANDS


def test_a_copy_of_it_releases_nobody_else(redis_client: redis.Redis, inspector: Inspector) -> None:
    listed(redis_client, "a", timeout=10, shared=True).take(0)
    other = listed(redis_client, "a", timeout=20, shared=True).take(0)
    seen = inspector.get("lock:a").shares[0].fingerprint
    inspector.force_release("lock:a", seen, by="joe")

    again = inspector.force_release("lock:a", seen, by="joe")

    assert again is Outcome.CHANGED_HANDS
    assert other.owned()
