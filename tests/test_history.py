"""The last notable ends of holds: which are noted, and what an operator reads of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, lock
from tests.management.holders import INDEX, hold_since
from tests.past import KEY, client, noted
from tests.processes import eventually
from tests.support import seams

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from django_setnx_lock.testing import LockTester

LONG = 70


def entries(count: int) -> list[dict[str, Any]]:
    """Return what the history has once it has so many entries, the newest first."""
    noted(count)
    out = StringIO()
    call_command("locks", "history", "--json", stdout=out)
    found: list[dict[str, Any]] = json.loads(out.getvalue())["entries"]
    return found


def hold_for_long(locks: LockTester, key: str, **options: Any) -> None:
    with seams.any_lock(key, **options):
        locks.advance(LONG)


def test_a_hold_that_was_long_is_noted_and_a_short_one_is_not(locks: LockTester) -> None:
    with lock("short"):
        pass
    hold_for_long(locks, "long", user="ann", label="import")

    (entry,) = entries(1)

    assert (entry["key"], entry["end"]) == ("long", "released")
    assert entry["held_for"] == pytest.approx(LONG, abs=5)
    assert (entry["holder"]["user"], entry["holder"]["label"]) == ("ann", "import")
    assert entry["fence"] > 0


def test_a_hold_that_was_lost_or_taken_away_is_noted(locks: LockTester) -> None:
    for by, reason in (("", ""), ("joe", "it hangs")):
        with pytest.raises(LockLost), lock("a") as held:
            locks.lost(held, by=by, reason=reason)

    forced, lost = entries(2)

    assert (lost["end"], lost["by"], lost["reason"]) == ("lost", "", "")
    assert (forced["end"], forced["by"], forced["reason"]) == ("forced", "joe", "it hangs")


@pytest.mark.parametrize("end", ["gave-up", "released"])
def test_who_has_waited_for_long_is_noted(locks: LockTester, end: str) -> None:
    wait = 10 if end == "gave-up" else 60
    with ThreadPoolExecutor(1) as pool:
        with locks.held_elsewhere("a", user="ann"):
            waiting = pool.submit(lambda: lock("a", blocking_timeout=wait).take().release())
            locks.assert_waiting("a", 1)
            locks.advance(11)
            if end == "released":
                locks.assert_waiting("a", 1)
            else:
                with pytest.raises(LockBusy):
                    waiting.result(20)
        if end == "released":
            waiting.result(20)

    (entry,) = entries(1)

    assert (entry["key"], entry["end"], entry["held_for"] is None) == ("a", end, end == "gave-up")
    assert entry["waited"] >= 5
    assert end == "released" or entry["holder"]["user"] == "ann"


@pytest.fixture
def run_out(locks: LockTester, listed_at_once: None) -> Iterator[Callable[..., LockHandle]]:
    """Have the lease of a lock run out, of which its process tells nothing."""
    held: list[LockHandle] = []

    def run_out(key: str, ago: float = 5, **options: Any) -> LockHandle:
        held.append(seams.any_lock(key, **{"timeout": 20, "renew": True, **options}).take(0))
        hold_since(key, 60)
        client().delete(held[-1].name)
        client().zadd(INDEX, {held[-1].name: round(1000 * (time.time() - ago))})
        return held[-1]

    yield run_out
    # It may be somebody else's.
    client().delete("lock:a")


def test_a_lease_that_ran_out_is_noted_by_who_reads_the_history(
    locks: LockTester, run_out: Callable[..., LockHandle]
) -> None:
    held = run_out("a", user="ann", label="import")

    (first,) = entries(0)
    (again,) = entries(1)

    assert (first["key"], first["end"], first["fence"]) == ("a", "ran-out", held.fence - 60_000_000)
    assert first["held_for"] == pytest.approx(55, abs=3)
    assert (first["holder"]["user"], first["holder"]["label"]) == ("ann", "import")
    assert again == first


@pytest.mark.parametrize("case", ["not renewed", "held by the next", "released"])
def test_what_did_not_run_out_is_not_noted(
    locks: LockTester, run_out: Callable[..., LockHandle], case: str
) -> None:
    if case == "released":
        # A short hold that somebody met leaves its name in the index.
        lock("a", timeout=20).take(0).release()
        client().zadd(INDEX, {"lock:a": 1})
    else:
        run_out("a", renew=case != "not renewed")
    if case == "held by the next":
        client().set("lock:a", "somebody", px=50_000)

    assert entries(0) == []


def test_what_the_holder_notes_itself_takes_the_place_of_what_others_noted(
    locks: LockTester, run_out: Callable[..., LockHandle]
) -> None:
    held = run_out("a", user="ann")
    noted_by_others = entries(0)
    lost = {"at": time.time(), "key": "a", "end": "lost", "fence": noted_by_others[0]["fence"]}
    client().lpush(KEY, json.dumps(lost))

    assert [one["end"] for one in noted_by_others] == ["ran-out"]
    assert [one["end"] for one in entries(2)] == ["lost"]
    assert held.lost is not None


@override_settings(SETNX_LOCK={"HISTORY": 2})
def test_the_last_so_many_are_kept(locks: LockTester) -> None:
    for key in "abc":
        hold_for_long(locks, key)

    eventually(lambda: [one["key"] for one in entries(2)] == ["c", "b"])


def test_without_entries_in_the_setting_nothing_is_noted(locks: LockTester) -> None:
    with override_settings(SETNX_LOCK={"HISTORY": 0}):
        hold_for_long(locks, "a")
        without = entries(0)
    hold_for_long(locks, "b")

    assert (without, [one["key"] for one in entries(1)]) == ([], ["b"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"7",
        b"[]",
        b"[" * 99_999,
        b'{"at":1}',
        b'{"at":"x","key":"a","end":"lost"}',
        b'{"at":1e400,"key":"a","end":"lost"}',
        b'{"at":NaN,"key":"a","end":"lost"}',
        b'{"at":1,"key":7,"end":"lost"}',
        b'{"at":1,"key":"a","end":[]}',
        b'{"at":1,"key":"a","end":"lost","held_for":"x"}',
        b'{"held_for":NaN,"at":1,"key":"a","end":"lost"}',
        b'{"at":1,"key":"a","end":"lost","waited":1e400}',
        b'{"at":1,"key":"a","end":"lost","fence":[]}',
    ],
    ids=lambda raw: raw[:40],
)
def test_what_others_wrote_there_is_passed_over(locks: LockTester, raw: bytes) -> None:
    client().lpush(KEY, raw)
    hold_for_long(locks, "a")

    assert [one["key"] for one in entries(2)] == ["a"]


def test_a_history_that_cannot_be_written_fails_no_release_and_is_told_once(
    locks: LockTester, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum(one.name.endswith(".history") for one in caplog.records)

    client().set(KEY, "no list")
    for _ in range(2):
        hold_for_long(locks, "a")
    eventually(told)
    client().delete(KEY)
    hold_for_long(locks, "b")

    eventually(lambda: entries(1)[0]["key"] == "b")
    assert told() == 1
