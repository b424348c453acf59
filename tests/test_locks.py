from __future__ import annotations

import pytest
from django.test import override_settings

from django_setnx_lock import KeyTemplate, LockBusy, LockLost, LockUnavailable, inspector, lock
from django_setnx_lock.conf import DEFAULTS
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from tests.servers import FakeServer


def test_a_lock_lives_under_the_prefix_in_redis() -> None:
    with lock("order:42"):
        names = get_client().keys("lock:order:42")

    assert names == [b"lock:order:42"]


def test_two_locks_of_one_key_exclude_each_other() -> None:
    with lock("order:42"):
        taken = lock("order:42").acquire(blocking=False)

    assert taken is False


def test_locks_of_different_keys_do_not() -> None:
    with lock("order:42"):
        taken = lock("order:43").acquire(blocking=False)

    assert taken is True


def test_the_settings_give_the_lease_and_the_wait() -> None:
    with override_settings(SETNX_LOCK={"TIMEOUT": 7, "BLOCKING_TIMEOUT": 3, "KEY_PREFIX": "x:"}):
        one = lock("order:42")

    assert (one.timeout, one.blocking_timeout, one.name) == (7.0, 3.0, "x:order:42")


def test_the_defaults_are_thirty_and_ten_seconds() -> None:
    one = lock("order:42")

    assert (one.timeout, one.blocking_timeout) == (30.0, 10.0)


@pytest.mark.parametrize("renew", [True, False])
def test_the_setting_says_whether_leases_are_renewed(renew: bool) -> None:
    with override_settings(SETNX_LOCK={"RENEW": renew}), lock("order:42") as held:
        assert WATCHDOG.forget(held.grant) is renew


@pytest.mark.parametrize("renew", [True, False])
def test_a_lock_can_be_renewed_or_not_whatever_the_setting_says(renew: bool) -> None:
    with (
        override_settings(SETNX_LOCK={"RENEW": not renew}),
        lock("order:42", renew=renew) as held,
    ):
        assert WATCHDOG.forget(held.grant) is renew


def test_leases_are_renewed_by_default() -> None:
    with lock("order:42") as held:
        assert WATCHDOG.forget(held.grant)


def test_a_lock_knows_how_long_it_may_be_held_and_whom_to_tell_of_its_loss() -> None:
    found: list[LockHandle] = []
    held = lock("order:42", max_hold=5, on_lost=found.append).take(0)
    get_client().delete("lock:order:42")

    with pytest.raises(LockLost):
        held.check()

    assert held.timeout == 5
    assert found == [held]


def test_a_lock_is_kept_for_its_min_hold() -> None:
    with lock("order:42", min_hold=20):
        pass

    assert lock("order:42").locked()


def test_the_replicas_asked_for_are_those_of_the_setting_or_of_the_lock() -> None:
    with override_settings(SETNX_LOCK={"REPLICAS": 2}):
        asked = [
            lock("order:42", replicas=replicas).attempt().replicas for replicas in (None, 1, 0)
        ]

    assert [one and one.count for one in asked] == [2, 1, None]


def test_arguments_go_before_the_settings() -> None:
    one = lock("order:42", timeout=2, blocking_timeout=None)

    assert (one.timeout, one.blocking_timeout) == (2.0, None)


def test_a_held_lock_is_listed_in_the_index() -> None:
    with lock("order:42", label="test"):
        page = inspector().page()

    assert [(info.key, info.holder and info.holder.label) for info in page.locks] == [
        ("order:42", "test")
    ]


def test_without_the_index_nothing_is_written_to_it_and_the_lock_is_found_all_the_same() -> None:
    with override_settings(SETNX_LOCK={"INDEX": False}), lock("order:42"):
        page = inspector().page()
        index = get_client().keys("*:index")

    assert [info.key for info in page.locks] == ["order:42"]
    assert index == []


def test_a_busy_lock_names_its_holder() -> None:
    with lock("order:42", label="first"), pytest.raises(LockBusy) as caught:
        lock("order:42").take(0)

    assert caught.value.holder is not None
    assert caught.value.holder.label == "first"


def test_making_a_lock_opens_no_connection(fake_server: FakeServer) -> None:
    fake_server.connected = False

    one = lock("order:42")

    with pytest.raises(LockUnavailable):
        one.take(0)


@pytest.mark.parametrize("timeout", [0, -1, True, "30", float("nan"), float("inf")])
def test_a_lease_that_is_no_time_is_refused_at_once(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        lock("order:42", timeout=timeout)


def test_a_wait_that_is_no_time_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="blocking_timeout"):
        lock("order:42", blocking_timeout=-1)


def test_a_key_that_is_no_string_is_refused_with_what_to_write() -> None:
    with pytest.raises(TypeError, match="f'order:"):
        lock(42)  # type: ignore[call-overload]  # the mistake under test


@pytest.mark.parametrize(("unit", "digits"), [("s", 10), ("ms", 13)])
def test_the_settings_give_the_protocol_and_the_unit(unit: str, digits: int) -> None:
    with (
        override_settings(SETNX_LOCK={"PROTOCOL": "timestamp", "UNIT": unit}),
        lock("order:42") as held,
    ):
        value = get_client().get(held.name)

    assert value.isdigit()
    assert len(value) == digits


def test_a_lock_can_speak_another_protocol_whatever_the_settings_say() -> None:
    with lock("order:42", protocol="timestamp", unit="s", expire=False) as held:
        assert len(get_client().get(held.name)) == 10
        assert get_client().ttl(held.name) == -1
    with (
        override_settings(SETNX_LOCK={"PROTOCOL": "timestamp"}),
        lock("order:42", protocol="setnx") as held,
    ):
        assert get_client().get(held.name).decode() == held.token


def test_a_lock_is_the_core_lock() -> None:
    assert isinstance(lock("order:42"), RedisLock)


def test_every_default_is_documented() -> None:
    from pathlib import Path

    page = Path(__file__).parents[1].joinpath("docs", "settings.md").read_text()

    assert [name for name in DEFAULTS if f"### {name}" not in page] == []


@pytest.mark.parametrize("name", ["a<b>c", "<script>", "{}", f"{{{'x' * 300}}}"])
def test_text_from_outside_may_make_no_key_and_always_fills_a_template(name: str) -> None:
    with pytest.raises(ValueError, match=r"template|braces|tag"):
        lock(f"file:{name}")

    with lock(KeyTemplate("file:<name>").format(name=name)) as held:
        assert held.owned()
