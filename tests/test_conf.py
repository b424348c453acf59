"""The setting ``SETNX_LOCK``, and the cache that it names."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches, close_caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import override_settings
from django_redis.client import DefaultClient
from django_redis.pool import ConnectionFactory

from django_setnx_lock import lock, redis_lock
from django_setnx_lock.core import RedisLock

if TYPE_CHECKING:
    from django.test import RequestFactory

    from tests.servers import FakeServer, RealServer

REDIS = "django_redis.cache.RedisCache"
CACHES = {
    "nowhere in particular": {"BACKEND": REDIS},
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "first": {"BACKEND": REDIS, "LOCATION": "redis://h/0"},
    "second": {"BACKEND": REDIS, "LOCATION": "redis://h/1"},
    "shards": {
        "BACKEND": REDIS,
        "LOCATION": ["redis://a", "redis://b"],
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"},
    },
}


def database(using: str | None = None) -> Any:
    """Return the database that a lock is kept in."""
    return lock("a", using=using).client.get_connection_kwargs()["db"]


def test_a_setting_is_read_when_a_lock_is_made() -> None:
    with override_settings(SETNX_LOCK={"TIMEOUT": 7}):
        inside = lock("a")

    assert (inside.timeout, inside.blocking_timeout, lock("a").timeout) == (7, 10, 30)


REFUSED: list[tuple[Any, str]] = [
    ({"cache": "locks"}, "unknown option 'cache'; known are: CACHE"),
    (["TIMEOUT"], "must be a dict, not list"),
    *(
        ({"CACHE": value}, "is a cache alias or a list of them, not")
        for value in (5, None, True, b"default", ["default", 5])
    ),
    ({"KEY_PREFIX": "lo}ck:"}, r"^SETNX_LOCK\['KEY_PREFIX'\] is 'lo}ck:': the"),
]


@pytest.mark.parametrize(("setting", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_refused_where_it_is_read(setting: Any, message: str) -> None:
    with (
        override_settings(SETNX_LOCK=setting),
        pytest.raises(ImproperlyConfigured, match=message),
    ):
        lock("a")


def options() -> list[str]:
    """Return the names of all options, as the error for another one lists them."""
    with (
        override_settings(SETNX_LOCK={"none": 1}),
        pytest.raises(ImproperlyConfigured) as caught,
    ):
        lock("a")
    return str(caught.value).partition("known are: ")[2].split(", ")


def test_a_value_that_an_option_cannot_have_is_told_where_it_is_read() -> None:
    assert len(options()) == 13
    for option in options():
        message = rf"^SETNX_LOCK\['{option}'\] is .*, not {{'no'"
        with (
            override_settings(SETNX_LOCK={option: {"no": "such"}}),
            pytest.raises(ImproperlyConfigured, match=message),
        ):
            lock("a")


def test_without_the_app_no_lock_is_made_from_the_settings(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    view = redis_lock("a")(lambda request: HttpResponse())

    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        with pytest.raises(ImproperlyConfigured, match="add 'django_setnx_lock' to INSTALLED_APPS"):
            lock("a")
        with pytest.raises(ImproperlyConfigured, match="add 'django_setnx_lock' to INSTALLED_APPS"):
            view(rf.get("/"))
        with RedisLock(fake_server.client(), "a") as held:
            assert held.owned()

    assert lock("a").timeout == 30


def test_the_cache_is_the_configured_one_unless_another_is_named() -> None:
    with override_settings(CACHES=CACHES, SETNX_LOCK={"CACHE": "second"}):
        assert (database(), database("first")) == (1, 0)


class Rotating(DefaultClient):  # type: ignore[misc] # it is untyped
    """Gives the client of another server each time."""

    turns = 0

    def get_next_client_index(self, write: bool = True, tried: list[int] | None = None) -> int:
        self.turns += 1
        return self.turns % len(self._server)


def moved(database: int) -> dict[str, Any]:
    """Return CACHES whose default is another database."""
    return {"default": {"BACKEND": REDIS, "LOCATION": f"redis://h/{database}"}}


def test_all_threads_have_one_client_on_the_pool_of_the_cache() -> None:
    def both() -> tuple[Any, Any]:
        theirs: Any = caches["first"]
        return lock("a", using="first").client, theirs.client.get_client()

    with override_settings(CACHES=CACHES), ThreadPoolExecutor(1) as other:
        ours, theirs = other.submit(both).result(10)
        here = lock("a", using="first").client

    assert ours is here
    assert ours.connection_pool is theirs.connection_pool


def test_a_request_that_closes_its_caches_closes_no_lock(real_cache: RealServer) -> None:
    with override_settings(DJANGO_REDIS_CLOSE_CONNECTION=True), lock("a") as held:
        close_caches()

        held.check()
        assert lock("a", reentrant=False).acquire(blocking=False) is False
        with lock("b") as other:
            other.check()


def test_caches_that_have_changed_are_found_anew_in_every_thread() -> None:
    with ThreadPoolExecutor(1) as other, override_settings(CACHES=moved(1)):
        before = (database(), other.submit(database).result(10))
        with override_settings(CACHES=moved(2)):
            meanwhile = (database(), other.submit(database).result(10))
        after = database()

    assert (before, meanwhile, after) == ((1, 1), (2, 2), 1)


def test_settings_that_change_while_they_are_read_are_not_kept() -> None:
    class Changing(dict[str, Any]):
        """Has the settings change the first time that its values are looked at."""

        def items(self) -> Any:
            if not changes:
                changes.append(override_settings(SETNX_LOCK={"TIMEOUT": 7}))
                changes[0].enable()
            return super().items()

    changes: list[override_settings] = []
    with override_settings(SETNX_LOCK=Changing(TIMEOUT=3)):
        first = lock("a").timeout
        later = lock("a").timeout
        changes[0].disable()

    assert (first, later) == (3, 7)


FORKING = """
import os, sys
import django
django.setup()
from django_setnx_lock import lock
from tests.processes import FORKS

