"""``manage.py locks check``, as monitoring runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from django.conf import settings
from django.test import override_settings

from django_setnx_lock import lock, rwlock, semaphore
from tests.management.commands.conftest import Ended, Locks
from tests.management.conftest import CHECKOUT
from tests.management.holders import INDEX, age_sharer, client_of, hold_since, kill_holder
from tests.processes import eventually
from tests.servers import RealServer
from tests.support.waiting import waiting_for

pytestmark = pytest.mark.usefixtures("real_cache")


def first(ended: Ended) -> str:
    """The line that monitoring shows, without its figures."""
    return ended.out.splitlines()[0].partition(" | ")[0]


def figures(ended: Ended) -> dict[str, str]:
    """The performance data."""
    _, _, text = ended.out.splitlines()[0].partition(" | ")
    return dict(re.findall(r"(\w+)=(\S+)", text))


def test_where_nothing_is_wrong_one_line_says_what_was_looked_at(locks: Locks) -> None:
    client_of().set("lock:theirs", "theirs", px=60_000)
    # Met by one who asks, it is listed; for how long it is held is not known.
    assert not lock("theirs").acquire(blocking=False)
    with lock("a", timeout=30):
        ended = locks("check", "--max-held", "60", "--max-wait", "60", "--state", "holder-gone")

    assert first(ended) == "LOCKS OK - 2 locks, 0 waiting"
    assert (ended.status, ended.err, ended.out.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(
    ("seconds", "status", "said"),
    [(100, 0, "LOCKS OK"), (400, 1, "LOCKS WARNING - 1 held more than 300 s (old);"),
     (700, 2, "LOCKS CRITICAL - 1 held more than 600 s (old);")],
)  # fmt: skip
def test_a_lock_that_is_held_for_long(locks: Locks, seconds: int, status: int, said: str) -> None:
    with lock("old", timeout=900), lock("young", timeout=900):
        hold_since("old", seconds)
        ended = locks("check", "--warn-held", "300", "--max-held", "600")

    assert ended.status == status
    assert first(ended).startswith(said)
    details = ended.out.splitlines()[1:]
    assert [one.partition(":")[0] for one in details] == [f"{said.split()[1]} old"] * bool(status)


def test_of_several_holders_each_is_looked_at(locks: Locks) -> None:
    rw = rwlock("report", timeout=900)
    old, dead, _other = (rw.read().take(0) for _ in range(3))
    age_sharer("report", old.token, 700)
    age_sharer("report", dead.token, 60, is_killed=True)

    assert locks("check", "--max-held", "600").status == 2
    assert locks("check", "--state", "holder-gone").status == 2


def test_a_kept_lock_is_held_by_nobody(locks: Locks) -> None:
    with lock("tick", timeout=900, min_hold=60):
        hold_since("tick", 700)
        assert locks("check", "--max-held", "600").status == 2
    assert locks("check", "--max-held", "600").status == 0


def test_a_lock_that_is_waited_for_for_long(locks: Locks) -> None:
    lock("busy", timeout=60).take(0)
    with waiting_for("busy", "busy"):
        patient = locks("check", "--max-wait", "60")
        ended = eventually(
            lambda: next((one for one in [locks("check", "--max-wait", "0.2")] if one.status), None)
        )

    assert (patient.status, figures(patient)["waiting"]) == (0, "2;;;0")
    assert ended is not None
    assert ended.status == 2
    assert first(ended).startswith("LOCKS CRITICAL - 1 waited for more than 0.2 s (busy); 1 lock")
    assert "2 wait, the first for " in ended.out.splitlines()[1]
    assert 0.2 <= float(figures(ended)["longest_wait"].partition("s;")[0]) < 20


@pytest.mark.parametrize(
    ("option", "status", "figure"), [("--state", 2, "1;;0;0"), ("--warn-state", 1, "1;0;;0")]
)
def test_a_lock_in_a_bad_state(locks: Locks, option: str, status: int, figure: str) -> None:
    with lock("living", timeout=300), lock("dead", timeout=300):
        kill_holder("dead")
        ended = locks("check", option, "holder-gone")

    assert ended.status == status
    assert " - 1 holder gone (dead); 2 locks" in first(ended)
    assert figures(ended)["holder_gone"] == figure


@pytest.mark.parametrize("state", ["never-expires", "not-a-lock", "foreign"])
@pytest.mark.parametrize("option", ["--state", "--warn-state"])
def test_what_other_programs_left_is_looked_for_where_it_is(
    locks: Locks, option: str, state: str
) -> None:
    client = client_of()
    client.set("lock:endless", "theirs")
    client.set("lock:theirs", "theirs", px=60_000)
    client.hset("lock:hash", "a", "b")

    ended = locks("check", option, state)

    assert figures(ended)[state.replace("-", "_")].startswith("1;")
    assert ended.status == (2 if option == "--state" else 1)


def test_all_locks_are_looked_at_however_many_there_are(locks: Locks) -> None:
    client = client_of()
    with lock("dead", timeout=3000):
        kill_holder("dead")
        now_ms = client.time()[0] * 1000
        with client.pipeline(transaction=False) as pipe:
            # Of most the leases end sooner, of some later.
            for number in range(10_500):
                left = 600_000 if number < 9_700 else 6_000_000
                pipe.set(f"lock:{number}", "somebody", px=left)
                pipe.zadd(INDEX, {f"lock:{number}": now_ms + left})
            pipe.execute()
        ended = locks("check", "--state", "holder-gone")

    assert ended.status == 2
    assert first(ended) == "LOCKS CRITICAL - 1 holder gone (dead); 10,501 locks, 0 waiting"


def test_the_worst_comes_first_and_decides(locks: Locks) -> None:
    with lock("dead", timeout=300), lock("old", timeout=900):
        kill_holder("dead")
        hold_since("old", 700)
        ended = locks("check", "--warn-held", "600", "--state", "holder-gone")

    assert ended.status == 2
    assert " - 1 holder gone, 1 held more than 600 s (dead, old); " in first(ended)
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == ["CRITICAL", "WARNING"]


def test_search_leaves_out_the_other_keys(locks: Locks) -> None:
    with lock("report:1*", timeout=900), lock("order:1", timeout=900):
        hold_since("order:1", 700)
        found = [locks("check", "--max-held", "600", "--search", one) for one in ("t:1*", "order:")]

    assert [(one.status, figures(one)["locks"]) for one in found] == [(0, "1;;;0"), (2, "1;;;0")]


def test_details_have_an_end(locks: Locks) -> None:
    for number in range(25):
        lock(f"k{number:02}", timeout=100).take(0)

    ended = locks("check", "--warn-state", "held")

    assert "25 held (k00, k01, k02 and 22 more); 25 locks" in first(ended)
    assert len(ended.out.splitlines()) == 22
    assert ended.out.splitlines()[-1] == "and 5 more: see manage.py locks list"


def test_the_figures_have_the_form_of_plugins(locks: Locks) -> None:
    with semaphore("exports", 3, timeout=60), lock("a", timeout=60):
        hold_since("a", 10)
        ended = locks(
            *("check", "--warn-held", "300", "--max-held", "600", "--max-wait", "2.5"),
            *("--state", "holder-gone", "--warn-state", "not-renewed"),
        )

    assert re.fullmatch(
        r"locks=2;;;0 waiting=0;;;0 oldest_hold=1\d\.\d{3}s;300;600;0 "
        r"longest_wait=0\.000s;;2\.5;0 holder_gone=0;;0;0 not_renewed=0;0;;0",
        ended.out.splitlines()[0].partition(" | ")[2],
    )


def test_a_key_adds_no_figures_and_no_lines(locks: Locks) -> None:
    with lock("a | locks=9\nCRITICAL b\x1b[2J", timeout=60):
        ended = locks("check", "--warn-state", "held")

    assert (ended.out.count("|"), len(ended.out.splitlines())) == (1, 2)
    assert "\x1b" not in ended.out
    assert figures(ended)["locks"] == "1;;;0"


@contextmanager
def hanging(server: RealServer) -> Iterator[None]:
    cache = {**settings.CACHES["default"], "OPTIONS": {"SOCKET_TIMEOUT": 0.5}}
    with override_settings(CACHES={"default": cache}):
        server.pause()
        try:
            yield
        finally:
            server.resume()


@contextmanager
def spoilt_index(server: RealServer) -> Iterator[None]:
    server.client().set(INDEX, "text")
    yield


@contextmanager
def faulty_cache(server: RealServer) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("django_redis.cache.RedisCache.client", property(fail))
        yield


@pytest.mark.parametrize(
    ("trouble", "options", "status", "said"),
    [
        (hanging, [], 2, "LOCKS CRITICAL - Redis did not answer in time"),
        (spoilt_index, [], 2, "LOCKS CRITICAL - "),
        (faulty_cache, [], 3, "LOCKS UNKNOWN - RuntimeError: a fault"),
        (nullcontext, ["--using", "none"], 3, "LOCKS UNKNOWN - "),
    ],
)
def test_what_cannot_be_looked_at_is_critical_or_unknown(
    locks: Locks,
    real_cache: RealServer,
    trouble: Callable[[RealServer], AbstractContextManager[None]],
    options: list[str],
    status: int,
    said: str,
) -> None:
    with trouble(real_cache):
        ended = locks("check", *options)

    assert (ended.status, ended.err) == (status, "")
    assert first(ended).startswith(said)


def test_a_server_that_is_not_there_is_critical_beside_what_is_wrong_elsewhere(
    locks: Locks,
) -> None:
    away = {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}
    with override_settings(CACHES={**settings.CACHES, "away": away}), lock("old", timeout=900):
        hold_since("old", 700)
        alone = locks("check", "--max-held", "600", "--using", "away")
        both = locks("check", "--max-held", "600", "--using", "default,away")

    assert (alone.status, alone.err, "|" in alone.out) == (2, "", False)
    assert first(alone).startswith("LOCKS CRITICAL - Redis cannot be reached.")
    assert "the cache 'away': Redis cannot be reached." in first(both)
    assert "1 held more than 600 s (old)" in first(both)


def test_a_process_ends_with_the_status() -> None:
    with lock("old", timeout=900):
        hold_since("old", 700)
        done = subprocess.run(
            [sys.executable, "manage.py", "locks", "check", "--max-held=600"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    assert (done.returncode, done.stdout.split(" -")[0], done.stderr) == (2, "LOCKS CRITICAL", "")
