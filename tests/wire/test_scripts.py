from __future__ import annotations

import re
from typing import cast

import pytest
import redis

from django_setnx_lock.core.protocol import commands, scripts
from django_setnx_lock.core.protocol.commands import READERS, Request, command_set
from django_setnx_lock.core.protocol.keys import index_for, lock_keys
from tests.wire.helpers import send

POLLING = [
    scripts.POLLING_ACQUIRE,
    scripts.POLLING_RELEASE,
    scripts.POLLING_CANCEL,
    scripts.POLLING_RENEW,
    scripts.POLLING_CHECK,
    scripts.POLLING_FORCE,
    scripts.POLLING_INSPECT,
]
ALL = [
    scripts.ACQUIRE,
    scripts.ACQUIRE_ALL,
    scripts.RELEASE,
    scripts.CANCEL,
    scripts.LOOK,
    scripts.RENEW,
    scripts.RENEW_ALONE,
    scripts.CHECK,
    scripts.DEADLOCK,
    scripts.SWAP,
    scripts.FORCE,
    scripts.REQUEST_STOP,
    scripts.INSPECT,
    scripts.LIVING,
    scripts.LISTING,
    scripts.TIMESTAMP_ACQUIRE,
    scripts.TIMESTAMP_RELEASE,
    scripts.TIMESTAMP_CANCEL,
    scripts.TIMESTAMP_RENEW,
    scripts.TIMESTAMP_CHECK,
    scripts.TIMESTAMP_LOCKED,
    scripts.TIMESTAMP_FORCE,
    scripts.SHARED_ACQUIRE,
    scripts.SHARED_RELEASE,
    scripts.SHARED_CANCEL,
    scripts.SHARED_LOOK,
    scripts.SHARED_RENEW,
    scripts.SHARED_CHECK,
    scripts.SHARED_FORCE,
    scripts.SHARED_REQUEST_STOP,
    *POLLING,
]
KEYS = lock_keys("lock:a")
INDEX = index_for("lock:")
TIMES = command_set("timestamp", "s")
REQUESTS = [
    commands.SETNX.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    commands.release_kept(KEYS, INDEX, "t", 1000, 1),
    commands.SETNX.cancel(KEYS, INDEX, "t"),
    commands.SETNX.check_handoff(KEYS, "t"),
    commands.give_away(KEYS, INDEX, "t", 1000),
    commands.SETNX.check(KEYS, "t"),
    commands.replace_token(KEYS, "t", "other", 1, "{}"),
    commands.SETNX.force_release(KEYS, INDEX, b"t", None, "joe", "stuck"),
    commands.SETNX.request_stop(KEYS, INDEX, b"t", "joe", "deploy"),
    commands.SETNX.inspect_each([KEYS], INDEX),
]
TIMESTAMP_REQUESTS = [
    TIMES.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    TIMES.release(KEYS, INDEX, "t"),
    TIMES.cancel(KEYS, INDEX, "t"),
    TIMES.renew(KEYS, INDEX, "t", 1000),
    TIMES.check(KEYS, "t"),
    cast(Request, TIMES.locked(KEYS)),
    TIMES.force_release(KEYS, INDEX, b"t", None, "joe", "stuck"),
]
SHARED_REQUESTS = [
    READERS.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    READERS.release(KEYS, INDEX, "t"),
    READERS.cancel(KEYS, INDEX, "t"),
    READERS.check_handoff(KEYS, "t"),
    READERS.renew(KEYS, INDEX, "t", 1000),
    READERS.check(KEYS, "t"),
    READERS.force_release(KEYS, INDEX, b"t", None, "joe", "stuck"),
    READERS.request_stop(KEYS, INDEX, b"t", "joe", "deploy"),
]

POLLS = commands.POLLING
POLLING_REQUESTS = [
    POLLS.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    POLLS.release(KEYS, INDEX, "t"),
    POLLS.cancel(KEYS, INDEX, "t"),
    POLLS.renew(KEYS, INDEX, "t", 1000),
    POLLS.check(KEYS, "t"),
    POLLS.force_release(KEYS, INDEX, b"t", None, "joe", "stuck"),
    commands.POLLING.inspect_each([KEYS], INDEX),
]


def test_the_server_knows_each_script_by_the_same_sha(redis_client: redis.Redis) -> None:
    loaded = {script.name: redis_client.script_load(script.source) for script in ALL}

    assert loaded == {script.name: script.sha for script in ALL}


@pytest.mark.parametrize(
    "name",
    [
        "check",
        "inspect",
        "polling_inspect",
        "polling_check",
        "timestamp_check",
        "timestamp_locked",
        "shared_check",
    ],
)
def test_a_script_that_only_looks_writes_nothing(name: str, redis_client: redis.Redis) -> None:
    request = next(
        request
        for request in REQUESTS + TIMESTAMP_REQUESTS + SHARED_REQUESTS + POLLING_REQUESTS
        if request.script.name == name
    )
    redis_client.set("lock:a", "2000000000", px=60_000)
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}

    send(redis_client, request)

    assert {key: redis_client.dump(key) for key in redis_client.keys("*")} == before


def keys_that_are_no_key_of_KEYS(source: str) -> list[str]:  # noqa: N802 - Redis' name
    """Return what stands where a command in a script has its key, but for ``KEYS[n]``."""
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, ([^,)]+))?", source)
    return [key for command, key in calls if command != "TIME" and not KEY.fullmatch(key)]


KEY = re.compile(r"KEYS\[(\d|at|at \+ 1)\]")


@pytest.mark.parametrize("script", POLLING, ids=lambda script: script.name)
def test_a_polling_script_names_each_key_as_one_of_its_keys(script: scripts.Script) -> None:
    assert keys_that_are_no_key_of_KEYS(script.source) == []


def test_another_script_does_not() -> None:
    assert "box" in keys_that_are_no_key_of_KEYS(scripts.RELEASE.source)