def hold(key):
    with lock(key) as held:
        held.check()

hold("a")
with lock("a") as held:
    child = FORKS[sys.argv[1]]()
    if not child:
        try:
            is_busy = not lock("a").acquire(blocking=False)
            hold("b")
            os._exit(0 if is_busy else 1)
        finally:
            os._exit(2)
    hold("c")
    held.check()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(ended)
"""


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("fork", ["C", pytest.param("python", marks=pytest.mark.matrix)])
def test_a_child_goes_on_with_what_its_parent_knew_of_the_settings(fork: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(
        [sys.executable, "-c", FORKING, fork],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr


class Renewing(ConnectionFactory):  # type: ignore[misc] # it is untyped
    """Makes each client with a pool of its own, as where passwords do not last."""

    def get_or_create_connection_pool(self, params: dict[str, Any]) -> Any:
        return self.get_connection_pool(params)


def test_a_connection_factory_of_the_project_is_asked_as_often_as_django_makes_a_cache() -> None:
    options = {
        "CONNECTION_FACTORY": f"{__name__}.{Renewing.__qualname__}",
        "CLOSE_CONNECTION": True,
    }
    cache = {"BACKEND": REDIS, "LOCATION": "redis://h/1", "OPTIONS": options}
    with override_settings(CACHES={"default": cache}):
        first, again = lock("a").client, lock("a").client
        close_caches()
        later = lock("a").client

    assert first is again
    assert first.connection_pool is not later.connection_pool


def test_a_client_class_may_choose_the_server_each_time() -> None:
    rotating = {
        "BACKEND": REDIS,
        "LOCATION": ["redis://h/1", "redis://h/2"],
        "OPTIONS": {"CLIENT_CLASS": f"{__name__}.{Rotating.__qualname__}"},
    }
    with override_settings(CACHES={"default": rotating}):
        assert [database() for _ in range(4)] == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("nowhere", "no cache 'nowhere' in CACHES"),
        ("default", "'default' is not a django-redis cache"),
        ("shards", "'shards' is sharded"),
        ("nowhere in particular", "has no LOCATION: write for example redis://"),
    ],
)
def test_an_alias_that_cannot_hold_locks_is_refused(alias: str, message: str) -> None:
    with (
        override_settings(CACHES=CACHES),
        pytest.raises(ImproperlyConfigured, match=message),
    ):
        database(alias)
