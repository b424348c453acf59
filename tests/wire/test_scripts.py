from __future__ import annotations

import re
from typing import cast

import pytest
import redis

from django_setnx_lock.core.protocol import commands, scripts
from django_setnx_lock.core.protocol.commands import PROTOCOLS, READERS
from django_setnx_lock.core.protocol.keys import index_for, lock_keys
from tests.wire.helpers import send

ALL = [one for one in vars(scripts).values() if isinstance(one, scripts.Script)]
HOSTED = [one for one in ALL if one.name.startswith("hosted_")]
KEYS = lock_keys("lock:a")
INDEX = index_for("lock:")
TIMES = PROTOCOLS["timestamp-s"]
LOOKS = [
    commands.SETNX.check(KEYS, "t"),
    commands.SETNX.inspect_each([KEYS], INDEX),
    READERS.check(KEYS, "t"),
    TIMES.check(KEYS, "t"),
    cast(commands.Request, TIMES.locked(KEYS)),
    commands.HOSTED.check(KEYS, "t"),
    commands.HOSTED.inspect_each([KEYS], INDEX),
]


def test_the_server_knows_each_script_by_the_same_sha(redis_client: redis.Redis) -> None:
    loaded = {script.name: redis_client.script_load(script.source) for script in ALL}

    assert loaded == {script.name: script.sha for script in ALL}


@pytest.mark.parametrize("request_", LOOKS, ids=lambda request: request.script.name)
def test_a_script_that_only_looks_writes_nothing(
    request_: commands.Request, redis_client: redis.Redis
) -> None:
    redis_client.set("lock:a", "2000000000", px=60_000)
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}

    send(redis_client, request_)

    assert {key: redis_client.dump(key) for key in redis_client.keys("*")} == before


def keys_that_are_no_key_of_KEYS(source: str) -> list[str]:  # noqa: N802 - Redis' name
    """Return what stands where a command in a script has its key, but for ``KEYS[n]``."""
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, ([^,)]+))?", source)
    return [key for command, key in calls if command != "TIME" and not KEY.fullmatch(key)]


KEY = re.compile(r"KEYS\[(\d|at|at \+ 1)\]")


@pytest.mark.parametrize("script", HOSTED, ids=lambda script: script.name)
def test_a_script_for_hosted_servers_names_each_key_as_one_of_its_keys(
    script: scripts.Script,
) -> None:
    assert keys_that_are_no_key_of_KEYS(script.source) == []


def test_another_script_does_not() -> None:
    assert "box" in keys_that_are_no_key_of_KEYS(scripts.RELEASE.source)
