from __future__ import annotations

import re
from importlib import resources

import pytest
import redis

from django_setnx_lock.core import own_token, polling, protocol, scripts
from django_setnx_lock.core.dialects import Timestamp
from django_setnx_lock.core.keys import index_for, lock_keys
from django_setnx_lock.core.shared import READERS, downgrade
from tests.core.helpers import send

POLLING = [
    scripts.POLLING_ACQUIRE,
    scripts.POLLING_RELEASE,
    scripts.POLLING_LEAVE,
    scripts.POLLING_RENEW,
    scripts.POLLING_FORCE,
    scripts.POLLING_INSPECT,
]
ALL = [
    scripts.ACQUIRE,
    scripts.ACQUIRE_ALL,
    scripts.RELEASE,
    scripts.LEAVE,
    scripts.LOOK,
    scripts.RENEW,
    scripts.RENEW_ALONE,
    scripts.CHECK,
    scripts.SWAP,
    scripts.FORCE,
    scripts.INSPECT,
    scripts.TIMESTAMP_ACQUIRE,
    scripts.TIMESTAMP_RELEASE,
    scripts.TIMESTAMP_LEAVE,
    scripts.TIMESTAMP_RENEW,
    scripts.TIMESTAMP_CHECK,
    scripts.TIMESTAMP_LOCKED,
    scripts.TIMESTAMP_FORCE,
    scripts.SHARED_ACQUIRE,
    scripts.SHARED_RELEASE,
    scripts.SHARED_LEAVE,
    scripts.SHARED_LOOK,
    scripts.SHARED_RENEW,
    scripts.SHARED_CHECK,
    scripts.SHARED_FORCE,
    scripts.SHARED_DOWNGRADE,
    *POLLING,
]
SHARED = {
    "adding.lua",
    "constants.lua",
    "prelude.lua",
    "reading.lua",
    "shared.lua",
    "timestamp.lua",
}
KEYS = lock_keys("lock:a")
INDEX = index_for("lock:")
TIMES = Timestamp("s")
REQUESTS = [
    protocol.ahead(KEYS, INDEX, "t", 1000, "{}").take,
    protocol.release_kept(KEYS, INDEX, "t", 1000, 1),
    protocol.leave(KEYS, INDEX, "t"),
    protocol.look(KEYS, "t"),
    protocol.renew(KEYS, INDEX, "t", 1000, "replace"),
    protocol.check(KEYS, "t"),
    own_token.request(KEYS, "t", "chosen", 1),
    protocol.force(KEYS, INDEX, b"t", "joe", "stuck"),
    protocol.inspect(KEYS, INDEX),
]
TIMESTAMP_REQUESTS = [
    TIMES.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    TIMES.release(KEYS, INDEX, "t"),
    TIMES.leave(KEYS, INDEX, "t"),
    TIMES.renew(KEYS, INDEX, "t", 1000, "replace"),
    TIMES.check(KEYS, "t"),
    TIMES.locked(KEYS),
    TIMES.force(KEYS, INDEX, b"t", "joe", "stuck"),
]
SHARED_REQUESTS = [
    READERS.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    READERS.release(KEYS, INDEX, "t"),
    READERS.leave(KEYS, INDEX, "t"),
    READERS.look(KEYS, "t"),
    READERS.renew(KEYS, INDEX, "t", 1000, "replace"),
    READERS.check(KEYS, "t"),
    READERS.force(KEYS, INDEX, b"t", "joe", "stuck"),
    downgrade(KEYS, INDEX, "t"),
]

POLLS = polling.Polling()
POLLING_REQUESTS = [
    POLLS.acquire(KEYS, INDEX, "t", 1000, "{}", 0),
    POLLS.release(KEYS, INDEX, "t"),
    POLLS.leave(KEYS, INDEX, "t"),
    POLLS.renew(KEYS, INDEX, "t", 1000, "replace"),
    POLLS.force(KEYS, INDEX, b"t", "joe", "stuck"),
    polling.inspect(KEYS, INDEX),
]


def own_part(script: scripts.Script) -> str:
    folder = resources.files(scripts)
    return folder.joinpath(f"{script.name}.lua").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_the_server_knows_a_script_by_the_same_sha(
    script: scripts.Script, redis_client: redis.Redis
) -> None:
    assert redis_client.script_load(script.source) == script.sha


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_is_headed_by_its_keys_arguments_and_replies(script: scripts.Script) -> None:
    head = re.match(r"(--.*\n)+", own_part(script))

    assert head
    assert "-- KEYS " in head[0]
    assert "-- Reply " in head[0]
    assert "-- ARGV " in head[0] or "ARGV" not in own_part(script)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.script.name)
def test_a_request_fills_every_key_and_argument_its_script_reads(
    request_: protocol.Request,
) -> None:
    source = own_part(request_.script)
    keys = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", source)}
    args = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", source)}

    # The first three are the same for all of them, whatever a script needs of them.
    assert keys | {1, 2, 3} == set(range(1, len(request_.keys) + 1))
    assert args == set(range(1, len(request_.args) + 1))


@pytest.mark.parametrize(
    "request_",
    [*TIMESTAMP_REQUESTS, *POLLING_REQUESTS],
    ids=lambda request: request.script.name,
)
def test_a_request_of_another_kind_fills_every_key_and_argument_its_script_reads(
    request_: protocol.Request,
) -> None:
    source = own_part(request_.script)
    keys = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", source)}
    args = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", source)}

    # Meta is the same for all of them, whether a script needs it or not.
    assert keys | {2} == set(range(1, len(request_.keys) + 1))
    assert args == set(range(1, len(request_.args) + 1))


@pytest.mark.parametrize("request_", SHARED_REQUESTS, ids=lambda request: request.script.name)
def test_a_request_of_sharers_fills_every_key_and_argument_its_script_reads(
    request_: protocol.Request,
) -> None:
    source = own_part(request_.script)
    keys = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", source)}
    args = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", source)}

    # They have the same keys, for what they have in common.
    assert keys <= set(range(1, len(request_.keys) + 1))
    assert len(request_.keys) == (8 if INDEX in request_.keys else 7)
    assert args <= set(range(1, len(request_.args) + 1))


def test_every_lua_file_is_used() -> None:
    files = {file.name for file in resources.files(scripts).iterdir() if file.name.endswith(".lua")}

    assert files == {f"{script.name}.lua" for script in ALL} | SHARED


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_has_in_it_what_it_shares_with_others_at_most_once(script: scripts.Script) -> None:
    assert script.source.count("local CLAIM = ") == 1
    # One that has others in it has what is theirs.
    others = len(re.findall(r"^--- (acquire|leave)$", own_part(script), re.MULTILINE))
    assert script.source.count("local function hand_on()") <= max(others, 1)
    assert script.source.count("local function time_left(") <= 1
    assert script.source.count("local function settle(") <= 1
    assert script.source.count("local function read_meta(") <= max(others, 1)
    assert script.source.count("local function note(") <= 1
    assert not re.search("^--- ", script.source, re.MULTILINE)


@pytest.mark.parametrize(
    "name",
    ["check", "inspect", "polling_inspect", "timestamp_check", "timestamp_locked", "shared_check"],
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


KEY = re.compile(r"KEYS\[\d\]")


@pytest.mark.parametrize("script", [*POLLING, scripts.CHECK], ids=lambda script: script.name)
def test_a_polling_script_names_each_key_as_one_of_its_keys(script: scripts.Script) -> None:
    assert keys_that_are_no_key_of_KEYS(script.source) == []


def test_another_script_does_not() -> None:
    assert "box" in keys_that_are_no_key_of_KEYS(scripts.RELEASE.source)
