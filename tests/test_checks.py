from __future__ import annotations

import importlib.resources
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.core import mail
from django.core.checks import CheckMessage, run_checks
from django.core.checks.registry import registry
from django.test import override_settings

from django_setnx_lock.testing import LockTester

if TYPE_CHECKING:
    from tests.servers import FakeServer

REDIS = "django_redis.cache.RedisCache"
SHARDED = "django_redis.client.ShardClient"
DOCS = importlib.resources.files("django_setnx_lock").joinpath("../docs/troubleshooting.md")


@pytest.fixture(autouse=True)
def no_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the checks take the project for one at work: only test runners make an outbox."""
    monkeypatch.delattr(mail, "outbox")


def redis_cache(location: str | list[str] = "redis://h:6379/1", **options: Any) -> dict[str, Any]:
    # Before redis-py 8 there is none unless it is set.
    return {"BACKEND": REDIS, "LOCATION": location, "OPTIONS": {"SOCKET_TIMEOUT": 10, **options}}


def found(**settings: Any) -> dict[str | None, str]:
    """The ids of our checks' messages under ``settings``, each with its whole text."""
    with override_settings(**settings):
        messages = run_checks()
    return {
        message.id: f"{message.msg} {message.hint}"
        for message in messages
        if str(message.id).startswith("django_setnx_lock.")
    }


WELL: dict[str, Any] = {
    "CACHES": {"default": redis_cache("redis://h:6379/0"), "locks": redis_cache()},
    "SETNX_LOCK": {"CACHE": "locks"},
}


def with_options(**options: Any) -> dict[str, Any]:
    return {**WELL, "SETNX_LOCK": {"CACHE": "locks", **options}}


def with_locks_cache(cache: dict[str, Any]) -> dict[str, Any]:
    return {**WELL, "CACHES": {"default": redis_cache("redis://h:6379/0"), "locks": cache}}


# What is wrong with a cache that the kit for tests replaces.
OF_THE_CACHE = {
    "E003": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "E004": redis_cache(CLIENT_CLASS=SHARDED),
    "E015": redis_cache("h:6379"),
}


CLUSTER = "django_setnx_lock.cluster.ClusterClient"
EMBEDDED = "example_project.caches.EmbeddedConnectionFactory"


def clustered(location: str | list[str]) -> dict[str, Any]:
    return redis_cache(location, CLIENT_CLASS=CLUSTER)


def sentinels(hosts: str, location: str = "redis://shop/1") -> dict[str, Any]:
    factory = "django_redis.pool.SentinelConnectionFactory"
    options = {"SENTINELS": [(host, 26379) for host in hosts]}
    return redis_cache(location, CONNECTION_FACTORY=factory, **options)


def beside(other: dict[str, Any], locks: dict[str, Any]) -> dict[str, Any]:
    """Settings with the locks in a cache of their own, beside the default one."""
    return {**WELL, "CACHES": {"default": other, "locks": locks}}


def in_one(cache: dict[str, Any]) -> dict[str, Any]:
    """Settings with the locks in the only cache."""
    return {"CACHES": {"default": cache}, "SETNX_LOCK": {}}


def in_masters(*aliases: str) -> dict[str, Any]:
    """Settings with a Redlock on the caches of these aliases."""
    caches = {f"r{n}": redis_cache(f"redis://h{n}:6379/1") for n in (1, 2, 3)}
    caches |= {"default": redis_cache("redis://h:6379/0"), "again": redis_cache("redis://h1/2")}
    caches["cluster"] = clustered("redis://c:7000/0")
    return {"CACHES": caches, "SETNX_LOCK": {"CACHE": aliases}}


