"""Each finding of ``manage.py locks doctor``, on real servers that are set up badly."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import redis
from django.core.cache import caches as django_caches
from django.test import override_settings

from tests.management.commands.conftest import Locks
from tests.management.doctor import Finding, examine
from tests.management.holders import hold_many
from tests.processes import eventually
from tests.redis.sentinels import SERVICE, sentinel_of
from tests.servers import FakeServer, RealServer, any_binary
from tests.wire.test_acl import RULE

DOCS = importlib.resources.files("django_setnx_lock").joinpath("../docs/troubleshooting.md")
ELSEWHERE = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
# What the tests configure, and undo.
CHANGED = ("maxmemory", "maxmemory-policy", "min-replicas-to-write", "replica-read-only")
# The server of the tests writes nothing to disk.
SILENCED = ["django_setnx_lock.D008"]

Examine = Callable[..., dict[str, Finding]]


def cache(url: str, **options: Any) -> dict[str, Any]:
    options = {"SOCKET_TIMEOUT": 15, **options}
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}


@pytest.fixture
def admin(real_server: RealServer) -> Iterator[redis.Redis]:
    """Give a client that sets the server up badly; undone afterwards."""
    client = real_server.client()
    before = client.config_get("*")
    yield client
    client.replicaof("NO", "ONE")
    for name in CHANGED:
        client.config_set(name, str(before[name]))
    client.acl_deluser("app")


@pytest.fixture
def found(real_server: RealServer, admin: redis.Redis) -> Examine:
    """Give a function that examines the cache ``locks`` and returns what was found, by id."""
    usual = cache(real_server.url.replace("/0", "/1"))

    def examined(
        *,
        caches: dict[str, Any] | None = None,
        aliases: str = "locks",
        silenced: Sequence[str] = SILENCED,
        **setting: Any,
    ) -> dict[str, Finding]:
        every = {"default": ELSEWHERE, "locks": usual, **(caches or {})}
        setnx_lock = {"CACHE": "locks", **setting}
        with override_settings(
            CACHES=every, SETNX_LOCK=setnx_lock, SILENCED_SYSTEM_CHECKS=silenced
        ):
            report = examine("--using", aliases)
            for alias in every:
                forget(alias)
        return report.by_id

    return examined


def forget(alias: str) -> None:
    """Have the connections to ``alias`` made anew: django-redis keeps them by URL."""
    if client := getattr(django_caches[alias], "client", None):
        for server in client._server:  # noqa: SLF001 - django-redis keeps its pools for ever
            pool = client.connection_factory._pools.pop(server, None)
            if pool is not None:
                pool.disconnect()


def bad(findings: dict[str, Finding]) -> dict[str, str]:
    """Return how bad what was found is."""
    return {one.id: one.level for one in findings.values()}


def as_user(admin: redis.Redis, *rule: str) -> dict[str, Any]:
    """Return the caches of one who has these rights."""
    admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rule)  # type: ignore[no-untyped-call]  # redis-py's own
    return {"locks": cache(f"redis://app:secret@127.0.0.1:{port_of(admin)}/1")}


def port_of(client: redis.Redis) -> int:
    port: int = client.connection_pool.connection_kwargs["port"]
    return port


@pytest.fixture
def replica(admin: redis.Redis) -> Iterator[RealServer]:
    """Give a replica of the server, which is online."""
    with RealServer(any_binary(), "--replicaof", "127.0.0.1", str(port_of(admin))) as replica:
        eventually(lambda: admin.info("replication").get("slave0", {}).get("state") == "online")
        yield replica


def test_a_server_that_is_set_up_well_hears_of_nothing_bad_and_no_lock_is_left(
    found: Examine, admin: redis.Redis
) -> None:
    assert bad(found()) == {}

    locks = redis.Redis(port=port_of(admin), db=1)
    # On a busy machine it takes long enough for the process to say that it lives.
    # And who waited counts as awake for a moment.
    kept = re.compile(b":(meta|process:.*|.*:awake)\\Z")
    names = list(locks.scan_iter())
    locks.close()
    assert [name for name in names if not kept.search(name)] == []


@contextmanager
def password(server: RealServer) -> Iterator[None]:
    server.client().config_set("requirepass", "secret")
    try:
        yield
    finally:
        server.client(password="secret").config_set("requirepass", "")


@contextmanager
def paused(server: RealServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


@pytest.mark.parametrize(
    ("url", "timeout", "trouble", "said"),
    [
        ("redis://127.0.0.1:1/0", 15, nullcontext, "cannot be reached"),
        ("redis://app:wrong@127.0.0.1:{port}/0", 15, nullcontext, "credentials"),
        ("redis://127.0.0.1:{port}/0", 15, password, "credentials"),
        ("redis://127.0.0.1:{port}/99", 15, nullcontext, "DB index is out of range"),
        ("redis://127.0.0.1:{port}/0", 0.05, paused, "It was given 0.05 s."),
    ],
)
def test_d001_whoever_cannot_log_in_hears_of_that_alone(
    found: Examine,
    real_server: RealServer,
    url: str,
    timeout: float,
    trouble: Callable[[RealServer], AbstractContextManager[None]],
    said: str,
) -> None:
    location = url.format(port=real_server.port)
    with trouble(real_server):
        findings = found(caches={"locks": cache(location, SOCKET_TIMEOUT=timeout)})

    assert bad(findings) == {"D001": "error"}
    assert said in findings["D001"].message
    assert "wrong" not in str(findings)


# Rights that nothing needs which the doctor does.
NOT_TRIED = {"+zremrangebyscore", "+zrank"}


@pytest.mark.parametrize(
    "name",
    [one[1:] for one in RULE if one.startswith("+") and one not in NOT_TRIED],
)
def test_d002_a_right_is_missing(found: Examine, admin: redis.Redis, name: str) -> None:
    findings = found(caches=as_user(admin, "~*", "+@all", f"-{name}"))

    finding = findings["D002"]
    assert bad(findings) == {"D002": "error"}
    # Redis before 7.2 does not name a command of a script.
    assert re.search(rf"(?i)\b{name}\b|can't run this command", finding.message)
    assert "#rights" in finding.hint


def test_d002_replicas_cannot_be_waited_for(
    found: Examine, admin: redis.Redis, replica: RealServer
) -> None:
    finding = found(caches=as_user(admin, "~*", "+@all", "-wait"), REPLICAS=1)["D002"]

    assert "wait" in finding.message


def test_d002_a_command_is_renamed_away(found: Examine) -> None:
    with RealServer(any_binary(), "--rename-command", "BRPOP", "") as server:
        findings = found(caches={"locks": cache(server.url)})

    assert findings["D002"].level == "error"
    assert "BRPOP" in findings["D002"].message


def test_d002_who_polls_needs_no_right_to_wait(found: Examine, admin: redis.Redis) -> None:
    caches = as_user(admin, "~*", "+@all", "-brpop")

    assert bad(found(caches=caches, PROTOCOL="hosted")) == {}


@pytest.mark.parametrize("read_only", ["yes", "no"])
def test_d003_a_replica_whether_it_takes_writes_or_not(
    found: Examine, admin: redis.Redis, read_only: str
) -> None:
    admin.config_set("replica-read-only", read_only)
    admin.replicaof("127.0.0.1", "1")

    assert bad(found()) == {"D003": "error"}


def test_d003_a_replica_that_does_not_tell_what_it_is(found: Examine, admin: redis.Redis) -> None:
    caches = as_user(admin, *RULE, "+select")
    admin.replicaof("127.0.0.1", "1")

    assert found(caches=caches)["D003"].level == "error"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("min-replicas-to-write", "1", "NOREPLICAS"), ("maxmemory", "1000", "maxmemory")],
)
def test_d004_it_takes_no_writes(
    found: Examine, admin: redis.Redis, name: str, value: str, said: str
) -> None:
    admin.config_set(name, value)

    findings = found()

    assert bad(findings) == {"D004": "error"}
    assert said in findings["D004"].message


def test_d004_no_replica_that_locks_wait_for_acknowledges_anything(
    found: Examine, replica: RealServer
) -> None:
    # What is online may not acknowledge within a lock's second where the machine is busy.
    eventually(lambda: "D004" not in found(REPLICAS=1))
    replica.pause()
    findings = found(REPLICAS=1)
    replica.resume()

    assert bad(findings) == {"D004": "error", "D017": "warning"}
    assert "0 of the 1 replicas asked for" in findings["D004"].message


def test_what_it_may_not_look_at_is_named_and_no_fault(
    locks: Locks, real_cache: RealServer, admin: redis.Redis
) -> None:
    with override_settings(CACHES={"default": as_user(admin, *RULE, "+select")["locks"]}):
        ended = locks("doctor")

    assert "not examined, as Redis refuses INFO and SCAN\n" in ended.out
    assert "Errors: 0. " in ended.out


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_d006_a_policy_that_drops_locks(found: Examine, admin: redis.Redis, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)

    without_limit = found()
    admin.config_set("maxmemory", "1gb")
    with_limit = found()

    assert bad(without_limit) == {"D006": "warning"}
    assert bad(with_limit) == {"D006": "error"}
    assert policy in with_limit["D006"].message


def test_d008_no_persistence_which_may_be_silenced(found: Examine) -> None:
    with RealServer(any_binary(), "--appendonly", "yes") as server:
        written_at_once = found(caches={"locks": cache(server.url)}, silenced=())

    assert bad(written_at_once) == {}
    assert bad(found(silenced=())) == {"D008": "warning"}
    assert bad(found()) == {}


def test_d011_other_things_in_the_database(found: Examine, real_server: RealServer) -> None:
    client = real_server.client(db=1)
    client.set("session:42", "x")
    client.set("lock:order:42", "x")

    findings = found()

    assert bad(findings) == {"D011": "warning"}
    assert "1 of" in findings["D011"].message
    assert "'session:42'" in findings["D011"].message


def test_d016_two_masters_of_a_redlock_that_are_one_server(
    found: Examine, real_server: RealServer
) -> None:
    same = cache(real_server.url.replace("127.0.0.1", "localhost"))
    gone = cache("redis://127.0.0.1:1/0")

    findings = found(caches={"same": same, "gone": gone}, aliases="locks,same,gone", REPLICAS=1)

    # REPLICAS is not for the masters of a Redlock.
    assert bad(findings) == {"D001": "error", "D016": "error"}
    assert "'locks' and 'same'" in findings["D016"].message


def test_d017_a_primary_that_grants_locks_when_it_is_one_no_longer(
    found: Examine, admin: redis.Redis, replica: RealServer
) -> None:
    without = found()
    admin.config_set("min-replicas-to-write", 1)
    eventually(lambda: admin.info("replication").get("min_slaves_good_slaves"))
    protected = found()

    assert bad(without) == {"D017": "warning"}
    assert bad(protected) == {}


def test_d017_a_primary_that_a_sentinel_names_is_to_be_protected_from_being_the_old_one(
    found: Examine, real_server: RealServer
) -> None:
    with sentinel_of(real_server) as port:
        by_name = cache(
            f"redis://{SERVICE}/1",
            CLIENT_CLASS="django_redis.client.SentinelClient",
            CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
            SENTINELS=[("127.0.0.1", port)],
        )
        with override_settings(
            DJANGO_REDIS_CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory"
        ):
            eventually(lambda: bad(found(caches={"locks": by_name})) == {})
            with RealServer(any_binary(), "--replicaof", "127.0.0.1", str(real_server.port)):
                eventually(lambda: real_server.client().info()["connected_slaves"])
                eventually(lambda: real_server.client().info()["slave0"]["state"] == "online")
                followed = eventually(lambda: found(caches={"locks": by_name}).get("D017"))

    assert followed is not None
    assert followed.level == "warning"


def test_each_finding_is_explained_in_the_docs() -> None:
    package = importlib.resources.files("django_setnx_lock")
    documented = re.findall(r"^### (D\d{3})$", DOCS.read_text(), re.MULTILINE)
    sources = [
        one.read_text()
        for one in package.joinpath("management/locks").iterdir()
        if one.name.endswith(".py")
    ]

    assert {*documented} == {*re.findall(r'"(D\d{3})"', "".join(sources))}
    assert len(documented) == 9


def test_it_says_what_is_there_and_what_to_do(locks: Locks, real_cache: RealServer) -> None:
    hold_many(3)
    real_cache.client().set("{lock:}:process:abc", "web1:42", px=15_000)

    ended = locks("doctor")

    first, *lines = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert first.startswith(("default: redis ", "default: valkey "))
    assert f"at 127.0.0.1:{real_cache.port}/0, " in first
    assert re.search(r"; timeout: [\d.]+ s, locks: 3, living processes: 1$", first)
    # The server of the tests writes nothing to disk.
    assert [line for line in lines if line.startswith("  WARNING D008: ")]
    assert re.search(r"^    .* See http\S+#d008$", ended.out, re.MULTILINE)
    # What Django's checks say of the cache is told, too.
    assert "  WARNING W002: clear() of the cache 'default' " in ended.out


def test_errors_are_status_2_69_or_78(
    locks: Locks, real_cache: RealServer, admin: redis.Redis
) -> None:
    admin.config_set("maxmemory", 1)

    assert locks("doctor").status == 2
    assert locks("doctor", "--using", "none").status == 78


def test_a_server_that_is_not_there_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    ended = locks("doctor", "--json")

    assert ended.status == 69
    assert [one["id"] for one in ended.document["findings"]] == ["D001"]
    assert ended.document["findings"][0].keys() == {"id", "level", "using", "message", "hint"}
