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
from tests.servers import FakeServer
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
    client = client_of()
    tokens = [client.get("lock:a"), client.get("lock:b"), *client.zrange("{lock:c}:shares", 0, -1)]
    written = ended.out + locks("list", "--json").out
    assert len(tokens) == 4
    assert not [token for token in tokens if token.decode() in written]


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

    rw = rwlock("report", timeout=300)
    gone, _reads = rw.read().take(0), rw.read().take(0)
    age_sharer("report", gone.token, 60, is_killed=True)

    listed = locks("list").out
    found = locks("list", "--json", "--state", "holder-gone")

    states = [re.split(r" {2,}", line)[:2] for line in listed.splitlines()[1:4]]
    assert states[:2] == [["dead", "holder gone !"], ["living", "held"]]
    assert states[2] == ["report", "read; 1: holder gone !"]
    assert keys(found) == ["dead", "report"]


def test_the_worst_may_come_first(locks: Locks) -> None:
    client_of().set("lock:b", "theirs")
    for key in ("a", "c", "d"):
        lock(key, timeout=300).take(0)
    kill_holder("d")
    age_sharer("r", rwlock("r", timeout=300).read().take(0).token, 60, is_killed=True)

    ended = locks("list", "--json", "--sort", "worst", "--everything")

    assert sorted(keys(ended)[:2]) == ["d", "r"]
    assert keys(ended)[2:] == ["b", "a", "c"]


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


def test_everything_finds_what_other_programs_hold_and_what_is_no_lock(locks: Locks) -> None:
    client = client_of()
    client.set("lock:theirs", "x")
    client.hset("lock:hash", "a", "b")
    client.rpush("lock:{shop}:list", "a")

    with rwlock("{shop}:shared").read(), lock("held"):
        listed, scanned = locks("list", "--json"), locks("list", "--json", "--everything")
        no_locks = locks("list", "--everything", "--state", "not-a-lock")

    assert keys(listed) == ["held", "{shop}:shared"]
    assert keys(scanned) == ["hash", "held", "theirs", "{shop}:list", "{shop}:shared"]
    assert scanned.document["locks"][2]["state"] == "never-expires"
    assert "2 locks" in no_locks.out


@pytest.mark.parametrize("state", [state for state in State if state is not State.FREE])
def test_every_state_of_a_lock_that_is_listed_can_be_asked_for(locks: Locks, state: State) -> None:
    assert locks("list", "--state", state.value.replace(" ", "-")).status == 0


@pytest.mark.parametrize(
    "options",
    [
        ("list", "--settings", "tests.settings", "--verbosity=2", "--no-color"),
        ("list", "--skip-checks"),
        ("--skip-checks", "list"),
    ],
)
def test_djangos_options_may_stand_behind_the_subcommand(
    locks: Locks, options: tuple[str, ...]
) -> None:
    assert locks(*options) == (0, "No locks.\n", "")


def test_what_cannot_be_listed_is_status_69_or_78_with_what_to_do(
    locks: Locks, fake_server: FakeServer
) -> None:
    no_cache = locks("list", "--using", "none")
    fake_server.connected = False
    ended, in_json = locks("list"), locks("list", "--json")

    assert (no_cache.status, "no cache 'none'" in no_cache.err) == (78, True)
    assert (ended.status, ended.out) == (69, "")
    assert re.match(r"locks: Redis cannot be reached\..*Check that", ended.err)
    assert in_json.status == 69
    assert "cannot be reached" in in_json.document["troubles"][0]


# More than are asked about at a time.
MANY = 1100


@pytest.mark.usefixtures("real_cache")
def test_a_long_list_of_two_caches_has_each_lock_of_both_once_by_its_key(locks: Locks) -> None:
    held = hold_many(MANY, lambda number: f"k{number:05}" + "\x1b[2J\n注" * (number > 1000))
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}

    with override_settings(CACHES=caches):
        ended = locks("list", "--json", "--using", "default,other")
        lines = locks("list", "--using", "default,other").out.splitlines()

    found = [(one["key"], one["using"]) for one in ended.document["locks"]]
    assert found == [(key, using) for key in held for using in ("default", "other")]
    assert lines[0].split()[:2] == ["CACHE", "KEY"]
    # What comes late plays no tricks on a terminal either.
    assert len(lines) == 2 * MANY + 3
    assert r"default  k01001\x1b[2J\n注  foreign" in lines[2003]
