"""The rights that docs/redis.md tells an administrator to give, and that none can be left out."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.protocol import scripts
from tests.support.locks import INDEX, command, listed, meet
from tests.support.seams import release_each, take_each
from tests.wire.helpers import cancel
from tests.wire.queueing import claim, looked, mailbox_of, waiters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

REAL = pytest.mark.real
pytestmark = pytest.mark.usefixtures("nobody_looks")
DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


def documented() -> list[str]:
    """Return the key patterns and commands of the rule in the docs."""
    rule = re.search(r"ACL SETUSER app on >secret ([^`]*)```", DOCS.read_text())
    assert rule, "the docs have no ACL rule"
    return rule[1].replace("\\\n", " ").split()


RULE = documented()


@pytest.fixture
def admin(server: RealServer) -> Iterator[redis.Redis]:
    client = server.client()
    # The right to send a script is needed where the server does not know it.
    client.script_flush()
    yield client
    client.acl_deluser("app")


def as_user(server: RealServer, rule: list[str], **options: Any) -> redis.Redis:
    command(server.client(), "ACL", "SETUSER", "app", "reset", "on", ">secret", *rule)
    once = Retry(NoBackoff(), 0)
    return server.client(username="app", password="secret", retry=once, **options)


def keep_sleeping(client: redis.Redis) -> None:
    """Sleep as a waiter does, whom the second failure in a row stops when he reads of it."""
    box, token, _ = mailbox_of(client)
    for _ in range(3):
        run(box.sleep(token, 0.5))
    box.close()


def wait_in_asyncio(client: redis.Redis) -> None:
    """Wait as a task does, which the second failure in a row stops, too."""

    async def work() -> None:
        held = await listed(client, "waited for").atake(0)
        waiting = asyncio.create_task(listed(client, "waited for").atake(20))
        await asyncio.wait({waiting}, timeout=0.3)
        await held.arelease()
        await (await waiting).arelease()

    asyncio.run(work())


def share(client: redis.Redis) -> None:
    """Do what readers and holders of permits do besides."""
    for options in ({"shared": True}, {"limit": 2}):
        first, second = (listed(client, "shared", **options) for _ in range(2))
        with first as held, second:
            held.check()
            held.extend(1)


def use_everything(client: redis.Redis, admin: redis.Redis) -> None:
    """Do all that the app does, with scripts that the server does not know yet."""
    inspector = Inspector(client, "lock:")
    lock = listed(client, "a")
    with lock as held:
        held.check()
        held.extend(1)
        assert lock.locked()
        first, second = waiters(client, 2)
        assert [(info.key, info.waiting) for info in inspector.find().locks] == [("a", 2)]
    assert looked(first) == second.token
    claim(second).release()
    cancel(first)
    keep_sleeping(client)
    wait_in_asyncio(client)
    admin.set("lock:foreign", "somebody")
    meet(client, "foreign")
    taken = take_each([listed(client, key) for key in "xy"])
    assert release_each([one.held for one in taken if one.held]) == []
    assert not [one.error for one in taken if one.error]
    share(client)
    lock.acquire()
    seen = inspector.get("lock:a").fingerprint
    assert inspector.force_release("lock:a", seen) is Outcome.RELEASED


def test_the_documented_rule_has_all_that_is_sent_and_nothing_else() -> None:
    commands = {part.removeprefix("+").upper() for part in RULE if part.startswith("+")}

    sources = [
        script.source
        for script in vars(scripts).values()
        if isinstance(script, scripts.Script) and not script.name.startswith("hosted_")
    ]
    # The second is of asking.lua.
    sent = set(re.findall(r"\b(?:redis\.p?call|ask)\('([A-Z]+)'", "".join(sources)))
    listing = {"ZCOUNT", "ZRANGEBYSCORE"}
    assert commands == {*sent, *listing, "EVAL", "EVALSHA", "BLPOP", "BZPOPMIN"}


@REAL
def test_the_documented_rule_is_enough(server: RealServer, admin: redis.Redis) -> None:
    use_everything(as_user(server, RULE), admin)


@REAL
@pytest.mark.parametrize("right", [part for part in RULE if part != "+zremrangebyscore"])
def test_no_part_of_the_documented_rule_can_be_left_out(
    server: RealServer, admin: redis.Redis, right: str
) -> None:
    client = as_user(server, [part for part in RULE if part != right])

    with pytest.raises(LockUnavailable) as caught:
        use_everything(client, admin)

    assert caught.value.cause == "denied"


@REAL
def test_without_the_right_to_sweep_only_the_index_is_not_swept(
    server: RealServer, admin: redis.Redis
) -> None:
    admin.zadd(INDEX, {"lock:crashed": 1})
    rule = [part for part in RULE if part != "+zremrangebyscore"]
    lock = listed(as_user(server, rule), "a")

    # One in a hundred would.
    for _ in range(700):
        with lock:
            pass

    assert admin.zscore(INDEX, "lock:crashed") == 1


@REAL
def test_looking_for_every_lock_needs_scan_as_well(server: RealServer, admin: redis.Redis) -> None:
    admin.set("lock:foreign", "somebody")
    with pytest.raises(LockUnavailable) as caught:
        Inspector(as_user(server, RULE), "lock:").find(everything=True)

    page = Inspector(as_user(server, [*RULE, "+scan"]), "lock:").find(everything=True)

    assert caught.value.cause == "denied"
    assert page.total == 1


@REAL
def test_a_search_needs_zscan_as_well(server: RealServer, admin: redis.Redis) -> None:
    listed(admin, "a").take()
    with pytest.raises(LockUnavailable) as caught:
        Inspector(as_user(server, RULE), "lock:").find(search="a")

    page = Inspector(as_user(server, RULE), "lock:").find()
    found = Inspector(as_user(server, [*RULE, "+zscan"]), "lock:").find(search="a")

    assert caught.value.cause == "denied"
    assert page.total == found.total == 1


@REAL
def test_another_database_needs_select_as_well(server: RealServer, admin: redis.Redis) -> None:
    with pytest.raises(LockUnavailable) as caught:
        listed(as_user(server, RULE, db=1), "a").acquire()

    assert caught.value.cause == "denied"
    assert listed(as_user(server, [*RULE, "+select"], db=1), "a").acquire()
