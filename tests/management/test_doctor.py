"""Each finding of ``manage.py locks doctor``, on real servers that are set up badly."""

from __future__ import annotations

import importlib.resources
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches as django_caches
from django.test import override_settings
from redis.sentinel import Sentinel

from django_setnx_lock.connection import get_client
from django_setnx_lock.management.doctor import Report, examine
from django_setnx_lock.management.doctor.finding import Finding, Severity
from django_setnx_lock.management.doctor.keeping import examine_old_primary, examine_replicas
from django_setnx_lock.management.doctor.memory import examine_memory
from django_setnx_lock.management.doctor.patient import Patient
from django_setnx_lock.management.doctor.times import examine_clock
from django_setnx_lock.management.doctor.workers import Workers
from tests.core.helpers import command
from tests.processes import eventually
from tests.redis.test_acl import RULE
from tests.redis.test_sentinel import watched_over
from tests.servers import RealServer, server_binaries

DOCS = importlib.resources.files("django_setnx_lock").joinpath("../docs/locks-command.md")
ELSEWHERE = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
NOBODY = Workers()

Examine = Callable[..., dict[str, Finding]]


def cache(url: str, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": url,
        "OPTIONS": {"SOCKET_TIMEOUT": 15, **options},
    }


@pytest.fixture
def admin(real_server: RealServer) -> Iterator[redis.Redis]:
    """Give a client that sets the server up badly; undone afterwards."""
    client = real_server.client()
    before = client.config_get("*")
    client.config_set("save", "900 1")
    yield client
    client.replicaof("NO", "ONE")
    for name in ("save", "maxmemory", "maxmemory-policy", "min-replicas-to-write", "maxclients"):
        client.config_set(name, str(before[name]))
    client.acl_deluser("app")


@pytest.fixture
def found(real_server: RealServer, admin: redis.Redis) -> Examine:
    """Give a function that examines the cache ``locks`` and returns what was found, by id."""
    url = real_server.url.replace("/0", "/1")

    def examined(
        *,
        options: dict[str, Any] | None = None,
        caches: dict[str, Any] | None = None,
        workers: Workers = NOBODY,
        aliases: tuple[str, ...] = ("locks",),
        **setting: Any,
    ) -> dict[str, Finding]:
        every = {"default": ELSEWHERE, "locks": cache(url, **(options or {})), **(caches or {})}
        with override_settings(CACHES=every, SETNX_LOCK={"CACHE": "locks", **setting}):
            report = examine(aliases, workers)
            for alias in every:
                forget(alias)
        return {one.id: one for one in report.findings}

    return examined


def forget(alias: str) -> None:
    """Have the connections to ``alias`` made anew: django-redis keeps them by URL."""
    if client := getattr(django_caches[alias], "client", None):
        for server in client._server:
            pool = client.connection_factory._pools.pop(server, None)
            if pool is not None:
                pool.disconnect()


def bad(findings: dict[str, Finding]) -> dict[str, Severity]:
    """Return the findings that are more than good to know."""
    return {one.id: one.severity for one in findings.values() if one.severity > Severity.INFO}


def test_a_server_that_is_set_up_well_hears_of_nothing_bad(found: Examine) -> None:
    assert bad(found()) == {}


def test_the_trial_leaves_no_lock_behind(found: Examine, admin: redis.Redis) -> None:
    found()

    locks = redis.Redis(port=admin.connection_pool.connection_kwargs["port"], db=1)
    names = [name for name in locks.scan_iter() if b":gone:" not in name]
    locks.close()
    assert [name for name in names if not name.endswith(b":meta")] == []


def test_d001_a_server_that_is_not_there(found: Examine) -> None:
    findings = found(caches={"locks": cache("redis://127.0.0.1:1/0")})

    assert bad(findings) == {"D001": Severity.ERROR}
    assert "cannot be reached" in findings["D001"].seen


def as_user(admin: redis.Redis, *rule: str) -> dict[str, Any]:
    command(admin, "ACL", "SETUSER", "app", "reset", "on", ">secret", *rule)
    port = admin.connection_pool.connection_kwargs["port"]
    return {"locks": cache(f"redis://app:secret@127.0.0.1:{port}/1")}


