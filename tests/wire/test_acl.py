"""The rights that the locks need on the server, and that none can be left out."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, MultiLock, RedisLock
from django_setnx_lock.core.protocol import requests
from tests.servers import ONCE
from tests.support.locks import command
from tests.wire.running import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

pytestmark = pytest.mark.real
DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


def documented() -> list[str]:
    """Return the key patterns and commands of the rule in the docs."""
    rule = re.search(r"ACL SETUSER app on >secret ([^`]*)```", DOCS.read_text())
    assert rule, "the docs have no ACL rule"
    return rule[1].replace("\\\n", " ").split()


RULE = documented()
SCRIPTS = Path(requests.__file__).parent / "scripts"
# What the inspector may not read it shows as not known; some deadlocks are not found.
ONLY_SHOWN = {"+hexists", "+zrank"}
INDEX = "{lock:}:index"


@pytest.fixture
def admin(server: RealServer) -> Iterator[redis.Redis]:
    client = server.client()
    # The right to send a script is needed where the server does not know it.
    client.script_flush()
    yield client
    client.acl_deluser("app")


def as_user(server: RealServer, rule: list[str]) -> redis.Redis:
    command(server.client(), "ACL", "SETUSER", "app", "reset", "on", ">secret", *rule)
    return server.client(username="app", password="secret", retry=ONCE)


def lock(client: redis.Redis, key: str, timeout: float = 30, **options: Any) -> RedisLock:
    return RedisLock(client, f"lock:{key}", timeout, key=key, index=INDEX, **options)


def wait_in_asyncio(client: redis.Redis) -> None:
    async def work() -> None:
        await lock(client, "waited for", 1).atake(0)
        await (await lock(client, "waited for", 1).atake(20)).arelease()

    asyncio.run(work())


def use_everything(client: redis.Redis) -> None:
    """Do all that the app does, with scripts that the server does not know yet."""
    wire = Wire(client)
    for token in ("holder", "read:1", "permit:2:1"):
        wire.take(token)
        wire.run("renew", token, "40000")
        wire.queue("w1", "w2")
        wire.let_go(token)
        wire.look("w1")
        for waiter in ("w1", "w2"):
            wire.let_go(waiter, "doubt")
    for token in ("read:2", "read:3"):
        wire.take(token)
    wire.let_go("read:2")
    wire.let_go("read:3")
    with lock(client, "a") as held:
        held.check()
        assert lock(client, "a").locked()
        assert lock(client, "a").acquire(blocking=False) is False
        assert [one.key for one in Inspector(client, "lock:").find().locks] == ["a"]
    with MultiLock(client, ["lock:x", "lock:y"], index=INDEX):
        pass
    lock(client, "b", 1).take(0)
    lock(client, "b").take(20).release()
    wait_in_asyncio(client)
    lock(client, "c", shared=True).acquire()
    inspector = Inspector(client, "lock:")
    seen = inspector.get("lock:c").shares[0].fingerprint
    inspector.ask_to_stop("lock:c", seen, by="ann")
    inspector.force_release("lock:c", seen, by="ann")


def test_the_rule_has_all_that_is_sent_and_nothing_else() -> None:
    sources = "".join(file.read_text() for file in SCRIPTS.glob("*.lua"))
    sent = set(re.findall(r"(?:redis\.p?call|ask)\('([A-Z]+)'", sources))
    chosen = set(re.findall("'(ZREVRANGE)'", sources))
    rule = {part.removeprefix("+").upper() for part in RULE if part.startswith("+")}
    assert rule == {*sent, *chosen, "EVAL", "EVALSHA", "BRPOP"}


def test_the_rule_is_enough(server: RealServer, admin: redis.Redis) -> None:
    use_everything(as_user(server, RULE))


@pytest.mark.parametrize("right", [part for part in RULE if part not in ONLY_SHOWN])
def test_no_part_of_the_rule_can_be_left_out(
    server: RealServer, admin: redis.Redis, right: str
) -> None:
    client = as_user(server, [part for part in RULE if part != right])

    with pytest.raises((LockUnavailable, redis.ResponseError)) as caught:
        use_everything(client)

    if isinstance(caught.value, LockUnavailable):
        assert caught.value.cause == "denied"
    else:
        assert re.search("(?i)permission|noperm|acl|can't", str(caught.value))
