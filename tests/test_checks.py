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


WELL = {
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
    "E004": redis_cache(CLIENT_CLASS="django_redis.client.ShardClient"),
    "E015": redis_cache("h:6379"),
}


def test_a_project_that_is_set_up_well_hears_nothing() -> None:
    assert found(**WELL) == {}


def test_e001_names_an_unknown_option_and_the_one_that_was_meant() -> None:
    messages = found(**with_options(TIMEOUTS=3))

    assert list(messages) == ["django_setnx_lock.E001"]
    assert "'TIMEOUTS'" in messages["django_setnx_lock.E001"]
    assert "'TIMEOUT'" in messages["django_setnx_lock.E001"]


def test_e001_lists_the_options_when_none_is_close() -> None:
    messages = found(**with_options(QQQQ=3))

    assert "KEY_PREFIX" in messages["django_setnx_lock.E001"]


def test_e001_refuses_a_setting_that_is_no_dict() -> None:
    messages = found(SETNX_LOCK=["CACHE"])

    assert "must be a dict" in messages["django_setnx_lock.E001"]


def test_e002_names_the_missing_cache_and_those_there_are() -> None:
    messages = found(**{**WELL, "SETNX_LOCK": {"CACHE": "lokcs"}})

    assert list(messages) == ["django_setnx_lock.E002"]
    assert "'lokcs'" in messages["django_setnx_lock.E002"]
    assert "'locks'" in messages["django_setnx_lock.E002"]


@pytest.mark.parametrize(
    "backend",
    [
        "django.core.cache.backends.locmem.LocMemCache",
        "django.core.cache.backends.redis.RedisCache",
    ],
)
def test_e003_refuses_a_cache_that_is_not_django_redis(backend: str) -> None:
    messages = found(**with_locks_cache({"BACKEND": backend, "LOCATION": "redis://h"}))

    assert list(messages) == ["django_setnx_lock.E003"]
    assert backend in messages["django_setnx_lock.E003"]


def test_e004_refuses_a_sharded_cache() -> None:
    sharded = redis_cache(
        ["redis://a", "redis://b"], CLIENT_CLASS="django_redis.client.ShardClient"
    )

    messages = found(**with_locks_cache(sharded))

    assert list(messages) == ["django_setnx_lock.E004"]


CLUSTER = "django_setnx_lock.cluster.ClusterClient"


def test_a_cluster_is_as_good_as_a_server() -> None:
    caches = {
        "default": redis_cache("redis://h:6379/0"),
        "locks": redis_cache(["redis://a:7000/0", "redis://b:7000"], CLIENT_CLASS=CLUSTER),
    }

    assert found(**{**WELL, "CACHES": caches}) == {}


@pytest.mark.parametrize("location", ["redis://a:7000/1", "unix:///run/redis.sock?db=0"])
def test_e012_refuses_a_cluster_with_databases_or_sockets(location: str) -> None:
    caches = {
        "default": redis_cache("redis://h:6379/0"),
        "locks": redis_cache(location, CLIENT_CLASS=CLUSTER),
    }

    messages = found(**{**WELL, "CACHES": caches})

    assert "redis://host:port/0" in messages["django_setnx_lock.E012"]


def test_e012_refuses_a_cluster_among_the_masters_of_a_redlock() -> None:
    caches = {
        "default": redis_cache("redis://h:6379/0"),
        "r1": redis_cache("redis://a/0"),
        "r2": redis_cache("redis://b/0"),
        "r3": redis_cache("redis://c:7000/0", CLIENT_CLASS=CLUSTER),
    }

    messages = found(CACHES=caches, SETNX_LOCK={"CACHE": ("r1", "r2", "r3")})

    assert "'r3' is a cluster" in messages["django_setnx_lock.E012"]


def test_w002_knows_that_a_cluster_has_one_database() -> None:
    caches = {"default": redis_cache("redis://a:7000/0", CLIENT_CLASS=CLUSTER)}

    messages = found(CACHES=caches, SETNX_LOCK={"CACHE": "default"})

    assert "another cluster" in messages["django_setnx_lock.W002"]


def sentinel_cache(*hosts: str, location: str = "redis://shop/1", **options: Any) -> dict[str, Any]:
    factory = "django_redis.pool.SentinelConnectionFactory"
    sentinels = [(host, 26379) for host in hosts]
    return redis_cache(location, CONNECTION_FACTORY=factory, SENTINELS=sentinels, **options)


def with_sentinels(other: dict[str, Any], **options: Any) -> dict[str, Any]:
    locks = sentinel_cache("a", "b", "c", **options)
    return {**WELL, "CACHES": {"default": other, "locks": locks}}


