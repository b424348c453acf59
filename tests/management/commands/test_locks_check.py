"""``manage.py locks check``, as monitoring runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import LockBusy, inspector, lock, rwlock, semaphore
from django_setnx_lock.connection import get_client
from django_setnx_lock.core.holder import process_id
from django_setnx_lock.core.protocol.keys import index_for, lock_keys
from tests.admin.pages import hold_since
from tests.management.commands.conftest import Ended, Locks
from tests.processes import eventually
from tests.servers import RealServer

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("real_cache")


def first(ended: Ended) -> str:
    """The line that monitoring shows, without its figures."""
    return ended.out.splitlines()[0].partition(" | ")[0]


def figures(ended: Ended) -> dict[str, str]:
    """The performance data."""
    _, _, text = ended.out.splitlines()[0].partition(" | ")
    return dict(re.findall(r"(\w+)=(\S+)", text))


def seconds(figure: str) -> float:
    return float(figure.partition("s;")[0])


def unless_ok(ended: Ended) -> Ended | None:
    return ended if ended.status else None


def kill_holder(key: str) -> None:
    """Have the lock ``key`` look as it does when its process was killed a minute ago."""
    hold_since(key, 60)
    client, name = get_client(), lock_keys(f"lock:{key}").meta
    record = client.get(name).decode().replace(process_id(), "killed")
    client.set(name, record, keepttl=True)


@contextmanager
def waiters(key: str, count: int = 1) -> Iterator[None]:
    """Hold ``key``, for which so many others wait."""

    def wait() -> None:
        with lock(key, blocking_timeout=20):
            pass

    with ThreadPoolExecutor(count) as pool:
        with lock(key, timeout=60):
            waiting = [pool.submit(wait) for _ in range(count)]
            eventually(lambda: inspector().get(f"lock:{key}").waiting == count)
            yield
        for one in waiting:
            one.result(20)


def test_where_nothing_is_wrong_one_line_says_what_was_looked_at(locks: Locks) -> None:
    with lock("a", timeout=30):
        ended = locks("check", "--max-held", "600", "--max-wait", "60", "--state", "holder-gone")

    assert first(ended) == "LOCKS OK - 1 lock, 0 waiting"
    assert (ended.status, ended.err, ended.out.count("\n")) == (0, "", 1)


def test_a_lock_held_for_more_than_max_held_is_critical(locks: Locks) -> None:
    with lock("old", timeout=900), lock("young", timeout=900):
        hold_since("old", 700)
        ended = locks("check", "--warn-held", "300", "--max-held", "600")

    assert ended.status == 2
    assert first(ended) == "LOCKS CRITICAL - 1 held more than 600 s (old); 2 locks, 0 waiting"
    detail = ended.out.splitlines()[1]
    assert detail.startswith("CRITICAL old: held more than 600 s; held for 11 min 40 s; by ")


def test_a_lock_held_for_more_than_warn_held_is_a_warning(locks: Locks) -> None:
    with lock("old", timeout=900):
        hold_since("old", 400)
        ended = locks("check", "--warn-held", "300", "--max-held", "600")

    assert ended.status == 1
    assert first(ended) == "LOCKS WARNING - 1 held more than 300 s (old); 1 lock, 0 waiting"


def test_of_many_readers_the_one_that_holds_longest_counts(locks: Locks) -> None:
    rw = rwlock("report", timeout=900)
    reader, _other = rw.read().take(0), rw.read().take(0)
    client, holders = get_client(), lock_keys("lock:report").holders
    fence, record = client.hget(holders, reader.token).decode().split(" ", 1)
    client.hset(holders, reader.token, f"{int(fence) - 700_000_000} {record}")

    assert locks("check", "--max-held", "600").status == 2


def test_a_kept_lock_is_held_by_nobody(locks: Locks) -> None:
    with lock("tick", timeout=60, min_hold=60):
        pass
    hold_since("tick", 700)

    assert locks("check", "--max-held", "600").status == 0


def test_a_caller_that_waited_for_more_than_max_wait_is_critical(locks: Locks) -> None:
    with waiters("busy", 2):
        ended = eventually(lambda: unless_ok(locks("check", "--max-wait", "0.2")))

    assert ended is not None
    assert ended.status == 2
    assert first(ended).startswith("LOCKS CRITICAL - 1 waited for more than 0.2 s (busy); 1 lock")
    assert "2 waiting, the first for " in ended.out.splitlines()[1]
    assert 0.2 < seconds(figures(ended)["longest_wait"]) < 20


def test_a_waiter_that_was_killed_makes_nobody_wait_longer(locks: Locks) -> None:
    keys = lock_keys("lock:busy")
    client = get_client()
    with waiters("busy"):
        client.zadd(keys.waiters, {"killed": 1})
        client.hset(keys.alive, "killed", "2 1 1")
        ended = locks("check", "--max-wait", "1000")

    assert (ended.status, figures(ended)["waiting"]) == (0, "1;;;0")


def test_a_short_wait_is_ok(locks: Locks) -> None:
    with waiters("busy"):
        assert locks("check", "--max-wait", "60", "--warn-wait", "30").status == 0


def test_a_state_is_critical_and_names_the_lock(locks: Locks) -> None:
    with lock("living", timeout=300), lock("dead", timeout=300):
        kill_holder("dead")
        ended = locks("check", "--state", "holder-gone", "--state", "never-expires")

    assert ended.status == 2
    assert first(ended).startswith("LOCKS CRITICAL - 1 holder gone (dead); ")
    assert figures(ended)["holder_gone"] == "1;;0;0"


def test_a_state_may_be_a_warning(locks: Locks) -> None:
    with lock("dead", timeout=300):
        kill_holder("dead")
        ended = locks("check", "--warn-state", "holder-gone", "--state", "never-expires")

    assert ended.status == 1
    assert first(ended).startswith("LOCKS WARNING - 1 holder gone (dead); ")


def test_one_dead_reader_among_others_is_found(locks: Locks) -> None:
    rw = rwlock("report", timeout=300)
    first_reader, _other = rw.read().take(0), rw.read().take(0)
    client, holders = get_client(), lock_keys("lock:report").holders
    fence, record = client.hget(holders, first_reader.token).decode().split(" ", 1)
    gone = f"{int(fence) - 60_000_000} {record.replace(process_id(), 'killed')}"
    client.hset(holders, first_reader.token, gone)

    assert locks("check", "--state", "holder-gone").status == 2


def test_a_lock_without_a_lease_is_found_in_the_keyspace(locks: Locks) -> None:
    get_client().set("lock:endless", "theirs")

    assert locks("check", "--state", "never-expires").status == 0
    assert locks("check", "--state", "never-expires", "--everything").status == 2


def test_the_worst_comes_first_and_decides(locks: Locks) -> None:
    with lock("dead", timeout=300), lock("old", timeout=900):
        kill_holder("dead")
        hold_since("old", 700)
        ended = locks("check", "--warn-held", "600", "--state", "holder-gone")

    assert ended.status == 2
    assert first(ended).startswith(
        "LOCKS CRITICAL - 1 holder gone, 1 held more than 600 s (dead, old); "
    )
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == ["CRITICAL", "WARNING"]


def test_search_leaves_out_the_other_keys(locks: Locks) -> None:
    with lock("report:1", timeout=900), lock("order:1", timeout=900):
        hold_since("order:1", 700)
        reports, orders = (
            locks("check", "--max-held", "600", "--search", text) for text in ("report:", "order:")
        )

    assert (reports.status, figures(reports)["listed"]) == (0, "1;;;0")
    assert orders.status == 2


def test_search_takes_stars_for_what_they_are(locks: Locks) -> None:
    with lock("a1", timeout=900), lock("a*[x]?", timeout=900):
        ended = locks("check", "--search", "*[x]?")

    assert figures(ended)["listed"] == "1;;;0"


def test_without_an_index_the_keyspace_is_looked_through(locks: Locks) -> None:
    with override_settings(SETNX_LOCK={"INDEX": False}), lock("old", timeout=900):
        hold_since("old", 700)
        ended = locks("check", "--max-held", "600")

    assert ended.status == 2


def test_it_looks_at_both_ends_of_a_list_that_is_longer_than_the_limit(locks: Locks) -> None:
    for number in range(6):
        lock(f"k{number}", timeout=100 + number).take(0)
    for number in (0, 3, 5):
        hold_since(f"k{number}", 700)

    ended = locks("check", "--max-held", "600", "--limit", "4")

    assert first(ended).endswith("2 held more than 600 s (k0, k5); 4 locks, 0 waiting; "
                                 "looked at 4 of 6")  # fmt: skip
    assert figures(ended)["listed"] == "6;;;0"


def test_details_have_an_end(locks: Locks) -> None:
    for number in range(25):
        lock(f"k{number:02}", timeout=100).take(0)

    lines = locks("check", "--warn-state", "held").out.splitlines()

    assert first(Ended(1, lines[0], "")).endswith(
        "25 held (k00, k01, k02 and 22 more); 25 locks, 0 waiting"
    )
    assert len(lines) == 22
    assert lines[-1] == "and 5 more: see manage.py locks list"


def test_what_it_asks_has_a_bound(locks: Locks, real_cache: RealServer) -> None:
    client = real_cache.client()
    calls = []
    locks("check")
    for count in (2_000, 20_000):
        client.zadd("{lock:}:index", {f"lock:more:{number}": 1e15 for number in range(count)})
        client.config_resetstat()
        assert locks("check", "--limit", "1000").status == 0
        calls.append(sum(one["calls"] for one in client.info("commandstats").values()))

    # The first that runs is found by halves: some steps more, in each of three requests.
    assert calls[1] == pytest.approx(calls[0], abs=40)


def test_the_figures_have_the_form_of_plugins(locks: Locks) -> None:
    with semaphore("exports", 3, timeout=60), lock("a", timeout=60):
        hold_since("a", 10)
        ended = locks(
            *("check", "--warn-held", "300", "--max-held", "600", "--max-wait", "2.5"),
            *("--state", "never-expires", "--warn-state", "not-renewed"),
        )

    assert re.fullmatch(
        r"locks=2;;;0 listed=2;;;0 waiting=0;;;0 oldest_hold=10\.\d{3}s;300;600;0 "
        r"longest_wait=0\.000s;;2\.5;0 never_expires=0;;0;0 not_renewed=0;0;;0",
        ended.out.splitlines()[0].partition(" | ")[2],
    )


def test_json_tells_the_same(locks: Locks) -> None:
    with lock("old", timeout=900, label="import"):
        hold_since("old", 700)
        ended = locks("check", "--max-held", "600", "--json")

    found = ended.document
    assert ended.status == 2
    assert (found["status"], found["level"], found["locks"]) == (2, "critical", 1)
    (problem,) = found["problems"]
    assert problem["key"] == "old"
    assert problem["problems"] == ["held more than 600 s"]
    assert problem["holder"]["label"] == "import"
    assert found["states"] == {"held": 1}


def test_a_key_adds_no_figures_and_no_lines(locks: Locks) -> None:
    with lock("a | locks=9\nCRITICAL b\x1b[2J", timeout=60):
        ended = locks("check", "--warn-state", "held")

    assert ended.out.count("|") == 1
    assert len(ended.out.splitlines()) == 2
    assert "\x1b" not in ended.out
    assert figures(ended)["locks"] == "1;;;0"


def test_something_else_in_place_of_the_waiters_breaks_nothing(locks: Locks) -> None:
    with lock("a", timeout=60), lock("b", timeout=60):
        get_client().set(lock_keys("lock:a").alive, "text")
        get_client().hset(lock_keys("lock:b").alive, "t", "9999999999999999")

        assert locks("check", "--max-wait", "60").status == 0


def test_an_index_that_is_none_is_critical(locks: Locks) -> None:
    get_client().set(index_for("lock:"), "text")

    assert locks("check").status == 2


@pytest.fixture
def away() -> Iterator[str]:
    """Give the alias of a cache whose server is not there."""
    cache = {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}
    with override_settings(CACHES={**settings.CACHES, "away": cache}):
        yield "away"


def test_a_server_that_is_not_there_is_critical(locks: Locks, away: str) -> None:
    ended = locks("check", "--max-held", "600", "--using", away)

    assert (ended.status, ended.err) == (2, "")
    assert first(ended).startswith("LOCKS CRITICAL - Redis cannot be reached.")
    assert "|" not in ended.out


def test_a_server_that_hangs_is_critical_within_seconds(
    locks: Locks, real_cache: RealServer
) -> None:
    real_cache.pause()
    try:
        ended = locks("check")
    finally:
        real_cache.resume()

    assert ended.status == 2
    assert "did not answer in time" in first(ended)


def test_what_is_wrong_elsewhere_is_told_beside_a_cache_that_is_away(
    locks: Locks, away: str
) -> None:
    with lock("old", timeout=900):
        hold_since("old", 700)
        ended = locks("check", "--max-held", "600", "--using", f"default,{away}")

    assert ended.status == 2
    assert "the cache 'away': Redis cannot be reached." in first(ended)
    assert "1 held more than 600 s (old)" in first(ended)


def test_a_cache_that_cannot_hold_locks_is_unknown(locks: Locks) -> None:
    ended = locks("check", "--using", "none")

    assert (ended.status, ended.err) == (3, "")
    assert first(ended).startswith("LOCKS UNKNOWN - ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-held", "soon"),
        ("--max-held", "nan"),
        ("--max-wait=-1",),
        ("--limit", "0"),
        ("--state", "red"),
        ("--max-heldd", "5"),
        ("order:42",),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_unknown_and_on_stdout(locks: Locks, arguments: tuple[str, ...]) -> None:
    ended = locks("check", *arguments)

    assert (ended.status, ended.err) == (3, "")
    assert first(ended).startswith("LOCKS UNKNOWN - ")


def test_a_fault_of_ours_is_no_warning(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("django_setnx_lock.management.locks.checking.inspector", fail)

    ended = locks("check")

    assert ended.status == 3
    assert first(ended) == "LOCKS UNKNOWN - RuntimeError: a fault"


def test_called_from_code_it_raises_with_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    with lock("old", timeout=900):
        hold_since("old", 700)
        with pytest.raises(CommandError, match="LOCKS CRITICAL - 1 held more") as caught:
            call_command("locks", "check", "--max-held", "600")

    assert caught.value.returncode == 2
    assert capsys.readouterr().out.startswith("LOCKS CRITICAL")


def test_a_foreign_lock_is_held_for_no_known_time(locks: Locks) -> None:
    get_client().set("lock:theirs", "theirs", px=60_000)
    with pytest.raises(LockBusy):
        lock("theirs").take(0)

    assert locks("check", "--max-held", "0").status == 0
    assert locks("check", "--state", "foreign").status == 2


@pytest.mark.parametrize(
    ("argument", "status", "said"),
    [
        pytest.param("--max-held=900", 0, "LOCKS OK", marks=pytest.mark.matrix),
        pytest.param("--warn-held=600", 1, "LOCKS WARNING", marks=pytest.mark.matrix),
        ("--max-held=600", 2, "LOCKS CRITICAL"),
        ("-x", 3, "LOCKS UNKNOWN"),
    ],
)
def test_a_process_ends_with_the_status(argument: str, status: int, said: str) -> None:
    with lock("old", timeout=900):
        hold_since("old", 700)
        done = subprocess.run(
            [sys.executable, "manage.py", "locks", "check", argument],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    assert (done.returncode, done.stdout.split(" -")[0], done.stderr) == (status, said, "")
