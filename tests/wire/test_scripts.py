from __future__ import annotations

import re
from collections import Counter
from importlib import resources
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
SHARED = {
    "asking.lua",
    "requesting.lua",
    "stopping.lua",
    "grouping.lua",
    "nesting.lua",
    "constants.lua",
    "has_let_go.lua",
    "following.lua",
    "keys.lua",
    "letting_go.lua",
    "waiting.lua",
    "shared_keys.lua",
    "clock.lua",
    "polling.lua",
    "prelude.lua",
    "reading.lua",
    "shared.lua",
    "timestamp.lua",
    "unqueued.lua",
}
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


def own_part(script: scripts.Script) -> str:
    folder = resources.files(scripts)
    return folder.joinpath(file_of(script)).read_text(encoding="utf-8")


def file_of(script: scripts.Script) -> str:
    """Return the name of its file: both kinds of lock without a queue have theirs in common."""
    kind, _, operation = script.name.partition("_")
    is_of_family = kind in ("timestamp", "polling") and operation != "inspect"
    return f"unqueued_{operation}.lua" if is_of_family else f"{script.name}.lua"


def test_the_server_knows_each_script_by_the_same_sha(redis_client: redis.Redis) -> None:
    loaded = {script.name: redis_client.script_load(script.source) for script in ALL}

    assert loaded == {script.name: script.sha for script in ALL}


def is_headed(script: scripts.Script) -> bool:
    """Return whether its head tells of its keys, or those of its kind, arguments and replies."""
    found = re.match(r"(--.*\n)+", own_part(script))
    head = found[0] if found else ""
    keys = r"^(-- KEYS |--- ((\w+_)?keys|unqueued)$)"
    takes_none = "ARGV" not in own_part(script)
    return (
        re.search(keys, head, re.MULTILINE) is not None
        and "-- Reply " in head
        and ("-- ARGV " in head or takes_none)
    )


def test_each_script_is_headed_by_its_keys_arguments_and_replies() -> None:
    assert [script.name for script in ALL if not is_headed(script)] == []


def arguments_read_by(script: scripts.Script) -> set[int]:
    return {int(number) for number in re.findall(r"ARGV\[(\d+)\]", own_part(script))}


def layout(request: commands.Request) -> list[str]:
    """Return the names of the keys of ``request``, in order."""
    known = {KEYS.name: "name", INDEX: "index"}
    return [known.get(key, key.removeprefix(f"{KEYS.stem}:").split(":")[0]) for key in request.keys]


QUEUE = ["name", "waiters", "alive", "gone", "meta"]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.script.name)
def test_every_script_of_a_lock_with_a_queue_gets_the_same_keys_in_the_same_order(
    request_: commands.Request,
) -> None:
    own = {"inspect": ["shares", "holders", "index"]}.get(
        request_.script.name, ["index"] * (INDEX in request_.keys)
    )

    assert layout(request_) == [*QUEUE, *own]
    assert arguments_read_by(request_.script) == set(range(1, len(request_.args) + 1))


@pytest.mark.parametrize("request_", SHARED_REQUESTS, ids=lambda request: request.script.name)
def test_every_script_of_sharers_gets_the_same_keys_in_the_same_order(
    request_: commands.Request,
) -> None:
    index = ["index"] * (INDEX in request_.keys)

    assert layout(request_) == [*QUEUE, "shares", "holders", *index]
    assert arguments_read_by(request_.script) <= set(range(1, len(request_.args) + 1))


@pytest.mark.parametrize(
    "request_",
    [*TIMESTAMP_REQUESTS, *POLLING_REQUESTS],
    ids=lambda request: request.script.name,
)
def test_every_script_without_a_queue_gets_the_same_keys_in_the_same_order(
    request_: commands.Request,
) -> None:
    index = ["index"] * (INDEX in request_.keys)
    looks = request_.script.name in ("timestamp_locked", "polling_inspect")

    assert layout(request_) == ["name", "meta", *([] if looks else ["gone"]), *index]
    # The unit of a time is told to all that may need it; the rest is for either kind.
    given = len(request_.args) + (2 if request_ in POLLING_REQUESTS else 0)
    assert arguments_read_by(request_.script) <= set(range(1, given + 1))


def test_every_lua_file_is_used() -> None:
    files = {file.name for file in resources.files(scripts).iterdir() if file.name.endswith(".lua")}

    assert files == {file_of(script) for script in ALL} | SHARED


def repeats(script: scripts.Script) -> list[str]:
    """Return what it has more often than need be."""
    # One that has others in it has what is theirs.
    others = len(re.findall(r"^--- (acquire|cancel)$", own_part(script), re.MULTILINE))
    defined = Counter(re.findall(r"^local (?:function )?(\w+)", script.source, re.MULTILINE))
    of_each = ("hand_on", "read_meta")
    once = ("CLAIM", "time_left", "settle", "note")
    return [
        *(name for name in of_each if defined[name] > max(others, 1)),
        *(name for name in once if defined[name] > 1),
    ]


def test_no_script_has_twice_what_it_shares_with_others() -> None:
    assert {script.name: repeats(script) for script in ALL if repeats(script)} == {}


def test_every_place_for_a_part_is_filled() -> None:
    assert all("local CLAIM = " in script.source for script in ALL)
    assert not [script.name for script in ALL if re.search("^--- ", script.source, re.MULTILINE)]


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
