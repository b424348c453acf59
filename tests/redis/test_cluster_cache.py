"""An alias for locks that is in a cluster, and the commands there."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_setnx_lock import LockUnavailable, inspector, lock
from tests.management.doctor import examine
from tests.processes import eventually
from tests.servers import free_port
from tests.support.children import child
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.locks import command
from tests.wire.test_acl import DOCS, RULE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client

    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")

LIST = "/admin/django_setnx_lock/lock/"


def get_client() -> Any:
    return lock("any").client


def settings_for(location: str | list[str], **options: Any) -> dict[str, Any]:
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": location,
        "OPTIONS": {"CLIENT_CLASS": "django_setnx_lock.cluster.ClusterClient", **options},
    }
    return {"CACHES": {"default": cache}, "SETNX_LOCK": {"CACHE": "default", "REENTRANT": True}}


@pytest.fixture
def cache(masters: Cluster) -> Iterator[Any]:
    """Give a cache in the cluster, which locks are kept in too."""
    with override_settings(**settings_for(masters.urls[0])):
        yield caches["default"]


@pytest.mark.parametrize("joined", [True, False])
def test_nodes_that_are_not_there_are_passed_over(masters: Cluster, joined: bool) -> None:
    urls = [f"redis://127.0.0.1:{free_port()}/0", *masters.urls]

    with override_settings(**settings_for(",".join(urls) if joined else urls)):
        with lock("order:42") as held:
            held.check()

        assert inspector().find().total == 0


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_lock_of_the_cache_is_had_by_threads_and_tasks(cache: Any, driver: Driver) -> None:
    async def work() -> None:
        for number in range(10):
            order = Face(lock(f"{{order}}:{number}", timeout=10), driver)
            async with order.block() as held:
                await held.check()
                await held.extend(5)
                assert await order.locked()
            assert not await order.locked()

    driver.run(work())


def test_all_threads_share_the_connections_of_a_cluster(cache: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(get_client).result(10)

    assert theirs is get_client()


def test_caches_of_other_settings_are_other_clusters(masters: Cluster) -> None:
    with override_settings(**settings_for(masters.urls[0])):
        one = get_client()
    with override_settings(**settings_for(masters.urls[0], SOCKET_TIMEOUT=3)):
        other = get_client()

    assert one is not other
    assert other.get_connection_kwargs()["socket_timeout"] == 3


def test_to_make_a_lock_connects_to_nothing() -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with override_settings(**settings_for(nowhere)):
        order = lock("order:42")

        with pytest.raises(LockUnavailable) as caught:
            order.take(0)

    assert caught.value.cause == "unreachable"


def test_a_child_of_a_fork_uses_connections_of_its_own(masters: Cluster, cache: Any) -> None:
    shared = get_client()
    with lock("order:42"):
        mine = shared.cluster()

    def work(say: Any) -> None:
        with lock("order:42", blocking_timeout=5) as held:
            held.check()
        # Killed as soon as it was heard, it has released by then.
        say([shared.cluster() is not mine, cache.get("missing")])

    with child(work) as process:
        assert process.hear() == [True, None]
    with lock("order:42", blocking_timeout=5) as held:
        held.check()


DATABASES = "the database 0 alone"


@pytest.mark.parametrize(
    ("location", "options", "problem"),
    [
        ("redis://h:7000/3", {}, DATABASES),
        ("redis://h:7000/0,redis://h:7001/1", {}, DATABASES),
        ("redis://h:7000?db=2", {}, DATABASES),
        ("unix:///run/redis.sock", {}, "no unix socket"),
        ("http://user:hidden@h:7000/0", {}, "cannot be understood"),
        ("redis://h:7000/0", {"REDIS_CLIENT_CLASS": "redis.Redis"}, "omit REDIS_CLIENT_CLASS"),
    ],
)
def test_what_leads_to_no_cluster_is_told(
    location: str, options: dict[str, str], problem: str
) -> None:
    with (
        override_settings(**settings_for(location, **options)),
        pytest.raises(ImproperlyConfigured, match=problem) as caught,
    ):
        lock("order:42")

    assert "hidden" not in str(caught.value)


def test_a_password_is_sent_to_all_nodes(masters: Cluster) -> None:
    for node in masters.nodes:
        masters.teller(node).config_set("requirepass", "secret")
    try:
        with override_settings(**settings_for(masters.urls[0], PASSWORD="secret")):
            for number in range(10):
                with lock(f"order:{number}") as held:
                    held.check()
        with (
            override_settings(**settings_for(masters.urls[0], PASSWORD="wrong")),
            pytest.raises(LockUnavailable) as caught,
        ):
            lock("order:42").take(0)
    finally:
        for node in masters.nodes:
            with node.client(password="secret") as admin:
                admin.config_set("requirepass", "")
    assert "secret" not in str(caught.value)
    assert "wrong" not in str(caught.value).replace("wrong or missing", "")


@pytest.mark.django_db
def test_the_admin_lists_the_locks_and_frees_one(cache: Any, admin_client: Client) -> None:
    held = [lock(f"order:{number}").take(0) for number in range(5)]

    page = admin_client.get(LIST)

    shown = page.content.decode()
    assert all(f"order:{number}" in shown for number in range(5))
    assert "Show locks of other programs too" not in shown
    seen = inspector().get("lock:order:3")
    assert inspector().force_release("lock:order:3", seen.fingerprint).value == "released"
    assert "order:3" not in admin_client.get(LIST).content.decode()
    for one in held:
        if one.key != "order:3":
            one.release()


def test_a_user_with_the_documented_rights_can_do_it_all(masters: Cluster) -> None:
    here = re.search(r"`(\+cluster\|slots [^`]*)`", DOCS.read_text())
    assert here is not None
    rights = [*here[1].split(), "+command", *(word for word in RULE if word.startswith("+"))]
    for node in masters.nodes:
        command(masters.teller(node), "ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
        command(masters.teller(node), "ACL", "SETUSER", "app", "~lock:*", "~{lock:*")
    try:
        options = {"USERNAME": "app", "PASSWORD": "secret"}
        with override_settings(**settings_for(masters.urls[0], **options)):
            held = lock("order:42").take(0)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(lambda: lock("order:42", blocking_timeout=20).take())
                eventually(lambda: inspector().get("lock:order:42").waiting)
                masters.move(masters.slot_of("lock:order:42"))
                page = inspector().find()
                held.release()
                waiting.result(10).release()
    finally:
        for node in masters.nodes:
            command(masters.teller(node), "ACL", "DELUSER", "app")
    assert [one.key for one in page.locks] == ["order:42"]


# ``manage.py locks doctor`` and ``locks check``


def test_a_cluster_is_examined_at_each_of_its_primaries(masters: Cluster, cache: Any) -> None:
    report = examine()

    assert [one.id for one in report.findings] == ["W002", "D008"]
    for node in masters.nodes:
        assert f"127.0.0.1:{node.port}/0" in report.examined["default"]


def test_what_is_found_at_one_node_of_a_cluster_says_at_which(masters: Cluster, cache: Any) -> None:
    node = masters.nodes[1]
    node.client().config_set("maxmemory-policy", "allkeys-lru")
    try:
        finding = examine().by_id["D006"]
    finally:
        node.client().config_set("maxmemory-policy", "noeviction")

    assert finding.message.startswith(f"At 127.0.0.1:{node.port}/0: maxmemory-policy is")


def test_d001_no_node_of_a_cluster_is_there() -> None:
    with override_settings(**settings_for("redis://127.0.0.1:1/0")):
        assert [(one.id, one.level) for one in examine().findings] == [("D001", "error")]


def test_d004_replicas_are_asked_for_on_a_cluster(masters: Cluster, cache: Any) -> None:
    with override_settings(SETNX_LOCK={"REPLICAS": 1}):
        finding = examine().by_id["D004"]

    assert finding.level == "error"
    assert "replicas= needs a client of one server" in finding.message


def test_locks_check_looks_at_the_locks_of_all_nodes(cache: Any) -> None:
    for number in range(6):
        lock(f"k{number}", timeout=60).take(0)

    # In no order: leases that end in the same millisecond come as the nodes do.
    said = r"6 held \((k\d, ){2}k\d and 3 more\); 6 locks, 0 waiting$"
    with pytest.raises(CommandError, match=said):
        call_command("locks", "check", "--state", "held")


def test_locks_check_knows_who_is_first_in_a_queue(cache: Any) -> None:
    def has_waited() -> bool:
        return any((one.waited or 0) > 0.1 for one in inspector().get("lock:k").waiters)

    with ThreadPoolExecutor(1) as pool:
        with lock("k", timeout=60):
            waiting = pool.submit(lock("k", blocking_timeout=20).take)
            eventually(has_waited)
            with pytest.raises(CommandError, match=r"1 waited for more than 0\.1 s \(k\)"):
                call_command("locks", "check", "--max-wait", "0.1")
        waiting.result(20).release()
