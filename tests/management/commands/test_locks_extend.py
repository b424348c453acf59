"""``manage.py locks extend``, and ``release`` where a reason is wanted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import override_settings

from django_setnx_lock import inspector, lock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import State
from tests.management.commands.conftest import Locks
from tests.servers import FakeServer


def left(key: str = "k") -> float | None:
    return inspector().get(f"lock:{key}").remaining


def test_the_holder_gets_the_minutes_and_hears_of_them(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        lock("k", timeout=60, user="ann") as held,
        caplog.at_level(logging.INFO, "django_setnx_lock.force_release"),
    ):
        ended = locks("extend", "k", "--minutes", "10", "--reason", "slow")
        held.check()

        assert left() == pytest.approx(660, abs=3)
        assert held.remaining() == pytest.approx(660, abs=3)
    assert (ended.status, ended.err) == (0, "")
    assert "'k' in the cache 'default' is held by ann@" in ended.out
    assert "Extended 'k' in the cache 'default' for ann@" in ended.out
    (record,) = caplog.records
    assert "extended the lock 'k' of " in record.getMessage()
    assert held.token not in ended.out + record.getMessage()


@pytest.mark.parametrize("minutes", ["0", "-1", "1441", "1.5", "x"])
def test_a_time_that_is_none_is_status_64(locks: Locks, minutes: str) -> None:
    with lock("k", timeout=60):
        assert locks("extend", "k", "--minutes", minutes).status == 64
        assert (left() or 0) <= 60


def test_without_the_minutes_nothing_is_extended(locks: Locks) -> None:
    with lock("k"):
        assert locks("extend", "k").status == 64


def test_a_free_lock_is_status_1(locks: Locks) -> None:
    ended = locks("extend", "k", "--minutes", "1")

    assert (ended.status, ended.out) == (1, "")
    assert "'k' is held by nobody: nothing was extended" in ended.err


def test_a_holder_of_another_fingerprint_is_not_extended(locks: Locks) -> None:
    with lock("k", timeout=60):
        ended = locks("extend", "k", "--minutes", "1", "--fingerprint", "0" * 32)
        assert (left() or 0) <= 60

    assert ended.status == 1
    assert "changed hands" in ended.err


def test_a_lock_without_end_is_status_1(locks: Locks) -> None:
    get_client().set("lock:k", "theirs")

    ended = locks("extend", "k", "--minutes", "1")

    assert ended.status == 1
    assert "cannot extend the lock 'k': it is 'never expires'" in ended.out


def test_an_unreachable_redis_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    assert locks("extend", "k", "--minutes", "1").status == 69


@pytest.mark.django_db
def test_with_a_user_it_is_in_the_history_of_the_lock() -> None:
    User.objects.create_user("joe")
    with lock("k"):
        call_command("locks", "extend", "k", minutes=5, user="joe", reason="slow")

    entry = LogEntry.objects.get()
    assert entry.change_message.startswith("Extended by 5 min for ")
    assert "By manage.py locks extend, as " in entry.change_message
    assert entry.change_message.endswith("Reason: slow")


@pytest.fixture
def _reasons() -> Iterator[None]:
    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True}):
        yield


@pytest.mark.usefixtures("_reasons")
@pytest.mark.parametrize("reason", [[], ["--reason", ""], ["--reason", "  "]])
def test_a_release_that_needs_a_reason_is_refused_without(locks: Locks, reason: list[str]) -> None:
    with lock("k"):
        ended = locks("release", "k", "--yes", *reason)
        assert inspector().get("lock:k").state is State.HELD

    assert (ended.status, ended.out) == (64, "")
    assert "give a --reason: SETNX_LOCK['REQUIRE_REASON']" in ended.err


@pytest.mark.usefixtures("_reasons")
def test_with_a_reason_it_is_released(locks: Locks) -> None:
    lock("k").take(0)

    assert locks("release", "k", "--yes", "--reason", "stuck").status == 0


@pytest.mark.usefixtures("_reasons")
def test_nothing_else_needs_a_reason(locks: Locks) -> None:
    with lock("k"):
        assert locks("extend", "k", "--minutes", "1").status == 0
        assert locks("ask-to-stop", "k").status == 0