def test_d002_scripts_are_refused(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", "-eval", "-evalsha"))

    assert bad(findings) == {"D002": Severity.ERROR}
    assert "eval" in findings["D002"].seen


def test_d002_a_password_is_wrong(found: Examine, real_server: RealServer) -> None:
    url = real_server.url.replace("//", "//app:wrong@")

    findings = found(caches={"locks": cache(url)})

    assert findings["D002"].severity is Severity.ERROR
    assert "wrong@" not in str(findings)


def test_d002_nobody_may_wait(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", "-blpop"))

    assert bad(findings) == {"D002": Severity.ERROR}
    assert "blpop" in findings["D002"].seen


def test_d002_a_command_is_renamed_away(found: Examine) -> None:
    with RealServer(binary(), "--rename-command", "BLPOP", "") as server:
        findings = found(caches={"locks": cache(server.url)})

    assert findings["D002"].severity is Severity.ERROR
    assert "BLPOP" in findings["D002"].seen


def test_d002_who_polls_needs_no_right_to_wait(found: Examine, admin: redis.Redis) -> None:
    caches = as_user(admin, "~*", "+@all", "-blpop")

    assert bad(found(caches=caches, POLLING=True)) == {}


def test_d003_a_replica(found: Examine, admin: redis.Redis) -> None:
    admin.replicaof("127.0.0.1", "1")

    assert bad(found()) == {"D003": Severity.ERROR}


def test_d004_replicas_are_missing_without_which_it_takes_no_writes(
    found: Examine, admin: redis.Redis
) -> None:
    admin.config_set("min-replicas-to-write", 1)

    findings = found()

    assert bad(findings) == {"D004": Severity.ERROR}
    assert "NOREPLICAS" in findings["D004"].seen


def test_d004_memory_is_full(found: Examine, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", "1000")

    assert bad(found()) == {"D004": Severity.ERROR, "D007": Severity.WARNING}


def test_d005_what_the_doctor_may_not_look_at(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, *RULE, "+select"))

    assert bad(findings) == {"D005": Severity.WARNING}
    assert "INFO, CONFIG GET, SCAN" in findings["D005"].seen


def test_d005_the_rights_it_names_are_enough(found: Examine, admin: redis.Redis) -> None:
    remedy = found(caches=as_user(admin, *RULE, "+select"))["D005"].remedy
    rights = re.findall(r"\+\S+", remedy)

    findings = found(caches=as_user(admin, *RULE, "+select", *rights))

    assert rights
    assert bad(findings) == {}


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_d006_a_policy_that_drops_locks(found: Examine, admin: redis.Redis, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)

    without_limit = found()
    admin.config_set("maxmemory", "1gb")
    with_limit = found()

    assert bad(without_limit) == {"D006": Severity.WARNING}
    assert bad(with_limit) == {"D006": Severity.ERROR}
    assert policy in with_limit["D006"].seen


@pytest.mark.parametrize(("used", "ids"), [(899, []), (900, ["D007"])])
def test_d007_memory_that_is_nearly_full(used: int, ids: list[str]) -> None:
    info = {"maxmemory_policy": "noeviction", "maxmemory": 1000, "used_memory": used}

    assert [one.id for one in examine_memory(patient(info=info))] == ids


def test_d008_no_persistence(found: Examine, admin: redis.Redis) -> None:
    with_snapshots = found()["D008"].severity
    admin.config_set("save", "")

    assert with_snapshots is Severity.INFO
    assert bad(found()) == {"D008": Severity.WARNING}


def test_d008_what_is_written_at_once_is_not_spoken_of() -> None:
    with (
        RealServer(binary(), "--appendonly", "yes", "--appendfsync", "always") as server,
        override_settings(CACHES={"default": cache(server.url)}),
    ):
        report = examine(["default"], NOBODY)
        forget("default")

    assert "D008" not in [one.id for one in report.findings]


def binary() -> str:
    return next(iter(server_binaries().values()))


def test_d009_a_replica_that_locks_wait_for_and_one_that_none_waits_for(
    found: Examine, admin: redis.Redis
) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    missing = found(REPLICAS=1)
    with RealServer(binary(), "--replicaof", "127.0.0.1", port):
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        unused, used = found(), found(REPLICAS=1)

    assert missing["D009"].severity is Severity.ERROR
    assert unused["D009"].severity is Severity.INFO
    assert "D009" not in used


def test_d009_a_replica_that_is_online_and_acknowledges_nothing(
    found: Examine, admin: redis.Redis
) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    with RealServer(binary(), "--replicaof", "127.0.0.1", port) as replica:
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        replica.pause()
        findings = found(REPLICAS=1)
        replica.resume()

    assert bad(findings) == {"D009": Severity.ERROR}
    assert "fewer do, though 1" in findings["D009"].seen


def test_d009_is_not_for_the_masters_of_a_redlock() -> None:
    info = {"connected_slaves": 0}

    assert list(examine_replicas(patient(info=info, REPLICAS=1)))
    assert not list(examine_replicas(patient(info=info, REPLICAS=1, is_master=True)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_d010_another_cache_in_the_same_database(
    found: Examine, real_server: RealServer, host: str
) -> None:
    url = real_server.url.replace("/0", "/1").replace("127.0.0.1", host)

    findings = found(caches={"sessions": cache(url)})

    assert bad(findings) == {"D010": Severity.WARNING}
    assert "'sessions'" in findings["D010"].seen


def test_d010_the_default_cache_has_the_locks(found: Examine, real_server: RealServer) -> None:
    findings = found(caches={"default": cache(real_server.url)}, aliases=("default",))

    assert bad(findings) == {"D010": Severity.WARNING}


def test_d010_another_database_of_the_server_is_fine(
    found: Examine, real_server: RealServer
) -> None:
    assert bad(found(caches={"default": cache(real_server.url)})) == {}


def test_a_primary_that_a_sentinel_names_is_examined(
    found: Examine, real_server: RealServer, tmp_path: Path
) -> None:
    with watched_over(real_server, tmp_path) as sentinel:
        port = sentinel.connection_pool.connection_kwargs["port"]
        by_name = cache(
            "redis://shop/1",
            CLIENT_CLASS="django_redis.client.SentinelClient",
            CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
            SENTINELS=[("127.0.0.1", port)],
        )
        with override_settings(
            DJANGO_REDIS_CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory"
        ):
            findings = found(caches={"locks": by_name})

    assert bad(findings) == {}


def test_d011_other_things_in_the_database(found: Examine, real_server: RealServer) -> None:
    client = real_server.client(db=1)
    client.set("session:42", "x")
    client.set("lock:order:42", "x")

    findings = found()

    assert bad(findings) == {"D011": Severity.WARNING}
    assert "1 of" in findings["D011"].seen
    assert "'session:42'" in findings["D011"].seen


def patient(*, is_master: bool = False, info: Any = (), **settings: Any) -> Patient:
    return Patient(
        using="locks",
        client=None,
        settings={"PROTOCOL": "setnx", **settings},
        workers=NOBODY,
        is_master=is_master,
        info=dict(info),
    )


@pytest.mark.parametrize(("step", "way"), [(90, "ahead of"), (-90, "behind")])
@pytest.mark.parametrize(
    ("protocol", "severity"), [("setnx", Severity.INFO), ("timestamp", Severity.WARNING)]
)
def test_d012_the_clock_of_this_machine_is_off(
    real_cache: RealServer, step: float, way: str, protocol: str, severity: Severity
) -> None:
    with override_settings(SETNX_LOCK={"PROTOCOL": protocol}):
        (admitted,) = Patient.admit("default", NOBODY, clock=lambda: time.time() + step)

    (finding,) = examine_clock(admitted)
    assert (finding.id, finding.severity) == ("D012", severity)
    assert re.search(rf"(89\.\d|90\.\d) s {way}", finding.seen)


def test_d012_a_clock_that_is_right_is_not_spoken_of(real_cache: RealServer) -> None:
    (admitted,) = Patient.admit("default", NOBODY)

    assert not list(examine_clock(admitted))


@pytest.mark.parametrize(
    ("timeout", "wait", "severity"),
    [
        (5, 10, Severity.WARNING),
        (5, None, Severity.WARNING),
        (None, 10, Severity.WARNING),
        (10, 10, None),
    ],
)
def test_d013_the_socket_timeout_against_the_wait(
    found: Examine, timeout: float | None, wait: float | None, severity: Severity | None
) -> None:
    pool = {"socket_timeout": timeout}

    findings = found(options={"CONNECTION_POOL_KWARGS": pool}, BLOCKING_TIMEOUT=wait)

    assert bad(findings) == ({} if severity is None else {"D013": severity})


def test_d013_a_socket_timeout_that_nobody_has_chosen_is_good_to_know_at_most(
    real_cache: RealServer,
) -> None:
    pool = get_client("default").connection_pool
    chosen = getattr(pool.connection_class(**pool.connection_kwargs), "socket_timeout", None)

    findings = {one.id: one for one in examine(["default"], NOBODY).findings}

    assert findings["D013"].severity is (Severity.INFO if chosen else Severity.WARNING)


def test_d014_fewer_connections_than_threads(found: Examine) -> None:
    options = {"CONNECTION_POOL_KWARGS": {"max_connections": 7}}

    assert bad(found(options=options, workers=Workers(threads=8))) == {"D014": Severity.WARNING}
    assert bad(found(options=options, workers=Workers(threads=7))) == {}


def test_d014_a_pool_that_callers_wait_for_longer_than_for_a_lock(found: Examine) -> None:
    options = {
        "CONNECTION_POOL_CLASS": "redis.connection.BlockingConnectionPool",
        "CONNECTION_POOL_KWARGS": {"timeout": 12},
    }

    assert bad(found(options=options)) == {"D014": Severity.WARNING}
    assert bad(found(options=options, BLOCKING_TIMEOUT=12)) == {}


def test_d014_more_workers_than_the_server_has_connections(
    found: Examine, admin: redis.Redis
) -> None:
    admin.config_set("maxclients", 100)

    assert bad(found(workers=Workers(count=20, threads=2))) == {}
    assert bad(found(workers=Workers(count=21, threads=2))) == {"D014": Severity.WARNING}


def test_d014_nearly_all_connections_of_the_server_are_in_use(
    found: Examine, admin: redis.Redis
) -> None:
    others = [redis.Redis(port=admin.connection_pool.connection_kwargs["port"]) for _ in range(40)]
    for one in others:
        one.ping()
    connected = int(admin.info("clients")["connected_clients"])
    admin.config_set("maxclients", connected + 30)
    plenty = found()
    admin.config_set("maxclients", connected + 8)
    findings = found()
    for one in others:
        one.close()

    assert bad(plenty) == {}
    assert bad(findings) == {"D014": Severity.WARNING}
    assert "(maxclients) are in use" in findings["D014"].seen


@pytest.mark.parametrize(
    ("setting", "seconds", "severity"),
    [
        ({"TIMEOUT": 30}, 30, None),
        ({"TIMEOUT": 30}, 60, Severity.INFO),
        ({"TIMEOUT": 30, "RENEW": False}, 60, Severity.WARNING),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": None}, 30, Severity.WARNING),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": 8}, 8, Severity.WARNING),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": 8}, 9, None),
    ],
)
def test_d015_when_workers_are_ended(
    found: Examine, setting: dict[str, Any], seconds: float, severity: Severity | None
) -> None:
    workers = Workers(timeout=seconds, source="--worker-timeout")

    finding = found(workers=workers, **setting).get("D015")

    assert (finding and finding.severity) == severity


def test_d016_two_masters_of_a_redlock_that_are_one_server(
    found: Examine, real_server: RealServer
) -> None:
    same = cache(real_server.url.replace("127.0.0.1", "localhost"))
    gone = cache("redis://127.0.0.1:1/0")

    findings = found(caches={"same": same, "gone": gone}, aliases=("locks", "same", "gone"))

    assert bad(findings) == {"D001": Severity.ERROR, "D016": Severity.ERROR}
    assert "'locks' and 'same'" in findings["D016"].seen


def test_d017_a_primary_that_grants_locks_when_it_is_one_no_longer(
    found: Examine, admin: redis.Redis
) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    with RealServer(binary(), "--replicaof", "127.0.0.1", port):
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        without = found()
        admin.config_set("min-replicas-to-write", 1)
        eventually(lambda: admin.info("replication").get("min_slaves_good_slaves"))
        protected = found()

    assert without["D017"].severity is Severity.INFO
    assert bad(protected) == {}
    assert "D017" not in protected


def test_d017_is_a_warning_where_sentinels_name_the_primary() -> None:
    client = Sentinel([("127.0.0.1", 1)]).master_for("shop")  # type: ignore[no-untyped-call]  # redis-py's own
    info = {"connected_slaves": 1, "slave0": {"state": "online"}}
    watched = replace(patient(info=info), client=client, config={"min-replicas-to-write": "0"})

    assert [one.severity for one in examine_old_primary(watched)] == [Severity.WARNING]


def test_each_finding_is_explained_in_the_docs() -> None:
    sources = importlib.resources.files("django_setnx_lock").joinpath("management/doctor")
    ids = {
        found
        for source in sources.iterdir()
        if source.name.endswith(".py")
        for found in re.findall(r'"(D\d{3})"', source.read_text())
    }

    assert set(re.findall(r"^### (D\d{3})$", DOCS.read_text(), re.MULTILINE)) == ids
    assert len(ids) == 17


def test_a_report_says_all_of_a_finding() -> None:
    finding = Finding("D008", Severity.WARNING, "locks", "It is so.", "Do this.")
    report = Report(examined={"locks": "redis 7"}, findings=[finding])

    assert report.as_text() == [
        "locks: redis 7",
        "  WARNING D008: It is so.",
        "    Do this.",
        "    docs/locks-command.md#d008",
        "",
        "Errors: 0. Warnings: 1. Good to know: 0.",
    ]
    assert report.as_json()["findings"] == [
        {
            "id": "D008",
            "severity": "warning",
            "using": "locks",
            "seen": "It is so.",
            "remedy": "Do this.",
            "docs": "docs/locks-command.md#d008",
        }
    ]