# Settings, the one check that says something of them, and the facts that it names.
FOUND: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "a misspelt option": (with_options(TIMEOUTS=3), "E001", ("'TIMEOUTS'", "'TIMEOUT'")),
    "an option like no other": (with_options(QQQQ=3), "E001", ("KEY_PREFIX",)),
    "a misspelt cache": (with_options(CACHE="lokcs"), "E002", ("'lokcs'", "'locks'")),
    **{f"the alias {alias}": (with_options(CACHE=alias), "E002", ()) for alias in (["x"], None, 3)},
    "two masters": (in_masters("r1", "r2"), "E002", ("at least",)),
    "one master twice": (in_masters("r1", "r2", "r1"), "E002", ("'r1' and 'r1'", "one server")),
    "two masters on one server": (in_masters("r1", "r2", "again"), "E002", ("'r1' and 'again'",)),
    **{
        f"the {kind} of Django": (
            with_locks_cache({"BACKEND": f"django.core.cache.backends.{kind}", "LOCATION": "h"}),
            "E003",
            (kind,),
        )
        for kind in ("locmem.LocMemCache", "redis.RedisCache")
    },
    "a sharded cache": (
        with_locks_cache(redis_cache(["redis://a"], CLIENT_CLASS=SHARDED)),
        "E004",
        (),
    ),
    **{
        f"a cluster at {where}": (with_locks_cache(clustered(where)), "E012", ("://host:port/0",))
        for where in ("redis://a:7000/1", "unix:///run/redis.sock?db=0")
    },
    "a cluster among masters": (in_masters("r1", "r2", "cluster"), "E012", ("'cluster' is a",)),
    "sentinels that share a pool": (
        beside(sentinels("def"), sentinels("abc")),
        "E013",
        ("'locks' and 'default'",),
    ),
    "the default cache": (in_one(redis_cache()), "W002", ()),
    "the only database of a cluster": (in_one(clustered("redis://a:7/0")), "W002", ("another cl",)),
    "another cache in the database": (
        with_locks_cache(redis_cache("redis://user:secret@h/0")),
        "W002",
        ("'default'",),
    ),
    "two caches of one service": (beside(sentinels("cba"), sentinels("abc")), "W002", ()),
    "a database in the path and in the query": (
        beside(redis_cache("redis://h:1/2"), redis_cache("redis://h:1?db=2")),
        "W002",
        (),
    ),
}


@pytest.mark.parametrize(("settings", "number", "named"), FOUND.values(), ids=FOUND)
def test_what_is_wrong_with_the_settings_is_told(
    settings: dict[str, Any], number: str, named: tuple[str, ...]
) -> None:
    messages = found(**settings)

    assert list(messages) == [f"django_setnx_lock.{number}"]
    text = messages[f"django_setnx_lock.{number}"]
    assert [one for one in named if one not in text] == []
    assert "secret" not in text


def test_a_setting_that_is_no_dict_is_told() -> None:
    assert "must be a dict" in found(SETNX_LOCK=["CACHE"])["django_setnx_lock.E001"]


FINE: dict[str, dict[str, Any]] = {
    "a server": WELL,
    "a cluster": with_locks_cache(clustered(["redis://a:7000/0", "redis://b:7000"])),
    "masters": in_masters("r1", "r2", "r3"),
    "sentinels with another database": beside(sentinels("def", "redis://shop/0"), sentinels("abc")),
    "sentinels of another service": beside(sentinels("def", "redis://other/1"), sentinels("abc")),
    "another database": with_locks_cache(redis_cache("redis://h:6379/9")),
    "another database of the query": beside(
        redis_cache("redis://h:1?db=1"), redis_cache("redis://h:1?db=2")
    ),
    "another database of a socket": beside(
        redis_cache("unix:///run/redis.sock?db=0"), redis_cache("unix:///run/redis.sock?db=1")
    ),
    "a factory of the project": with_locks_cache(
        redis_cache("embedded:///1", SOCKET_TIMEOUT=None, CONNECTION_FACTORY=EMBEDDED)
    ),
    "a strange cache without locks": {
        **WELL,
        "CACHES": {**WELL["CACHES"], "strange": redis_cache("h:port")},
    },
}


@pytest.mark.parametrize("settings", FINE.values(), ids=FINE)
def test_a_project_that_is_set_up_well_hears_nothing(settings: dict[str, Any]) -> None:
    assert found(**settings) == {}


