"""``manage.py locks list``."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from unicodedata import east_asian_width

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import lock, rwlock, semaphore
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import LockInfo, State
from django_setnx_lock.core.holder import process_id
from tests.admin.pages import hold_since
from tests.core.test_inspection_many import hold
from tests.management.commands.conftest import Ended, Locks
from tests.servers import FakeServer, RealServer

HERE = f"{socket.gethostname()}:{os.getpid()}"

Rounds = Callable[..., list[str]]


@pytest.fixture
def held() -> Iterator[None]:
    with (
        lock("b", timeout=20, user="ann", label="import", note="nightly"),
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
    lock("dead", timeout=300).take(0)
    lock("living", timeout=300).take(0)
    for key in ("dead", "living"):
        hold_since(key, 60)
    client = get_client()
    text = client.get("{lock:dead}:meta").decode()
    client.set("{lock:dead}:meta", text.replace(process_id(), "killed"), keepttl=True)

    listed, shown = locks("list").out, locks("show", "dead").out
    found = locks("list", "--json", "--state", "holder-gone")

    assert re.split(r" {2,}", listed.splitlines()[1])[:2] == ["dead", "holder gone !"]
    assert re.split(r" {2,}", listed.splitlines()[2])[:2] == ["living", "held"]
    assert re.search(r"^State: +holder gone: Its process no longer says", shown, re.MULTILINE)
    assert keys(found) == ["dead"]


def test_a_reader_that_is_gone_is_named_beside_those_that_live(locks: Locks) -> None:
    rw = rwlock("report", timeout=300)
    first, _second = rw.read().take(0), rw.read().take(0)
    client = get_client()
    fence, record = client.hget("{lock:report}:holders", first.token).decode().split(" ", 1)
    gone = f"{int(fence) - 60_000_000} {record.replace(process_id(), 'killed')}"
    client.hset("{lock:report}:holders", first.token, gone)

    listed, shown = locks("list").out, locks("show", "report").out

    assert re.split(r" {2,}", listed.splitlines()[1])[1] == "read; 1: holder gone !"
    assert sorted(re.findall(r"^Holder \d of 2: (.*)$", shown, re.MULTILINE)) == [
        "held",
        "holder gone",
    ]
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
    client = get_client()
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
        (["--reverse"], ["c", "b", "a"]),
        (["--sort", "lease"], ["b", "c", "a"]),
        (["--sort", "held", "--reverse"], ["b", "a", "c"]),
        (["--using", "default"], ["a", "b", "c"]),
    ],
)
def test_filters_and_orders(locks: Locks, options: list[str], found: list[str]) -> None:
    ended = locks("list", "--json", *options)

    assert keys(ended) == found


def test_everything_finds_what_other_programs_hold(locks: Locks) -> None:
    get_client().set("lock:theirs", "x")

    listed, scanned = locks("list", "--json"), locks("list", "--json", "--everything")

    assert keys(listed) == []
    assert [(one["key"], one["state"]) for one in scanned.document["locks"]] == [
        ("theirs", "never-expires")
    ]


def test_everything_finds_what_is_no_lock_at_all(locks: Locks) -> None:
    client = get_client()
    client.hset("lock:hash", "a", "b")
    client.zadd("lock:zset", {"a": 1})
    client.rpush("lock:{shop}:list", "a")

    with rwlock("{shop}:shared").read(), lock("held"):
        listed = locks("list", "--everything", "--json")
        no_locks = locks("list", "--everything", "--state", "not-a-lock")

    assert keys(listed) == ["hash", "held", "zset", "{shop}:list", "{shop}:shared"]
    assert "3 locks" in no_locks.out


def test_whoever_never_ends_is_sorted_behind_all_who_do(locks: Locks) -> None:
    get_client().set("lock:theirs", "x")

    with lock("z"):
        ended = locks("list", "--json", "--everything", "--sort", "lease")

    assert keys(ended) == ["z", "theirs"]


def test_what_could_play_tricks_on_a_terminal_is_escaped(locks: Locks) -> None:
    with lock("k", note="\x1b[2Jnight\nly"):
        ended = locks("list")

    assert r"\x1b[2Jnight\nly" in ended.out


def test_a_server_that_does_not_know_the_scripts_is_sent_each_once(
    locks: Locks, real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = real_cache.client()
    for number in range(30):
        client.set(f"lock:{number}", "x")
    client.script_flush()
    client.config_resetstat()

    ended = locks("list", "--everything")

    calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
    assert "30 locks" in ended.out
    # That of the list, and that of each lock.
    assert calls["cmdstat_eval"] == 2


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


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "SUBCOMMAND"),
        (["lst"], "invalid choice"),
        (["list", "--state", "hold"], "invalid choice"),
        (["list", "--watch", "0"], "--watch"),
        (["list", "--watch=nan"], "--watch"),
        (["list", "extra"], "extra"),
        (["show"], "KEY"),
        (["show", ""], "empty"),
    ],
)
def test_wrong_usage_is_status_64(locks: Locks, arguments: list[str], problem: str) -> None:
    ended = locks(*arguments)

    assert (ended.status, ended.out) == (64, "")
    assert problem in ended.err


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


def test_called_from_code_it_raises_with_the_status() -> None:
    with pytest.raises(CommandError, match="nobody holds 'k'") as caught:
        call_command("locks", "show", "k")

    assert caught.value.returncode == 1


@pytest.fixture
def rounds(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Rounds:
    """Give a function that watches the list for so many rounds, and returns what each wrote."""

    def rounds(count: int, *options: str, is_terminal: bool = False) -> list[str]:
        written: list[str] = []

        def pause(seconds: float) -> None:
            if seconds != 2:
                # Not that of the command.
                return
            written.append(capsys.readouterr().out)
            if len(written) == count:
                # As Ctrl-C does.
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", pause)
            patched.setattr(sys.stdout, "isatty", lambda: is_terminal)
            assert locks("list", "--watch", "2", *options).status == 0
        return written

    return rounds


def test_watching_draws_again_what_is_held_by_then(rounds: Rounds) -> None:
    with lock("a"):
        first = rounds(1)

    second = rounds(2)

    assert "1 lock" in first[0]
    assert "\x1b" not in first[0]
    assert ["No locks." in text for text in second] == [True, True]


def test_on_a_terminal_each_drawing_takes_the_place_of_the_one_before(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((30, 6)))

    with lock("a", note="long " * 9), lock("b"), lock("c"):
        (drawn,) = rounds(1, is_terminal=True)

    clear, *lines = drawn.splitlines()
    assert clear.startswith("\x1b[H\x1b[J")
    assert len(lines) == 4
    assert lines[-1] == "…"
    assert max(map(len, lines)) <= 30


def test_wide_letters_wrap_no_drawing(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((60, 9)))

    with lock("注文", note="夜間の取り込み" * 9), lock("b"):
        (drawn,) = rounds(1, is_terminal=True)

    _, *lines = drawn.splitlines()
    wide = [sum(1 + (east_asian_width(letter) in "WF") for letter in line) for line in lines]
    assert "夜間" in drawn
    assert 50 < max(wide) <= 60


def test_watching_with_json_writes_a_document_a_line(rounds: Rounds) -> None:
    with lock("a"):
        written = rounds(2, "--json", is_terminal=True)

    assert [json.loads(text)["locks"][0]["key"] for text in written] == ["a", "a"]
    assert [text.count("\n") for text in written] == [1, 1]


def test_watching_goes_on_while_redis_is_away(rounds: Rounds, fake_server: FakeServer) -> None:
    fake_server.connected = False

    written = rounds(2)

    assert ["Redis cannot be reached" in text for text in written] == [True, True]


def test_several_caches_are_listed_together_and_named(locks: Locks) -> None:
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}
    with override_settings(CACHES=caches), lock("a"):
        ended = locks("list", "--using", "default,other")

    rows = [line.split()[:2] for line in ended.out.splitlines()[:3]]
    assert rows == [["CACHE", "KEY"], ["default", "a"], ["other", "a"]]


# More than two batches.
MANY = 1100


class Watched(io.StringIO):
    """A stdout that calls ``seen`` at each write, and keeps what that returns."""

    def __init__(self, seen: Callable[[], int]) -> None:
        super().__init__()
        self._seen = seen
        self.noted: list[int] = []

    def write(self, text: str) -> int:
        self.noted.append(self._seen())
        return super().write(text)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_long_list_is_written_while_it_is_read(
    real_cache: RealServer, form: tuple[str, ...]
) -> None:
    client = real_cache.client()
    hold(client, 4 * MANY)
    client.config_resetstat()
    # Of each lock that is read.
    out = Watched(lambda: client.info("commandstats").get("cmdstat_type", {}).get("calls", 0))

    call_command("locks", "list", *form, stdout=out)

    read = [count for count in out.noted if count]
    # The first batch is written, and three are asked for ahead.
    assert read[0] <= 4 * 500 + 1
    assert read[-1] > 4 * MANY


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_of_a_long_list_no_more_than_two_batches_are_in_memory(
    real_cache: RealServer, form: tuple[str, ...]
) -> None:
    def in_memory() -> int:
        # isinstance() would ask the weak proxies of others, whose objects may be gone.
        return sum(type(one) is LockInfo for one in gc.get_objects())

    hold(real_cache.client(), 3 * MANY)
    before = in_memory()
    out = Watched(in_memory)

    call_command("locks", "list", *form, stdout=out)

    assert 0 < max(out.noted) - before <= 1000


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_list_has_each_lock_once_in_the_order_of_the_keys(
    locks: Locks, real_cache: RealServer, reverse: bool
) -> None:
    held = hold(real_cache.client(), MANY)

    ended = locks("list", "--json", *["--reverse"] * reverse)

    assert keys(ended) == sorted(held, reverse=reverse)


def test_a_long_list_of_two_caches_has_their_locks_side_by_side(
    locks: Locks, real_cache: RealServer
) -> None:
    held = hold(real_cache.client(), 510)
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}

    with override_settings(CACHES=caches):
        ended = locks("list", "--json", "--using", "default,other")

    found = [(one["key"], one["using"]) for one in ended.document["locks"]]
    assert found == [(key, using) for key in held for using in ("default", "other")]


def test_what_comes_late_in_a_long_list_is_cut_to_the_terminal(
    locks: Locks, real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    hold(real_cache.client(), 510, lambda number: f"k{number:05}" + "x" * 200 * (number > 505))

    lines = locks("list").out.splitlines()

    assert len(lines) == 513
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("columns", "shown"), [("", r"k00506\x1b[2J\n注  foreign"), ("80", "k0050…  foreign")]
)
def test_what_comes_late_in_a_long_list_plays_no_tricks_on_a_terminal(
    locks: Locks,
    real_cache: RealServer,
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
    shown: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    hold(real_cache.client(), 510, lambda number: f"k{number:05}" + "\x1b[2J\n注" * (number > 505))

    listed = locks("list").out

    assert len(listed.splitlines()) == 513
    assert listed.splitlines()[507].startswith(shown)
    assert "\x1b" not in listed


def test_a_time_without_end_in_the_index_breaks_no_list(locks: Locks) -> None:
    client = get_client()
    lock("a").take(0)
    client.delete("lock:a")
    client.zadd("{lock:}:index", {"lock:a": "-inf"})

    listed, found = locks("list"), locks("list", "--json")

    assert re.search(r"^a +lease over .* over ", listed.out, re.MULTILINE)
    assert found.document["locks"][0]["state"] == "lease-over"


def test_a_redis_that_goes_away_in_the_middle_leaves_a_whole_document(
    fake_server: FakeServer,
) -> None:
    hold(get_client(), 4 * MANY)

    def cut() -> int:
        # The first that is written is the beginning, before a lock is read.
        fake_server.connected = not out.noted
        return 0

    out = Watched(cut)
    with pytest.raises(CommandError, match="cannot be reached") as caught:
        call_command("locks", "list", "--json", stdout=out)

    document = json.loads(out.getvalue())
    assert caught.value.returncode == 69
    assert len(document["locks"]) in range(500, 2001, 500)
    assert "cannot be reached" in document["troubles"][0]
