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
from django_setnx_lock.core.docs import docs_url

# What no server can be brought to say here, and what the command says of no finding.
from django_setnx_lock.management.locks import doctor
from django_setnx_lock.management.locks import patient as patients
from django_setnx_lock.management.locks.doctor import (
    examine_memory,
    examine_old_primary,
    examine_replicas,
)
from django_setnx_lock.management.locks.patient import TRIALS, needed
from tests.core.helpers import command
from tests.management.doctor import Finding, examine
from tests.processes import eventually
from tests.redis.test_acl import RULE
from tests.redis.test_sentinel import watched_over
from tests.servers import RealServer, server_binaries

DOCS = importlib.resources.files("django_setnx_lock").joinpath("../docs/locks-command.md")
ELSEWHERE = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
# What the tests configure, and undo.
CHANGED = (
    "save", "maxmemory", "maxmemory-policy", "min-replicas-to-write", "maxclients", "timeout",
)  # fmt: skip

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
    for name in CHANGED:
        client.config_set(name, str(before[name]))
    client.acl_deluser("app")


@pytest.fixture
def found(real_server: RealServer, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Give a function that examines the cache ``locks`` and returns what was found, by id."""
    url = real_server.url.replace("/0", "/1")

    def examined(
        *,
        options: dict[str, Any] | None = None,
        caches: dict[str, Any] | None = None,
        gunicorn: str = "",
        arguments: tuple[str, ...] = (),
        aliases: str = "locks",
        **setting: Any,
    ) -> dict[str, Finding]:
        every = {"default": ELSEWHERE, "locks": cache(url, **(options or {})), **(caches or {})}
        with override_settings(CACHES=every, SETNX_LOCK={"CACHE": "locks", **setting}):
            monkeypatch.setenv("GUNICORN_CMD_ARGS", gunicorn)
            report = examine("--using", aliases, *arguments)
            for alias in every:
                forget(alias)
        return report.by_id

    return examined


def forget(alias: str) -> None:
    """Have the connections to ``alias`` made anew: django-redis keeps them by URL."""
    if client := getattr(django_caches[alias], "client", None):
        for server in client._server:
            pool = client.connection_factory._pools.pop(server, None)
            if pool is not None:
                pool.disconnect()


def bad(findings: dict[str, Finding]) -> dict[str, str]:
    """Return the findings that are more than good to know."""
    return {one.id: one.severity for one in findings.values() if one.severity != "info"}


def test_a_server_that_is_set_up_well_hears_of_nothing_bad(found: Examine) -> None:
    assert bad(found()) == {}


def test_the_trial_leaves_no_lock_behind(found: Examine, admin: redis.Redis) -> None:
    found()

    locks = redis.Redis(port=admin.connection_pool.connection_kwargs["port"], db=1)
    # On a busy machine it takes long enough for the process to say that it lives.
    names = [name for name in locks.scan_iter() if not re.search(b":(gone|process):", name)]
    locks.close()
    assert [name for name in names if not name.endswith(b":meta")] == []


def test_d001_a_server_that_is_not_there(found: Examine) -> None:
    findings = found(caches={"locks": cache("redis://127.0.0.1:1/0")})

    assert bad(findings) == {"D001": "error"}
    assert "cannot be reached" in findings["D001"].seen


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the doctor's waiter time to hear of a refusal from a server that is busy."""
    monkeypatch.setattr(patients, "_WAIT", 2.0)


def as_user(admin: redis.Redis, *rule: str) -> dict[str, Any]:
    command(admin, "ACL", "SETUSER", "app", "reset", "on", ">secret", *rule)
    port = admin.connection_pool.connection_kwargs["port"]
    return {"locks": cache(f"redis://app:secret@127.0.0.1:{port}/1")}


def test_d002_scripts_are_refused(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", "-eval", "-evalsha"))

    assert bad(findings) == {"D002": "error"}
    assert "eval" in findings["D002"].seen


def test_d002_a_password_is_wrong(found: Examine, real_server: RealServer) -> None:
    url = real_server.url.replace("//", "//app:wrong@")

    findings = found(caches={"locks": cache(url)})

    assert findings["D002"].severity == "error"
    assert "wrong@" not in str(findings)


@pytest.mark.parametrize("name", [*TRIALS, "EVAL", "EVALSHA"])
def test_d002_names_the_command_that_is_refused(
    found: Examine, admin: redis.Redis, name: str
) -> None:
    caches = as_user(admin, "~*", "+@all", f"-{name}")

    finding = found(caches=caches, INDEX=name != "SCAN")["D002"]

    assert finding.severity == "error"
    assert re.search(rf"\b{name.lower()}\b", finding.seen)


def test_d002_replicas_cannot_be_waited_for(found: Examine, admin: redis.Redis) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    with RealServer(binary(), "--replicaof", "127.0.0.1", port):
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        finding = found(caches=as_user(admin, "~*", "+@all", "-wait"), REPLICAS=1)["D002"]

    assert "wait" in finding.seen


def test_d002_names_all_that_are_refused(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", "-pexpire", "-zcard", "-hget"))

    assert "pexpire" in findings["D002"].seen
    assert "hget, zcard" in findings["D002"].seen


def test_every_command_that_a_script_sends_is_tried() -> None:
    scripts = importlib.resources.files("django_setnx_lock.core.protocol.scripts")
    texts = {path.name: path.read_text() for path in scripts.iterdir() if ".lua" in path.name}
    # What passes on what it is told to send is known by its name.
    asking = texts.pop("asking.lua")
    # Only a search through many locks sends what this does.
    texts.pop("search.lua")
    text = "".join(texts.values())
    sent = re.findall(r"redis\.p?call\('([A-Z]+)'", text)
    asked = re.findall(r"\bask\('([A-Z]+)'", text)

    assert "local function ask(...)" in asking
    assert len(sent) == len(re.findall(r"redis\s*[.\[](?!error_reply)", text)) > 100
    assert len(asked) == len(re.findall(r"\bask\(", text)) > 1
    calls = {*sent, *asked}
    assert calls <= needed(polls=False, has_index=True, has_history=True) <= set(TRIALS)
    assert set(TRIALS) - calls == {"SCAN"}


def test_who_polls_needs_fewer_commands() -> None:
    polling, waking = (
        needed(polls=polls, has_index=True, has_history=True) for polls in (True, False)
    )

    assert polling < waking
    assert "LPUSH" not in polling


def test_without_a_history_no_right_to_write_one_is_needed(
    found: Examine, admin: redis.Redis
) -> None:
    caches = as_user(admin, "~*", "+@all", "-xadd")

    assert bad(found(caches=caches)) == {"D002": "error"}
    assert bad(found(caches=caches, HISTORY=None)) == {}
    assert bad(found(caches=caches, INDEX=False)) == {}


def test_the_trial_of_the_commands_changes_nothing(found: Examine, real_server: RealServer) -> None:
    client = real_server.client(db=1)
    client.config_resetstat()
    found(caches={})
    calls = client.info("commandstats")

    assert calls["cmdstat_zremrangebyscore"]["failed_calls"] >= 1
    assert not [name for name in client.scan_iter() if client.type(name) != b"string"]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("command", ["blpop", "bzpopmin"])
def test_d002_nobody_may_wait(found: Examine, admin: redis.Redis, command: str) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", f"-{command}"))

    assert bad(findings) == {"D002": "error"}
    assert command in findings["D002"].seen


@pytest.mark.usefixtures("unhurried")
def test_d002_a_command_is_renamed_away(found: Examine) -> None:
    with RealServer(binary(), "--rename-command", "BLPOP", "") as server:
        findings = found(caches={"locks": cache(server.url)})

    assert findings["D002"].severity == "error"
    assert "BLPOP" in findings["D002"].seen


def test_d002_who_polls_needs_no_right_to_wait(found: Examine, admin: redis.Redis) -> None:
    caches = as_user(admin, "~*", "+@all", "-blpop", "-bzpopmin")

    assert bad(found(caches=caches, POLLING=True)) == {}


def test_d003_a_replica(found: Examine, admin: redis.Redis) -> None:
    admin.replicaof("127.0.0.1", "1")

    assert bad(found()) == {"D003": "error"}


def test_d004_replicas_are_missing_without_which_it_takes_no_writes(
    found: Examine, admin: redis.Redis
) -> None:
    admin.config_set("min-replicas-to-write", 1)

    findings = found()

    assert bad(findings) == {"D004": "error"}
    assert "NOREPLICAS" in findings["D004"].seen


def test_d004_memory_is_full(found: Examine, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", "1000")

    assert bad(found()) == {"D004": "error", "D007": "warning"}


def test_d005_what_the_doctor_may_not_look_at(found: Examine, admin: redis.Redis) -> None:
    findings = found(caches=as_user(admin, *RULE, "+select"))

    assert bad(findings) == {"D005": "warning"}
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

    assert bad(without_limit) == {"D006": "warning"}
    assert bad(with_limit) == {"D006": "error"}
    assert policy in with_limit["D006"].seen


@pytest.mark.parametrize(("used", "ids"), [(899, []), (900, ["D007"])])
def test_d007_memory_that_is_nearly_full(used: int, ids: list[str]) -> None:
    info = {"maxmemory_policy": "noeviction", "maxmemory": 1000, "used_memory": used}

    assert [one.id for one in examine_memory(patient(info=info))] == ids


def test_d008_no_persistence(found: Examine, admin: redis.Redis) -> None:
    with_snapshots = found()["D008"].severity
    admin.config_set("save", "")

    assert with_snapshots == "info"
    assert bad(found()) == {"D008": "warning"}


def test_d008_what_is_written_at_once_is_not_spoken_of() -> None:
    with (
        RealServer(binary(), "--appendonly", "yes", "--appendfsync", "always") as server,
        override_settings(CACHES={"default": cache(server.url)}),
    ):
        report = examine()
        forget("default")

    assert "D008" not in report.by_id


def binary() -> str:
    return next(iter(server_binaries().values()))


def test_d009_a_replica_that_locks_wait_for_and_one_that_none_waits_for(
    found: Examine, admin: redis.Redis
) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    missing = found(REPLICAS=1)
    with RealServer(binary(), "--replicaof", "127.0.0.1", port):
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        unused = found()
        # What is online may not acknowledge within a lock's second where the machine is busy.
        eventually(lambda: "D009" not in found(REPLICAS=1))

    assert missing["D009"].severity == "error"
    assert unused["D009"].severity == "info"


def test_d009_a_replica_that_is_online_and_acknowledges_nothing(
    found: Examine, admin: redis.Redis
) -> None:
    port = str(admin.connection_pool.connection_kwargs["port"])
    with RealServer(binary(), "--replicaof", "127.0.0.1", port) as replica:
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        replica.pause()
        findings = found(REPLICAS=1)
        replica.resume()

    assert bad(findings) == {"D009": "error"}
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

    assert bad(findings) == {"D010": "warning"}
    assert "'sessions'" in findings["D010"].seen


def test_d010_the_default_cache_has_the_locks(found: Examine, real_server: RealServer) -> None:
    findings = found(caches={"default": cache(real_server.url)}, aliases="default")

    assert bad(findings) == {"D010": "warning"}


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

    assert bad(findings) == {"D011": "warning"}
    assert "1 of" in findings["D011"].seen
    assert "'session:42'" in findings["D011"].seen


def patient(*, is_master: bool = False, info: Any = (), **settings: Any) -> patients.Patient:
    return patients.Patient(
        using="locks",
        client=None,
        settings={"PROTOCOL": "setnx", **settings},
        workers=patients.Workers(),
        is_master=is_master,
        info=dict(info),
    )


@pytest.mark.parametrize(("step", "way"), [(90, "ahead of"), (-90, "behind")])
@pytest.mark.parametrize(("protocol", "severity"), [("setnx", "info"), ("timestamp", "warning")])
def test_d012_the_clock_of_this_machine_is_off(
    real_cache: RealServer,
    monkeypatch: pytest.MonkeyPatch,
    step: float,
    way: str,
    protocol: str,
    severity: str,
) -> None:
    now = time.time
    with override_settings(SETNX_LOCK={"PROTOCOL": protocol}), monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + step)
        finding = examine().by_id["D012"]

    assert finding.severity == severity
    assert re.search(rf"(89\.\d|90\.\d) s {way}", finding.seen)


def test_d012_a_clock_that_is_right_is_not_spoken_of(real_cache: RealServer) -> None:
    assert "D012" not in examine().by_id


@pytest.mark.parametrize(
    ("timeout", "wait", "severity"),
    [
        (5, 10, "warning"),
        (5, None, "warning"),
        (None, 10, "warning"),
        (10, 10, None),
    ],
)
def test_d013_the_socket_timeout_against_the_wait(
    found: Examine, timeout: float | None, wait: float | None, severity: str | None
) -> None:
    pool = {"socket_timeout": timeout}

    findings = found(options={"CONNECTION_POOL_KWARGS": pool}, BLOCKING_TIMEOUT=wait)

    assert bad(findings) == ({} if severity is None else {"D013": severity})


def test_d013_a_socket_timeout_that_nobody_has_chosen_is_good_to_know_at_most(
    real_cache: RealServer,
) -> None:
    pool = get_client("default").connection_pool
    chosen = getattr(pool.connection_class(**pool.connection_kwargs), "socket_timeout", None)

    findings = examine().by_id

    assert findings["D013"].severity == ("info" if chosen else "warning")


def test_d014_fewer_connections_than_threads(found: Examine) -> None:
    options = {"CONNECTION_POOL_KWARGS": {"max_connections": 7}}

    assert bad(found(options=options, gunicorn="--threads 8")) == {"D014": "warning"}
    assert bad(found(options=options, gunicorn="--threads 7")) == {}


def test_d014_a_pool_that_callers_wait_for_longer_than_for_a_lock(found: Examine) -> None:
    options = {
        "CONNECTION_POOL_CLASS": "redis.connection.BlockingConnectionPool",
        "CONNECTION_POOL_KWARGS": {"timeout": 12},
    }

    assert bad(found(options=options)) == {"D014": "warning"}
    assert bad(found(options=options, BLOCKING_TIMEOUT=12)) == {}


def test_d014_more_workers_than_the_server_has_connections(
    found: Examine, admin: redis.Redis
) -> None:
    # Far more than earlier tests may have left connected.
    admin.config_set("maxclients", 1000)

    assert bad(found(gunicorn="-w 200 --threads 2")) == {}
    assert bad(found(gunicorn="-w 201 --threads 2")) == {"D014": "warning"}


def test_d014_nearly_all_connections_of_the_server_are_in_use(
    found: Examine, admin: redis.Redis
) -> None:
    # Earlier tests may have left some, which would be closed at any moment.
    command(admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    others = [redis.Redis(port=admin.connection_pool.connection_kwargs["port"]) for _ in range(40)]
    for one in others:
        one.ping()
    connected = int(admin.info("clients")["connected_clients"])
    admin.config_set("maxclients", 2 * connected)
    plenty = found()
    admin.config_set("maxclients", connected + 8)
    findings = found()
    for one in others:
        one.close()

    assert bad(plenty) == {}
    assert bad(findings) == {"D014": "warning"}
    assert "(maxclients) are in use" in findings["D014"].seen


@pytest.mark.parametrize(
    ("setting", "seconds", "severity"),
    [
        ({"TIMEOUT": 30}, 30, None),
        ({"TIMEOUT": 30}, 60, "info"),
        ({"TIMEOUT": 30, "RENEW": False}, 60, "warning"),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": None}, 30, "warning"),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": 8}, 8, "warning"),
        ({"TIMEOUT": 30, "BLOCKING_TIMEOUT": 8}, 9, None),
    ],
)
def test_d015_when_workers_are_ended(
    found: Examine, setting: dict[str, Any], seconds: float, severity: str | None
) -> None:

    finding = found(arguments=("--worker-timeout", str(seconds)), **setting).get("D015")

    assert (finding and finding.severity) == severity


def test_d016_two_masters_of_a_redlock_that_are_one_server(
    found: Examine, real_server: RealServer
) -> None:
    same = cache(real_server.url.replace("127.0.0.1", "localhost"))
    gone = cache("redis://127.0.0.1:1/0")

    findings = found(caches={"same": same, "gone": gone}, aliases="locks,same,gone")

    assert bad(findings) == {"D001": "error", "D016": "error"}
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

    assert without["D017"].severity == "info"
    assert bad(protected) == {}
    assert "D017" not in protected


def test_d017_is_a_warning_where_sentinels_name_the_primary() -> None:
    client = Sentinel([("127.0.0.1", 1)]).master_for("shop")  # type: ignore[no-untyped-call]  # redis-py's own
    info = {"connected_slaves": 1, "slave0": {"state": "online"}}
    watched = replace(patient(info=info), client=client, config={"min-replicas-to-write": "0"})

    assert [one.severity for one in examine_old_primary(watched)] == [patients.Severity.WARNING]


@pytest.mark.parametrize(
    ("idle", "setting", "ids"),
    [
        (0, {}, []),
        (10, {}, ["D018"]),
        (11, {}, []),
        (10, {"RENEW": False}, []),
        (1, {"TIMEOUT": 2.5}, []),
    ],
)
def test_d018_a_server_that_closes_what_is_idle(
    found: Examine, admin: redis.Redis, idle: int, setting: dict[str, Any], ids: list[str]
) -> None:
    admin.config_set("timeout", idle)

    findings = found(**setting)

    assert [one for one in findings if one == "D018"] == ids
    assert bad(findings) == {}


def test_each_finding_is_explained_in_the_docs() -> None:
    sources = importlib.resources.files("django_setnx_lock").joinpath("management/locks")
    ids = {
        found
        for source in sources.iterdir()
        if source.name.endswith(".py")
        for found in re.findall(r'"(D\d{3})"', source.read_text())
    }

    assert set(re.findall(r"^### (D\d{3})$", DOCS.read_text(), re.MULTILINE)) == ids
    assert len(ids) == 18


def test_a_report_says_all_of_a_finding() -> None:
    finding = patients.Finding("D008", patients.Severity.WARNING, "locks", "It is so.", "Do this.")
    report = doctor.Report(examined={"locks": "redis 7"}, findings=[finding])

    assert report.as_text() == [
        "locks: redis 7",
        "  WARNING D008: It is so.",
        "    Do this.",
        f"    {docs_url('locks-command', 'D008')}",
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
            "docs": docs_url("locks-command", "D008"),
        }
    ]