def test_e013_refuses_two_caches_of_other_sentinels_that_share_a_pool() -> None:
    messages = found(**with_sentinels(sentinel_cache("d", "e", "f")))

    assert list(messages) == ["django_setnx_lock.E013"]
    assert "'locks' and 'default'" in messages["django_setnx_lock.E013"]


@pytest.mark.parametrize("location", ["redis://shop/0", "redis://other/1"])
def test_e013_is_content_with_another_database_or_service(location: str) -> None:
    assert found(**with_sentinels(sentinel_cache("d", "e", "f", location=location))) == {}


def test_w001_is_not_said_where_a_wait_outlasts_a_failover() -> None:
    assert found(**with_sentinels(redis_cache("redis://h:6379/0"), SOCKET_TIMEOUT=1)) == {}


def test_w002_sees_two_caches_of_one_service() -> None:
    messages = found(**with_sentinels(sentinel_cache("c", "b", "a")))

    assert list(messages) == ["django_setnx_lock.W002"]


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


def test_connections_of_a_factory_of_ones_own_are_left_alone() -> None:
    factory = "example_project.caches.EmbeddedConnectionFactory"
    cache = redis_cache("embedded:///1", SOCKET_TIMEOUT=None, CONNECTION_FACTORY=factory)

    assert found(**with_locks_cache(cache)) == {}


def test_w002_warns_when_locks_are_in_the_default_cache() -> None:
    messages = found(CACHES={"default": redis_cache()}, SETNX_LOCK={})

    assert list(messages) == ["django_setnx_lock.W002"]


def test_w002_warns_when_another_cache_shares_the_database() -> None:
    messages = found(**with_locks_cache(redis_cache("redis://user:secret@h/0")))

    assert "'default'" in messages["django_setnx_lock.W002"]
    assert "secret" not in messages["django_setnx_lock.W002"]


def test_the_same_server_with_another_database_is_fine() -> None:
    assert found(**with_locks_cache(redis_cache("redis://h:6379/9"))) == {}


def test_sockets_with_different_databases_are_told_apart() -> None:
    caches = {
        "default": redis_cache("unix:///run/redis.sock?db=0"),
        "locks": redis_cache("unix:///run/redis.sock?db=1"),
    }

    assert found(CACHES=caches, SETNX_LOCK={"CACHE": "locks"}) == {}


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


@pytest.mark.parametrize("alias", [["default"], None, 3])
def test_e002_refuses_an_alias_that_is_no_name(alias: Any) -> None:
    assert list(found(**{**WELL, "SETNX_LOCK": {"CACHE": alias}})) == ["django_setnx_lock.E002"]


@pytest.mark.parametrize(
    ("aliases", "why"),
    [
        (["r1", "r2"], "at least"),
        (["r1", "r2", "r1"], "'r1' and 'r1' of a Redlock are one server"),
        (["r1", "r2", "again"], "'r1' and 'again' of a Redlock are one server"),
        (["r1", "r2", "r3"], None),
    ],
)
def test_e002_refuses_caches_that_are_no_masters_of_a_redlock(
    aliases: list[str], why: str | None
) -> None:
    caches = {f"r{n}": redis_cache(f"redis://h{n}:6379/1") for n in (1, 2, 3)}
    caches |= {"default": redis_cache("redis://h:6379/0"), "again": redis_cache("redis://h1/2")}

    messages = found(CACHES=caches, SETNX_LOCK={"CACHE": aliases})

    assert list(messages) == (["django_setnx_lock.E002"] if why else [])
    assert (why or "") in "".join(messages.values())


@pytest.mark.parametrize(
    ("one", "other", "warned"),
    [
        ("redis://h:1?db=1", "redis://h:1?db=2", False),
        ("redis://h:1/2", "redis://h:1?db=2", True),
        ("redis://h", "redis://user:secret@h:6379/0", True),
        ("redis://h:abc/1", "redis://h:1/1", False),
    ],
)
def test_w002_reads_locations_as_redis_py_does(one: str, other: str, warned: bool) -> None:
    caches = {"default": redis_cache(one), "locks": redis_cache(other)}

    messages = found(CACHES=caches, SETNX_LOCK={"CACHE": "locks"})

    assert ("django_setnx_lock.W002" in messages) is warned


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


def test_a_cache_without_locks_may_be_as_it_likes() -> None:
    strange = {"strange": redis_cache("h:port"), "default": redis_cache("redis://h:6379/0")}

    assert found(**{**WELL, "CACHES": {**strange, "locks": redis_cache()}}) == {}


def test_a_factory_of_the_project_may_understand_any_location() -> None:
    factory = "example_project.caches.EmbeddedConnectionFactory"
    own = redis_cache("own://h", CONNECTION_FACTORY=factory)

    assert found(**with_locks_cache(own)).keys() <= {"django_setnx_lock.W002"}


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
