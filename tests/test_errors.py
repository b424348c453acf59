from __future__ import annotations

import copy
import pickle

import pytest
from redis import exceptions as redis_exceptions

from django_setnx_lock import (
    LockBusy,
    LockError,
    LockLost,
    LockUnavailable,
    LockUnsupported,
    StaleFence,
)
from django_setnx_lock.core import Holder

HOLDER = Holder(host="web1", pid=7, label="view pay")
ERRORS = [
    LockError("m", key="order:1"),
    LockBusy("m", key="order:1", holder=HOLDER, remaining=1.5),
    LockBusy("m", key="order:1"),
    LockLost("m", key="order:1", forced_by="joe", reason="stuck"),
    StaleFence("m", key="order:1", fence=7, stored=9),
    LockUnavailable("m", key="order:1", cause="pool"),
    LockUnsupported("m", key="order:1"),
]


def test_errors_are_caught_as_those_of_redis_py() -> None:
    assert all(isinstance(one, redis_exceptions.LockError) for one in ERRORS)
    assert isinstance(LockLost("m"), redis_exceptions.LockNotOwnedError)
    assert not isinstance(LockBusy("m"), redis_exceptions.LockNotOwnedError)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_keeps_all_it_says_through_pickle(error: LockError, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - its own pickle

    assert type(back) is type(error)
    assert str(back) == "m"
    assert vars(back) == vars(error)


def test_an_error_keeps_its_notes_through_copy() -> None:
    error = LockBusy("m", key="a", remaining=2.0)
    error.__dict__["__notes__"] = ["while paying"]

    back = copy.copy(error)

    assert (back.__dict__["__notes__"], back.remaining) == (["while paying"], 2.0)


def test_the_key_is_also_under_the_name_that_redis_py_uses() -> None:
    assert LockBusy("m", key="order:1").lock_name == "order:1"
