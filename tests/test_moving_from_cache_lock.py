"""django-redis's ``cache.lock()`` and ``lock()``: what docs/comparison.md says of moving."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches
from django.db import transaction
from django.test import override_settings
from redis.exceptions import LockError

from django_setnx_lock import lock
from django_setnx_lock.core import RedisLock
from django_setnx_lock.testing import LockTester
from tests.contract import test_redis_py_differences
from tests.support.redis_py import differs, listed_differences, shown_differences

# Named, as it shows the differences it is about by being imported.
SHOWING = test_redis_py_differences


@pytest.fixture
def cache() -> Any:
    return caches["default"]


def test_the_same_arguments_make_both(cache: Any) -> None:
    arguments: dict[str, Any] = {"timeout": 20, "blocking_timeout": 5}

    theirs, ours = cache.lock("a", **arguments), lock("a", **arguments)

    assert {name: getattr(theirs, name) for name in arguments} == arguments
    assert {name: getattr(ours, name) for name in arguments} == arguments


def test_with_the_documented_prefix_the_two_exclude_each_other(cache: Any) -> None:
    with override_settings(SETNX_LOCK={"CACHE": "default", "KEY_PREFIX": ":1:"}):
        ours = lock("order:42")
    theirs = cache.lock("order:42", timeout=20)

    with ours:
        assert theirs.acquire(blocking=False) is False
    with theirs:
        assert ours.acquire(blocking=False) is False


@differs("the name in Redis")
def test_without_that_prefix_they_do_not(cache: Any) -> None:
    with lock("order:42") as ours, cache.lock("order:42", timeout=20) as theirs:
        assert (theirs.name, ours.name) == (":1:order:42", "lock:order:42")


@differs("the lease")
def test_a_lease_is_renewed_unless_it_is_told_not_to_be() -> None:
    with LockTester("ignore") as kit:
        locks = [
            lock("a", timeout=20),
            lock("b", timeout=20, renew=False),
            RedisLock(lock("c").client, "c", timeout=20),
        ]
        held = [one.take(0) for one in locks]
        kit.advance(60)

        assert [one.lost for one in held] == [False, True, True]


@differs("`blocking_timeout` not given")
def test_a_wait_has_a_limit(cache: Any) -> None:
    assert cache.lock("a").blocking_timeout is None
    assert lock("a").blocking_timeout == 10
    with override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": None}):
        assert lock("a").blocking_timeout is None


@differs("positional arguments")
def test_only_keys_are_positional(cache: Any) -> None:
    theirs = cache.lock("a", 2, 20)

    assert (theirs.name, theirs.timeout) == (":2:a", 20)
    with pytest.raises(TypeError, match="positional"):
        lock("a", 2, 20)  # type: ignore[call-overload]  # the mistake under test


@differs("`version=` and `client=`")
@pytest.mark.parametrize("name", ["version", "client"])
def test_a_version_or_a_client_is_refused(cache: Any, name: str) -> None:
    values = {"version": 2, "client": lock("a").client}
    given: dict[str, Any] = {name: values[name]}

    assert cache.lock("a", **given).acquire(blocking=False)
    with pytest.raises(TypeError, match=name):
        lock("a", **given)


@differs("`sleep`, `blocking`, `thread_local`")
@pytest.mark.parametrize("name", ["sleep", "blocking", "thread_local"])
def test_what_redis_py_alone_needs_is_refused_and_taken_by_redislock(cache: Any, name: str) -> None:
    value = 0.5 if name == "sleep" else True
    given: dict[str, Any] = {name: value}

    assert getattr(cache.lock("a", **given), name) == value
    assert getattr(RedisLock(None, "a", **given), name) == value
    with pytest.raises(TypeError, match=f"no option '{name}'"):
        lock("a", **given)


@pytest.mark.django_db(transaction=True)
@differs("a release inside a transaction")
def test_a_lock_outlives_the_transaction_that_it_is_let_go_in(cache: Any) -> None:
    theirs, ours = cache.lock("a", timeout=20), lock("b")

    with transaction.atomic():
        with theirs, ours:
            pass
        within = (theirs.locked(), ours.locked())

    assert (within, ours.locked()) == ((False, True), False)


@differs("a key that is empty, or a template such as `order:<pk>`")
@pytest.mark.parametrize("key", ["", "order:<pk>"])
def test_a_key_that_cannot_be_meant_is_refused(cache: Any, key: str) -> None:
    assert cache.lock(key).acquire(blocking=False)

    with pytest.raises(ValueError, match="key"):
        lock(key)


@differs("a key of more than some 250 bytes")
def test_a_long_key_is_shortened(cache: Any) -> None:
    key = "k" * 300

    assert cache.lock(key).name == f":1:{key}"
    assert len(lock(key).name) < 300


@differs("`error.lock_name`")
def test_an_error_names_the_key(cache: Any) -> None:
    with pytest.raises(LockError) as theirs:
        cache.lock("order:42").release()
    with pytest.raises(LockError) as ours:
        lock("order:42").release()

    assert (theirs.value.lock_name, ours.value.lock_name) == (":1:order:42", "order:42")


def test_every_difference_in_the_docs_is_shown_and_every_shown_one_is_in_the_docs() -> None:
    listed = listed_differences()

    assert len(listed) == len(set(listed))
    assert set(listed) == shown_differences()
