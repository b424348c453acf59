"""``manage.py locks list``."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from django_setnx_lock import lock, rwlock, semaphore
from django_setnx_lock.core import State
from tests.management.commands.conftest import Ended, Locks
from tests.management.holders import age_sharer, client_of, hold_many, hold_since, kill_holder
from tests.servers import FakeServer, RealServer
from tests.support.seams import any_lock

HERE = f"{socket.gethostname()}:{os.getpid()}"


@pytest.fixture
def held() -> Iterator[None]:
    with (
        any_lock("b", timeout=20, user="ann", label="import", note="nightly"),
        lock("a", timeout=50),
        rwlock("c", timeout=40).read(),
        rwlock("c", timeout=30).read(),
    ):
        yield


def keys(ended: Ended) -> list[str]:
    return [found["key"] for found in ended.document["locks"]]


@pytest.mark.usefixtures("held")
def test_each_lock_is_a_line_with_the_columns_of_the_admin(locks: Locks) -> None:
    ended = locks("list")

    head, first, second, third, _, count = ended.out.splitlines()
    assert re.split(r" {2,}", head) == [
        "KEY", "STATE", "HOLDER", "HELD FOR", "LEASE LEFT", "FENCE", "WAITING",
    ]  # fmt: skip
    assert re.split(r" {2,}", first)[:3] == ["a", "held", HERE]
    assert re.fullmatch(
        rf"b +held +ann@{HERE} \(import; nightly\) +(less than )?\d+ s +\d+ s +\d{{16}} +0", second
    )
    assert re.split(r" {2,}", third)[:3] == ["c", "read", f"{HERE}, {HERE}"]
    assert (count, ended.status, ended.err) == ("3 locks", 0, "")


def test_permits_say_how_many_of_them_are_in_use(locks: Locks) -> None:
    with semaphore("exports", 3), semaphore("exports", 3):
        listed, shown = locks("list").out, locks("show", "exports").out

    assert re.split(r" {2,}", listed.splitlines()[1])[1] == "in use, 2 of 3"
    assert re.search(r"^State: +in use, 2 of 3: ", shown, re.MULTILINE)


def test_a_lock_whose_holder_is_gone_is_marked_and_found(locks: Locks) -> None:
    for key in ("dead", "living"):
        lock(key, timeout=300).take(0)
    hold_since("living", 60)
    kill_holder("dead")

    listed = locks("list").out
    found = locks("list", "--json", "--state", "holder-gone")

    assert re.split(r" {2,}", listed.splitlines()[1])[:2] == ["dead", "holder gone !"]
    assert re.split(r" {2,}", listed.splitlines()[2])[:2] == ["living", "held"]
    assert keys(found) == ["dead"]


def test_the_worst_may_come_first(locks: Locks) -> None:
    client_of().set("lock:b", "theirs")
    for key in ("a", "c", "d"):
        lock(key, timeout=300).take(0)
    kill_holder("d")
    age_sharer("r", rwlock("r", timeout=300).read().take(0).token, 60, is_killed=True)

    ended = locks("list", "--json", "--sort", "worst", "--everything")

    assert sorted(keys(ended)[:2]) == ["d", "r"]
    assert keys(ended)[2:] == ["b", "a", "c"]


def test_a_reader_that_is_gone_is_named_beside_those_that_live(locks: Locks) -> None:
    rw = rwlock("report", timeout=300)
    first, _second = rw.read().take(0), rw.read().take(0)
    age_sharer("report", first.token, 60, is_killed=True)

    listed = locks("list").out

    assert re.split(r" {2,}", listed.splitlines()[1])[1] == "read; 1: holder gone !"
    assert keys(locks("list", "--json", "--state", "holder-gone")) == ["report"]


def test_that_there_is_none_is_said(locks: Locks) -> None:
    assert locks("list") == (0, "No locks.\n", "")


@pytest.mark.usefixtures("held")
def test_json_has_stable_names_and_all_who_share(locks: Locks) -> None:
    ended = locks("list", "--json")

    a, _, c = ended.document["locks"]
    assert ended.document["troubles"] == []
    of_all = {
        "holder", "fence", "held_for", "remaining", "fingerprint", "stop_requested", "waits_for",
    }  # fmt: skip
    assert a.keys() == of_all | {
        "using", "key", "name", "state", "states", "as_of", "granted_at", "renewed_ago",
        "kind", "unit", "waiting", "waiters", "shares",
    }  # fmt: skip
    assert (a["using"], a["name"], a["state"], a["shares"]) == ("default", "lock:a", "held", [])
    assert a["holder"].keys() == {
        "host", "pid", "thread", "label", "user", "note",
        "lease", "renewed", "max_hold", "process", "since",
    }  # fmt: skip
    assert 40 < a["remaining"] <= 50
    assert [share.keys() for share in c["shares"]] == [of_all | {"state"}] * 2
    assert len({c["fingerprint"], *(share["fingerprint"] for share in c["shares"])}) == 3


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_token_is_ever_written(locks: Locks, form: tuple[str, ...]) -> None:
    client = client_of()
    tokens = [client.get("lock:a"), client.get("lock:b"), *client.zrange("{lock:c}:shares", 0, -1)]

    shown = locks("list", *form).out

    assert len(tokens) == 4
    assert not [token for token in tokens if token.decode() in shown]


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--search", "b"], ["b"]),
        (["--state", "read"], ["c"]),
        (["--state", "read", "--state", "held"], ["a", "b", "c"]),
        (["--state", "never-expires"], []),
        (["--using", "default"], ["a", "b", "c"]),
    ],
)
def test_filters_and_orders(locks: Locks, options: list[str], found: list[str]) -> None:
    ended = locks("list", "--json", *options)

    assert keys(ended) == found


def test_everything_finds_what_other_programs_hold(locks: Locks) -> None:
    client_of().set("lock:theirs", "x")

    listed, scanned = locks("list", "--json"), locks("list", "--json", "--everything")

    assert keys(listed) == []
    assert [(one["key"], one["state"]) for one in scanned.document["locks"]] == [
        ("theirs", "never-expires")
    ]


def test_everything_finds_what_is_no_lock_at_all(locks: Locks) -> None:
    client = client_of()
    client.hset("lock:hash", "a", "b")
    client.zadd("lock:zset", {"a": 1})
    client.rpush("lock:{shop}:list", "a")

    with rwlock("{shop}:shared").read(), lock("held"):
        listed = locks("list", "--everything", "--json")
        no_locks = locks("list", "--everything", "--state", "not-a-lock")

    assert keys(listed) == ["hash", "held", "zset", "{shop}:list", "{shop}:shared"]
    assert "3 locks" in no_locks.out


@pytest.mark.parametrize("state", [state for state in State if state is not State.FREE])
def test_every_state_of_a_lock_that_is_listed_can_be_asked_for(locks: Locks, state: State) -> None:
    assert locks("list", "--state", state.value.replace(" ", "-")).status == 0


def test_an_unreachable_redis_is_status_69_with_what_to_do(
    locks: Locks, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    ended = locks("list")

    assert (ended.status, ended.out) == (69, "")
    assert re.match(r"locks: Redis cannot be reached\..*Check that", ended.err)


def test_json_tells_of_an_unreachable_redis_as_well(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    ended = locks("list", "--json")

    assert ended.status == 69
    assert "cannot be reached" in ended.document["troubles"][0]


def test_a_cache_that_cannot_hold_locks_is_status_78(locks: Locks) -> None:
    ended = locks("list", "--using", "none")

    assert ended.status == 78
    assert "no cache 'none'" in ended.err


def test_djangos_options_may_stand_behind_the_subcommand(locks: Locks) -> None:
    ended = locks("list", "--settings", "tests.settings", "--verbosity=2", "--no-color")

    assert ended.status == 0


@pytest.mark.parametrize("arguments", [("--skip-checks", "list"), ("list", "--skip-checks")])
def test_to_skip_the_checks_may_be_said_anywhere(locks: Locks, arguments: tuple[str, ...]) -> None:
    assert locks(*arguments).status == 0


def test_several_caches_are_listed_together_and_named(locks: Locks) -> None:
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}
    with override_settings(CACHES=caches), lock("a"):
        ended = locks("list", "--using", "default,other")

    rows = [line.split()[:2] for line in ended.out.splitlines()[:3]]
    assert rows == [["CACHE", "KEY"], ["default", "a"], ["other", "a"]]


# More than are asked about at a time.
MANY = 1100


@pytest.mark.usefixtures("real_cache")
def test_a_long_list_has_each_lock_once_in_the_order_of_the_keys(locks: Locks) -> None:
    held = hold_many(MANY)

    assert keys(locks("list", "--json")) == sorted(held)


def test_a_long_list_of_two_caches_has_their_locks_side_by_side(
    locks: Locks, real_cache: RealServer
) -> None:
    held = hold_many(510)
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}

    with override_settings(CACHES=caches):
        ended = locks("list", "--json", "--using", "default,other")

    found = [(one["key"], one["using"]) for one in ended.document["locks"]]
    assert found == [(key, using) for key in held for using in ("default", "other")]


@pytest.mark.usefixtures("real_cache")
def test_what_comes_late_in_a_long_list_plays_no_tricks_on_a_terminal(locks: Locks) -> None:
    hold_many(510, lambda number: f"k{number:05}" + "\x1b[2J\n注" * (number > 505))

    lines = locks("list").out.splitlines()

    assert len(lines) == 513
    assert lines[507].startswith(r"k00506\x1b[2J\n注  foreign")
