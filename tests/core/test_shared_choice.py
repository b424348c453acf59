"""What ``shared`` and ``limit`` take, and what they cannot be had with."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from django_setnx_lock.core import RedisLock, RWLock

CLIENT = redis.Redis()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "limit is a number from 1"),
        ({"limit": 1_000_001}, "limit is a number from 1"),
        ({"limit": True}, "limit is a number from 1"),
        ({"limit": 2.0}, "limit is a number from 1"),
        ({"limit": 2, "shared": True}, "give one of them"),
        ({"shared": True, "min_hold": 1}, "min_hold is not to be had"),
        ({"limit": 2, "reentrant": True}, "gets another one"),
        ({"shared": True, "protocol": "timestamp"}, "not to be had with protocol='timestamp'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RedisLock(CLIENT, "lock:a", **options)


def test_shared_is_a_bool() -> None:
    with pytest.raises(TypeError, match="shared is True or False"):
        RedisLock(CLIENT, "lock:a", shared=1)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("options", [{"shared": True}, {"limit": 2}])
def test_no_token_may_be_chosen_for_a_share(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="without token="):
        RedisLock(CLIENT, "lock:a", **options).acquire(token="t")


@pytest.mark.parametrize("token", ["readers:1", "permits:1"])
def test_no_token_may_look_like_a_group(token: str) -> None:
    with pytest.raises(ValueError, match="nor begin with"):
        RedisLock(CLIENT, "lock:a").acquire(token=token)


def test_a_read_write_lock_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="min_hold"):
        RWLock(CLIENT, "lock:a", min_hold=3)


def test_a_read_write_lock_tells_its_key() -> None:
    assert repr(RWLock(CLIENT, "lock:a", key="a")) == "<RWLock 'a'>"
