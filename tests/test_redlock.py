"""``using=(...)``: the project's locks on several masters."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import fakeredis
import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import transaction
from django.http import HttpResponse
from django.test import override_settings

from django_setnx_lock import (
    LockBusy,
    LockLost,
    LockUnavailable,
    inspector,
    lock,
    redis_lock,
)
from django_setnx_lock.core import Redlock
from tests.processes import eventually
from tests.servers import FakeServer
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import RequestFactory

FIVE = ("r1", "r2", "r3", "r4", "r5")
# Fakes take their time.
PATIENCE = 6
SETTINGS = {"REENTRANT": False}


def cache(server: FakeServer, number: int) -> dict[str, Any]:
    pool = {"connection_class": fakeredis.FakeRedisConnection, "server": server.core}
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://fake-{number}.invalid:6379/0",
        "OPTIONS": {"CONNECTION_POOL_KWARGS": pool},
    }


# For good, as django-redis keeps the pool of a LOCATION.
@pytest.fixture(scope="session")
def caches() -> dict[str, Any]:
    servers = {alias: FakeServer() for alias in FIVE}
    found = {alias: cache(servers[alias], at) for at, alias in enumerate(FIVE)}
    found |= {"default": found["r1"], "again": found["r1"], "other": cache(servers["r2"], 9)}
    # What is done first with fakes by several threads at once, they may fail to do.
    with pytest.MonkeyPatch.context() as patch, override_settings(CACHES=found):
        seams.wait_for_masters(patch, 2)
        with contextlib.suppress(LockUnavailable):
            lock("warm", using=FIVE).take(0)
    return found


@pytest.fixture(autouse=True)
def _five(caches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    seams.wait_for_masters(monkeypatch, PATIENCE)
    with override_settings(CACHES=caches, SETNX_LOCK=SETTINGS):
        for alias in FIVE:
            get_client(alias).flushall()
        yield


def get_client(alias: str) -> Any:
    return lock("any", using=alias).client


def left() -> list[int]:
    return [int(get_client(alias).exists("lock:a")) for alias in FIVE]


@pytest.mark.parametrize("using", [FIVE, list(FIVE)], ids=["tuple", "list"])
def test_several_aliases_make_a_lock_on_all_of_them_and_one_a_plain_lock(using: Any) -> None:
    with lock("a", using=using) as held:
        assert held.key == "a"
        assert left() == [1] * 5
    assert left() == [0] * 5
    assert isinstance(lock("a", using=using), Redlock)
    assert not isinstance(lock("a", using="r1"), Redlock)


@pytest.mark.parametrize("protocol", ["setnx", "hosted"])
def test_the_setting_may_name_several(protocol: str) -> None:
    config = {**SETTINGS, "CACHE": FIVE, "TIMEOUT": 20, "PROTOCOL": protocol}
    # What hosted servers need changes nothing where nobody queues.
    with override_settings(SETNX_LOCK=config), lock("a") as held:
        assert held.timeout == 20
        assert left() == [1] * 5
        eventually(lambda: [info.key for info in inspector().find().locks] == ["a"])


def test_a_lease_that_a_master_which_hangs_would_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="3 times the master_timeout"):
        lock("a", using=FIVE, timeout=3 * PATIENCE - 1)


@pytest.mark.parametrize(
    ("using", "problem"),
    [
        ((), "3 masters at least|is a cache alias or a"),
        (("r1", "r2"), "3 masters at least"),
        (("r1", "r2", "r2"), "'r2' and 'r2' of a Redlock are one server"),
        (("r1", "r2", "again"), "'r1' and 'again' of a Redlock are one server"),
        (("r1", "r2", "other"), "'r2' and 'other' of a Redlock are one server"),
    ],
)
def test_aliases_that_cannot_be_masters_together_are_refused(
    using: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        lock("a", using=using)
    with (
        override_settings(SETNX_LOCK={"CACHE": using}),
        pytest.raises(ImproperlyConfigured, match=rf"SETNX_LOCK\['CACHE'\] is .*{problem}"),
    ):
        lock("a")


def test_an_alias_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="no cache 'r9'"):
        lock("a", using=("r1", "r2", "r9"))


def test_a_view_is_locked_on_all_of_them(rf: RequestFactory) -> None:
    @redis_lock("a", using=FIVE)
    def view(request: object) -> HttpResponse:
        return HttpResponse(str(left()))

    assert view(rf.post("/")).content == b"[1, 1, 1, 1, 1]"
    with lock("a", using=FIVE):
        assert view(rf.post("/")).status_code == 409


def test_with_lock_takes_aliases_with_commas() -> None:
    with (
        lock("a", using=FIVE),
        pytest.raises(CommandError, match="held by") as caught,
    ):
        call_command("with_lock", "--using", ",".join(FIVE), "-n", "a", "true")

    assert caught.value.returncode == 75
    call_command("with_lock", "--using", ",".join(FIVE), "a", "true")
    assert left() == [0] * 5


def test_several_keys_are_all_taken_or_none() -> None:
    with lock("c", using=FIVE), pytest.raises(LockBusy) as caught:
        lock("d", "c", "a", using=FIVE, blocking_timeout=0).take()
    none = left()
    with lock("d", "c", "a", using=FIVE):
        taken = left()

    assert (caught.value.key, none, taken) == ("c", [0] * 5, [1] * 5)


def listed(capsys: pytest.CaptureFixture[str], count: int) -> list[dict[str, Any]]:
    """Return what the command lists, once it is so many locks."""
    call_command("locks", "list", "--json")
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["locks"]
    return rows if len(rows) == count else []


def test_manage_py_locks_shows_it_on_each_master_and_releases_it_on_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = lock("a", using=FIVE).take()
    with override_settings(SETNX_LOCK={**SETTINGS, "CACHE": FIVE}):
        # The list has what is held for half a second.
        rows = eventually(lambda: listed(capsys, len(FIVE)))
        (seen,) = {row["fingerprint"] for row in rows}
        call_command("locks", "release", "a", "--yes", "--fingerprint", seen)

    assert [row["using"] for row in rows] == list(FIVE)
    assert left() == [0] * 5
    with pytest.raises(LockLost):
        held.check()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lost", [0, 3])
def test_it_outlives_the_transaction_or_rolls_it_back_when_the_majority_is_lost(lost: int) -> None:
    def work() -> list[int]:
        with transaction.atomic():
            with lock("a", using=FIVE):
                Group.objects.create(name="a")
            within = left()
            for alias in FIVE[:lost]:
                get_client(alias).delete("lock:a")
        return within

    if lost:
        with pytest.raises(LockLost):
            work()
    else:
        assert work() == [1] * 5
        assert left() == [0] * 5

    assert Group.objects.count() == (0 if lost else 1)
