"""``lock()``, ``rwlock()`` and ``semaphore()``: the core's locks with the project's settings."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from django.test import override_settings

from django_setnx_lock import (
    KeyTemplate,
    LockBusy,
    LockError,
    LockLost,
    LockUnavailable,
    LockUnsupported,
    inspector,
    lock,
    redis_lock,
    rwlock,
    semaphore,
)
from django_setnx_lock.core import LockHandle, MultiLockHandle, RedisLock, State
from django_setnx_lock.options import DoorOptions, LockOptions, Options
from django_setnx_lock.testing import LockTester
from tests.processes import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import FakeServer


def test_a_lock_lives_under_the_prefix_in_redis(fake_server: FakeServer) -> None:
    one = lock("order:42")
    with one as held:
        assert fake_server.client().get("lock:order:42") == held.token.encode()
        assert (one.token, one.fence) == (held.token, held.fence)

    assert (one.token, one.fence) == (None, None)
    assert isinstance(one, RedisLock)
    assert not fake_server.client().exists("lock:order:42")


def test_locks_of_one_key_exclude_each_other_and_no_others() -> None:
    with lock("order:42"):
        assert in_thread(lambda: lock("order:42").acquire(blocking=False)) is False
        assert in_thread(lambda: lock("order:43").acquire(blocking=False)) is True


@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        ({}, {}, (30.0, 10.0, "lock:")),
        ({"TIMEOUT": 7, "BLOCKING_TIMEOUT": 3, "KEY_PREFIX": "x:"}, {}, (7.0, 3.0, "x:")),
        ({"TIMEOUT": 7}, {"timeout": 2, "blocking_timeout": None}, (2.0, None, "lock:")),
    ],
)
def test_the_lease_the_wait_and_the_prefix_are_those_of_the_lock_or_of_the_settings(
    settings: dict[str, Any], options: dict[str, Any], expected: tuple[float, float | None, str]
) -> None:
    with override_settings(SETNX_LOCK=settings):
        one, several = lock("a", **options), lock("a", "b", **options)

    timeout, wait, prefix = expected
    assert (one.timeout, one.blocking_timeout, one.name) == (timeout, wait, f"{prefix}a")
    assert (several.timeout, several.blocking_timeout) == (timeout, wait)
    assert several.names == (f"{prefix}a", f"{prefix}b")


@pytest.mark.parametrize(
    ("settings", "options", "is_renewed"),
    [
        ({}, {}, True),
        ({"RENEW": False}, {}, False),
        ({"RENEW": False}, {"renew": True}, True),
        ({"RENEW": True}, {"renew": False}, False),
    ],
    ids=repr,
)
def test_a_lease_is_renewed_as_the_setting_or_the_lock_says(
    settings: dict[str, Any], options: dict[str, Any], is_renewed: bool
) -> None:
    with (
        override_settings(SETNX_LOCK=settings),
        LockTester(leftovers="ignore") as locks,
    ):
        held = lock("a", **options).take()
        locks.advance(90)

        assert held.lost is not is_renewed


def test_on_lost_is_called_with_the_handle(fake_server: FakeServer) -> None:
    one: list[LockHandle] = []
    several: list[MultiLockHandle] = []
    held = lock("a", on_lost=one.append).take()
    all_held = lock("b", "c", on_lost=several.append).take()
    fake_server.client().delete("lock:a", "lock:c")

    with pytest.raises(LockLost, match="'a'"):
        held.check()
    with pytest.raises(LockLost, match="'c'"):
        all_held.check()

    assert (one, several) == ([held], [all_held])


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize(
    ("setting", "options", "is_granted"),
    [(1, {}, False), (0, {"replicas": 1}, False), (1, {"replicas": 0}, True)],
)
def test_replicas_are_asked_for_as_the_setting_or_the_lock_says(
    setting: int, options: dict[str, Any], is_granted: bool
) -> None:
    with override_settings(SETNX_LOCK={"REPLICAS": setting}):
        one = lock("order:42", **options)
    if is_granted:
        assert one.acquire()
    else:
        # The server has none.
        with pytest.raises(LockUnavailable, match="replica"):
            one.acquire()


def test_a_busy_lock_names_its_holder_and_is_listed() -> None:
    with lock("order:42", label="first"):
        with pytest.raises(LockBusy) as caught:
            lock("order:42", reentrant=False).take(0)
        (found,) = inspector().find().locks

    assert caught.value.holder is not None
    assert found.holder is not None
    assert (caught.value.holder.label, found.key, found.holder.label) == (
        *("first", "order:42", "first"),
    )


def test_making_a_lock_opens_no_connection(fake_server: FakeServer) -> None:
    fake_server.connected = False

    one = lock("order:42")

    with pytest.raises(LockUnavailable):
        one.take(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"timeout": time}, "timeout") for time in (0, -1, True, "30", float("nan"))),
        *(({"blocking_timeout": time}, "blocking_timeout") for time in (-1, float("inf"))),
        ({"max_hold": 0}, "max_hold"),
        ({"min_hold": 6, "max_hold": 5}, "min_hold"),
        ({"renew": "yes"}, "renew is True or False"),
        ({"reentrant": 1}, "reentrant is True or False"),
        ({"until_commit": "later"}, "until_commit is True, False or None"),
        ({"using": 3}, "using is a cache alias or several of them"),
        ({"label": None}, "label is a str"),
        ({"replicas": -1}, "replicas is None or a number"),
        ({"timout": 3}, "no option 'timout'; did you mean 'timeout'.* The options are: timeout, "),
        ({"colour": 3}, "no option 'colour'. The options are: timeout, "),
    ],
    ids=repr,
)
def test_what_an_option_cannot_be_is_refused_at_once_and_at_decoration(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        lock("order:42", **options)
    with pytest.raises((ValueError, TypeError), match=message):
        redis_lock("order:42", **options)


@pytest.mark.parametrize("keys", [(42,), ("order:42", 30)])
def test_a_key_that_is_no_string_is_refused_with_what_to_write(keys: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"f'order:|name the others, as timeout="):
        lock(*keys)


@pytest.mark.parametrize(("protocol", "digits"), [("timestamp-s", 10), ("timestamp-ms", 13)])
def test_the_settings_give_the_protocol(
    protocol: str, digits: int, fake_server: FakeServer
) -> None:
    with override_settings(SETNX_LOCK={"PROTOCOL": protocol}), lock("a"):
        value = fake_server.client().get("lock:a")

    assert re.fullmatch(rf"b.\d{{{digits}}}.", repr(value))


@pytest.mark.parametrize("key", ["order:<pk>", "<a>:<b.c>", "<pk:int>", "<a.b:uuid>"])
def test_a_template_that_was_not_filled_in_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="is a template, not a key"):
        lock(key)


@pytest.mark.parametrize("name", ["a<b>c", "<script>", "{}", f"{{{'x' * 300}}}"])
def test_text_from_outside_may_make_no_key_and_always_fills_a_template(name: str) -> None:
    with pytest.raises(ValueError, match=r"template|braces|tag"):
        lock(f"file:{name}")

    with lock(KeyTemplate("file:<name>").format(name=name)) as held:
        assert held.owned()


def test_the_same_thread_gets_it_again_by_default(fake_server: FakeServer) -> None:
    with (
        override_settings(SETNX_LOCK={}),
        lock("a") as outer,
        lock("b", "a") as several,
        lock("a") as inner,
    ):
        assert inner.token == outer.token
        assert several.fences["a"] == outer.fence
        assert in_thread(lambda: lock("a").acquire(blocking=False)) is False

    assert not fake_server.client().exists("lock:a", "lock:b")


@pytest.mark.parametrize(
    ("setting", "options"), [(True, {"reentrant": False}), (False, {})], ids=repr
)
def test_it_does_not_where_the_lock_or_the_setting_says_so(
    setting: bool, options: dict[str, Any]
) -> None:
    with (
        override_settings(SETNX_LOCK={"REENTRANT": setting}),
        lock("a"),
        pytest.raises(LockBusy),
    ):
        lock("a", **options).take(0)


def test_several_keys_are_one_lock_over_all_of_them(fake_server: FakeServer) -> None:
    with lock("a:7", "a:3", "a:7", min_hold=5, label="nightly") as held:
        found = inspector().get_each(["lock:a:7", "lock:a:3"])
        with pytest.raises(LockBusy) as caught:
            lock("b", "a:3", reentrant=False).take(0)

    assert list(held) == ["a:7", "a:3"]
    assert [one.holder.label for one in found if one.holder] == ["nightly", "nightly"]
    assert caught.value.key == "a:3"
    # Nothing is taken of a lock that is busy, and min_hold is for each key.
    assert sorted(fake_server.client().keys("lock:*")) == [b"lock:a:3", b"lock:a:7"]


def test_readers_hold_a_lock_together_and_exclude_a_writer() -> None:
    report = rwlock("report", timeout=7)

    with report.read() as held, report.read():
        assert held.timeout == 7
        assert inspector().get("lock:report").state is State.READ
        with pytest.raises(LockBusy):
            lock("report", reentrant=False).take(0)


@override_settings(SETNX_LOCK={"REENTRANT": True})
def test_a_writer_gets_the_lock_again_and_a_reader_cannot_write() -> None:
    with rwlock("report").write(), lock("report") as again:
        assert again.owned()
    with rwlock("report").read(), pytest.raises(LockError, match="would wait for itself"):
        rwlock("report").write().take()


def test_a_semaphore_has_so_many_permits() -> None:
    exports = semaphore("exports", 2, timeout=7)

    with exports as held, exports, pytest.raises(LockBusy):
        semaphore("exports", 2).take(0)

    assert held.timeout == 7


REFUSED: list[tuple[Callable[..., object], dict[str, Any], type[Exception], str]] = [
    (semaphore, {"limit": 0}, ValueError, "limit is a number"),
    (redis_lock, {"limit": 0}, ValueError, "limit is a number"),
    (redis_lock, {"limit": 2, "shared": True}, ValueError, "give one of them"),
    (rwlock, {"min_hold": 1}, LockUnsupported, "min_hold"),
    (rwlock, {"limits": 3}, TypeError, "did you mean 'limit'"),
    (lock, {"shared": True}, TypeError, r"write rwlock\(key\).read\(\)"),
    (lock, {"limit": 2}, TypeError, r"write semaphore\(key, limit\)"),
]


@pytest.mark.parametrize(("door", "options", "error", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_kind_of_lock_cannot_be_is_refused_when_it_is_made(
    door: Callable[..., object], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        door("report", **options)


def test_the_checkers_list_of_options_is_the_one_list() -> None:
    options = {field.name for field in fields(LockOptions)}

    assert set(get_type_hints(DoorOptions)) == options
    assert set(get_type_hints(Options)) == options - {"on_lost", "shared", "limit"}


def test_lock_has_14_options_at_most() -> None:
    assert len(get_type_hints(Options)) + len(["on_lost"]) <= 14