LOCK_FAILURE = "django_setnx_lock.views.lock_failure"
# Some values that each option cannot have, and some that are well.
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "TIMEOUT": ([0, -1, True, "30", None, float("nan"), float("inf")], [0.5]),
    "BLOCKING_TIMEOUT": ([-1, False, "10", float("nan")], [0, 0.5, None]),
    "WAIT_WARNING": ([0, -1, False, "10", float("nan")], [0.5, 60, None]),
    "KEY_PREFIX": (["", None, 3, "lo}ck:"], ["x:"]),
    "RENEW": (["no"], [True, False]),
    "REENTRANT": (["no", 1], [True, False]),
    "UNTIL_COMMIT": (["commit", None, 0], [True, False]),
    "REQUIRE_REASON": (["no", 1], [True, False]),
    "PROTOCOL": (["redlock", "timestamp", []], ["setnx", "timestamp-s", "timestamp-ms", "hosted"]),
    "REPLICAS": ([-1, True, "1", 1.0], [0, 2, None]),
    "HISTORY": ([-1, True, "all", None, 1.0, 10**6], [0, 1, 100_000]),
    "FAILURE_VIEW": (["busy", "", None, print, "shop views.busy", ".busy"], [LOCK_FAILURE]),
}


@pytest.mark.parametrize("option", VALUES)
def test_a_value_that_an_option_cannot_have_is_refused(option: str) -> None:
    bad, good = VALUES[option]
    for value in bad:
        messages = found(**with_options(**{option: value}))
        assert list(messages) == ["django_setnx_lock.E005"]
        assert option in messages["django_setnx_lock.E005"]
    for value in good:
        assert not found(**with_options(**{option: value}))


def test_checks_open_no_connection(fake_server: FakeServer) -> None:
    fake_server.connected = False

    with override_settings(SETNX_LOCK={}):
        messages = run_checks()

    assert "django_setnx_lock.W002" in [message.id for message in messages]


def ours() -> list[Any]:
    """Return the checks of the package that are registered."""
    return [one for one in registry.get_checks() if one.__module__.startswith("django_setnx_lock.")]


def test_each_check_has_a_section_in_the_docs() -> None:
    numbers = {
        number
        for check in ours()
        for number in re.findall(r"[EW]\d{3}", str(check.__doc__).partition(":")[0])
    }

    assert len(numbers) > 10
    assert numbers <= set(re.findall(r"^### ([EW]\d{3})$", DOCS.read_text(), re.MULTILINE))


def told_of(cache: dict[str, Any]) -> CheckMessage:
    """What E015 says of the cache; Django's own checks do not take every one."""
    with override_settings(**with_locks_cache(cache)):
        (message,) = [one for check in ours() for one in check(None) if one.id.endswith("E015")]
    found: CheckMessage = message
    return found


@pytest.mark.parametrize(
    "location", ["", None, [], "127.0.0.1:6379", "redis://:secret@h:port/1", "redis://h:99999/1", 5]
)
def test_e015_tells_of_a_location_that_makes_no_client(location: Any) -> None:
    message = told_of(redis_cache(location))

    assert "the cache 'locks'" in message.msg
    assert "redis://127.0.0.1:6379/1" in message.msg or location == 5
    assert "secret" not in f"{message.msg} {message.hint}"


@pytest.mark.parametrize("options", [{"CONNECTION_POOL_KWARGS": 5}, {"SERIALIZER": "no.such"}])
def test_e015_tells_of_options_that_make_no_client(options: dict[str, Any]) -> None:
    # django-redis keeps the pool of a LOCATION.
    message = told_of(redis_cache("redis://of-its-own:6379/1", **options))

    assert "the cache 'locks'" in message.msg


@pytest.mark.usefixtures("in_tests")
class TestWhileTestsRun:
    """The kit for tests takes any cache, and not all tests import it."""

    @pytest.fixture
    def in_tests(self, monkeypatch: pytest.MonkeyPatch, no_tests_run: None) -> None:
        monkeypatch.setattr(mail, "outbox", [], raising=False)

    @pytest.mark.parametrize("number", OF_THE_CACHE)
    def test_a_cache_that_cannot_hold_locks_is_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, number: str
    ) -> None:
        for name in [one for one in sys.modules if one.startswith("django_setnx_lock.testing.")]:
            monkeypatch.delitem(sys.modules, name)

        with override_settings(**with_locks_cache(OF_THE_CACHE[number])):
            (message,) = [one for one in run_checks() if str(one.id).endswith(number)]

        assert not message.is_serious()
        assert "LockTestMixin" in str(message.hint)

    @pytest.mark.parametrize("number", OF_THE_CACHE)
    def test_nothing_is_said_where_the_kit_is_used(self, number: str) -> None:
        LockTester()

        assert found(**with_locks_cache(OF_THE_CACHE[number])) == {}
