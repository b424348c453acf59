"""How holds of locks ended: which are noted, by whom, and what is read of them."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import (
    End,
    HistoryEntry,
    Inspector,
    MultiLock,
    Outcome,
    RedisLock,
    Redlock,
)
from django_setnx_lock.core.history import STEP
from django_setnx_lock.core.locks.batch import release_each, take_each
from django_setnx_lock.core.locks.options import HistoryOptions
from django_setnx_lock.core.protocol import replies
from django_setnx_lock.core.protocol.keys import history_beside, lock_keys
from tests.core.helpers import INDEX, PREFIX, called, command, listed
from tests.faults.controls import take_out
from tests.hostile import RECORDS
from tests.processes import eventually
from tests.servers import FakeServer

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

KEY = history_beside(INDEX)
ALL = HistoryOptions(everything=True)
KINDS: list[dict[str, Any]] = [
    {},
    {"shared": True},
    {"limit": 2},
    {"polling": True},
    {"protocol": "timestamp"},
    {"min_hold": 0.2},
]
pytestmark = pytest.mark.usefixtures("nobody_looks")


def entries(inspector: Inspector) -> list[HistoryEntry]:
    return list(inspector.history().entries)


def the_entry(inspector: Inspector) -> HistoryEntry:
    [entry] = entries(inspector)
    return entry


def lapse(inspector: Inspector, lock: RedisLock) -> None:
    """Take ``lock`` and have its lease run out."""
    lock.take(0)
    eventually(lambda: not inspector.get(lock.name).is_held)


def test_a_short_hold_of_a_free_lock_is_not_noted(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a"):
        pass

    assert not redis_client.exists(KEY)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_with_everything_each_hold_is_noted(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    lock = listed(redis_client, "a", history=ALL, label="view pay", user="ann", **options)
    with lock as held:
        seen = inspector.get("lock:a")

    entry = the_entry(inspector)
    assert (entry.key, entry.name, entry.end) == ("a", "lock:a", End.RELEASED)
    assert entry.holder is not None
    assert (entry.holder.label, entry.holder.user) == ("view pay", "ann")
    assert (entry.fence, entry.fingerprint) == (held.fence, (seen.shares or (seen,))[0].fingerprint)
    assert entry.granted_at == pytest.approx(held.fence / 1e6)
    assert entry.held_for == pytest.approx(0, abs=5)
    assert (entry.waited, entry.by, entry.reason) == (0.0, "", "")
    assert entry.at == pytest.approx(seen.as_of, abs=5)


def wait_for(client: redis.Redis, **options: Any) -> LockHandle:
    """Have a caller wait for the lock that another one holds, and return what it was granted."""
    held = listed(client, "w", **options).take(0)
    queue = lock_keys("lock:w").waiters
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(listed(client, "w", thread_local=False, **options).take, 20)
        eventually(lambda: client.zcard(queue) == 1)
        held.release()
        return waiting.result(20)


def test_a_hold_that_was_waited_for_is_noted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    wait_for(redis_client, label="second").release()

    entry = the_entry(inspector)
    assert entry.end is End.RELEASED
    assert entry.waited is not None
    assert entry.waited > 0
    assert entry.holder is not None
    assert entry.holder.label == "second"


def test_a_release_that_is_sent_twice_is_noted_once(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    grant = listed(redis_client, "a", history=ALL).take(0).grant
    request = grant.releasing()

    for one in (request, request.repeat, request):
        called(grant.target, one)

    the_entry(inspector)
    assert inspector.has_history


def test_a_long_hold_is_noted(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a", history=HistoryOptions(held=1e6)):
        pass
    with listed(redis_client, "b", history=HistoryOptions(held=0)):
        pass

    assert the_entry(inspector).key == "b"


@pytest.mark.parametrize("options", KINDS[:5], ids=str)
def test_without_a_history_nothing_is_noted(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    quiet = Inspector(redis_client, PREFIX, history_length=0)
    for _ in range(2):
        lapse(quiet, listed(redis_client, "a", timeout=0.1, history=None, **options))
    listed(redis_client, "b", history=None, **options).take(0)
    quiet.force_release("lock:b", quiet.get("lock:b").fingerprint)
    wait_for(redis_client, history=None).release()

    assert not redis_client.exists(KEY)
    assert not quiet.has_history


def test_without_an_index_there_is_no_history(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "lock:a", history=ALL):
        pass

    assert [key for key in redis_client.keys("*") if b"history" in key] == []
    unlisted = Inspector(redis_client, PREFIX, use_index=False)
    assert (unlisted.history().entries, unlisted.has_history) == ((), False)


@pytest.mark.parametrize("options", KINDS[:5], ids=str)
def test_the_next_holder_notes_a_lease_that_ran_out(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    lapse(inspector, listed(redis_client, "a", timeout=0.2, label="crashed", **options))
    seen = inspector.get("lock:a").fingerprint
    listed(redis_client, "a", **options).take(0)

    entry = the_entry(inspector)
    assert entry.end is End.LEASE_OVER
    assert entry.holder is not None
    assert entry.holder.label == "crashed"
    assert entry.held_for == pytest.approx(0.2, abs=0.05)
    # What stands at the name of several is not a token of theirs.
    assert entry.fingerprint == seen or options
    assert entry.waited is None


def test_of_readers_whose_leases_ran_out_each_is_noted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for label in "xy":
        listed(redis_client, "a", timeout=0.2, shared=True, label=label).take(0)
    eventually(lambda: not inspector.get("lock:a").is_held)
    listed(redis_client, "a").take(0)

    found = [entry.holder.label for entry in entries(inspector) if entry.holder]
    assert sorted(found) == ["x", "y"]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_holder_that_finds_its_key_removed_notes_that(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    held = listed(redis_client, "a", label="robbed", **options).take(0)
    redis_client.delete("lock:a")
    with pytest.raises(LockLost):
        held.release()

    if not options.keys() & {"shared", "limit"}:
        entry = the_entry(inspector)
        assert entry.end is End.LOST
        assert entry.holder is not None
        assert entry.holder.label == "robbed"


def test_a_renewal_that_finds_it_lost_notes_that_and_nobody_else(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a").take(0)
    redis_client.delete("lock:a")
    with pytest.raises(LockLost):
        held.reacquire()
    with pytest.raises(LockLost):
        held.release()
    listed(redis_client, "a").take(0)

    assert the_entry(inspector).end is End.LOST


def test_the_next_holder_notes_a_key_that_was_removed(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a").take(0)
    redis_client.delete("lock:a")
    listed(redis_client, "a").take(0)
    with pytest.raises(LockLost):
        held.release()

    assert the_entry(inspector).end is End.LOST


@pytest.mark.parametrize("options", KINDS[:5], ids=str)
def test_a_forced_release_is_noted_with_who_and_why(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    held = listed(redis_client, "a", label="stuck", **options).take(0)
    seen = inspector.get("lock:a")
    fingerprint = (seen.shares or (seen,))[0].fingerprint
    for _ in range(2):
        inspector.force_release("lock:a", fingerprint, by="ann", reason="it\nhangs")
    with pytest.raises(LockLost):
        held.release()

    entry = the_entry(inspector)
    assert (entry.end, entry.by, entry.reason) == (End.FORCED, "ann", "it\\nhangs")
    assert (entry.fence, entry.fingerprint) == (held.fence, fingerprint)
    assert entry.holder is not None
    assert entry.holder.label == "stuck"


def test_a_forced_release_of_another_program_is_noted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "theirs", px=60_000)
    fingerprint = inspector.get("lock:a").fingerprint
    inspector.force_release("lock:a", fingerprint, by="ann")

    entry = the_entry(inspector)
    assert (entry.end, entry.by, entry.holder) == (End.FORCED, "ann", None)
    assert (entry.fence, entry.held_for, entry.fingerprint) == (None, None, fingerprint)


def test_a_lease_that_is_dismissed_is_noted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    lock = listed(redis_client, "a", timeout=0.2, lease_over_kept=60, label="crashed")
    lapse(inspector, lock)
    fingerprint = inspector.get("lock:a").fingerprint
    assert inspector.dismiss("lock:a", fingerprint, by="ann") is Outcome.DISMISSED
    listed(redis_client, "a").take(0)

    entry = the_entry(inspector)
    assert (entry.end, entry.by, entry.fingerprint) == (End.DISMISSED, "ann", fingerprint)
    assert entry.held_for == pytest.approx(0.2, abs=0.05)


def test_each_of_several_locks_is_noted(redis_client: redis.Redis, inspector: Inspector) -> None:
    taken = take_each([listed(redis_client, key, history=ALL) for key in "ab"])
    release_each([one.held for one in taken if one.held])
    with MultiLock(redis_client, ["lock:c", "lock:d"], index=INDEX, history=ALL):
        pass

    assert sorted(entry.name for entry in entries(inspector)) == [f"lock:{key}" for key in "abcd"]


def test_each_master_of_a_redlock_has_a_history_of_its_own() -> None:
    clients = [FakeServer().client() for _ in range(3)]
    options: dict[str, Any] = {"index": INDEX, "history": ALL, "master_timeout": 9}
    with Redlock(clients, "lock:a", label="view pay", **options):
        pass

    for client in clients:
        entry = the_entry(Inspector(client, PREFIX))
        assert (entry.end, entry.holder and entry.holder.label) == (End.RELEASED, "view pay")


@pytest.mark.usefixtures("fake_connections")
def test_a_hold_of_a_task_is_noted(redis_client: redis.Redis, inspector: Inspector) -> None:
    async def work() -> None:
        async with listed(redis_client, "a", history=ALL):
            pass

    asyncio.run(work())

    assert the_entry(inspector).end is End.RELEASED


def test_several_locks_taken_together_note_the_lease_that_ran_out(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    lapse(inspector, listed(redis_client, "a", timeout=0.2))
    MultiLock(redis_client, ["lock:a", "lock:b"], index=INDEX).take(0)

    assert the_entry(inspector).end is End.LEASE_OVER


def test_it_keeps_about_as_many_as_were_asked_for(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    for _ in range(130):
        with listed(redis_client, "a", history=replace(ALL, length=10)):
            pass

    assert 10 <= redis_client.xlen(KEY) <= 110


@pytest.mark.parametrize("options", KINDS[:5], ids=str)
def test_what_is_no_stream_stands_in_the_way_of_nothing(
    redis_client: redis.Redis, inspector: Inspector, options: dict[str, Any]
) -> None:
    redis_client.set(KEY, "theirs")
    with listed(redis_client, "a", history=ALL, **options):
        pass
    lapse(inspector, listed(redis_client, "a", timeout=0.1, **options))
    held = listed(redis_client, "a", **options).take(0)
    seen = inspector.get("lock:a").fingerprint

    assert inspector.force_release("lock:a", seen) is Outcome.RELEASED
    with pytest.raises(LockLost):
        held.release()
    assert redis_client.get(KEY) == b"theirs"
    with pytest.raises(LockUnavailable):
        inspector.history()


# Reading


def add(client: redis.Redis, number: str = "*", **fields: Any) -> str:
    known = f"{1700000000000000} 1 t {json.dumps({'host': 'web1', 'pid': 7})}"
    told = {"name": "lock:a", "end": "released", "known": known, "more": "1500", **fields}
    words = [word for pair in told.items() for word in pair]
    return replies.text(command(client, "XADD", KEY, number, *words)) or ""


def test_the_newest_come_first_page_by_page(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    numbers = [add(redis_client, f"{1700000000000 + n}-{n % 2}") for n in range(7)]
    found, before = [], ""
    while True:
        page = inspector.history(limit=3, before=before)
        found.append([entry.id for entry in page.entries])
        if not page.onward:
            break
        before = page.onward

    assert found == [numbers[:3:-1], numbers[3:0:-1], numbers[:1]]


def test_several_in_one_millisecond_are_all_found(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    numbers = [add(redis_client, f"1700000000000-{n}") for n in range(1, 4)]
    found, before = [], ""
    for _ in numbers:
        page = inspector.history(limit=1, before=before)
        found += [entry.id for entry in page.entries]
        before = page.onward

    assert found == numbers[::-1]


def test_a_full_last_page_leads_nowhere(redis_client: redis.Redis, inspector: Inspector) -> None:
    for _ in range(2):
        add(redis_client)

    assert inspector.history(limit=2).onward == ""


def test_only_those_of_one_lock_or_one_end_are_given(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    add(redis_client)
    add(redis_client, end="forced", more='{"by":"ann","reason":""}')
    add(redis_client, name="lock:b")

    assert [one.name for one in inspector.history("lock:b").entries] == ["lock:b"]
    assert [one.by for one in inspector.history(ends=[End.FORCED]).entries] == ["ann"]
    assert len(inspector.history("lock:a").entries) == 2


def test_a_search_that_takes_too_long_goes_on_from_where_it_was(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    first = add(redis_client, name="lock:rare")
    with redis_client.pipeline() as pipeline:
        for _ in range(2 * STEP):
            pipeline.xadd(KEY, {"name": "lock:a", "end": "released"})
        pipeline.execute()
    found, before, pages = [], "", 0
    while pages == 0 or before:
        page = inspector.history("lock:rare", before=before, within=0)
        found += [entry.id for entry in page.entries]
        before, pages = page.onward, pages + 1

    assert found == [first]
    assert pages == 3


@pytest.mark.parametrize("before", ["x", "1", "1-", "-1", "1-1-1", "1-" + "9" * 21, "+", "٣-٣"])
def test_a_before_that_is_no_id_is_refused(inspector: Inspector, before: str) -> None:
    with pytest.raises(ValueError, match="before is the id"):
        inspector.history(before=before)


@pytest.mark.parametrize("before", ["0-0", "0-1", "1-0", f"{2**64 - 1}-{2**64 - 1}"])
def test_any_id_can_be_gone_on_from(
    redis_client: redis.Redis, inspector: Inspector, before: str
) -> None:
    add(redis_client, "5-0")

    assert len(inspector.history(before=before).entries) == before.startswith("1844")


HOSTILE: list[dict[str, Any]] = [
    {"end": "vanished"},
    {"end": b"\xff"},
    {"name": ""},
    {"name": b"\xff\xfe"},
    {"name": "{lock:a}:meta"},
    {"more": "x" * 40_000},
]
READABLE: list[dict[str, Any]] = [
    {"known": known}
    for known in [b"", b"1", b"1 1", b"x 1 t {}", b"1 x t {}", b"9" * 400 + b" 1 t {}"]
]
READABLE += [
    *({"known": b"1 " + b"9" * 400 + b" t"}, {"known": "²2 1 t {}"}, {"known": "\xb2 1 t {}"}),
    *({"known": b"0 1 t {}"}, {"known": b"9007199254740993 1 t {}"}),
    *({"more": more} for more in ["", "-1", "1e9", "9" * 20, b"\xff", "[" * 9999, '{"by":7}']),
    *(
        {"end": "forced", "more": more}
        for more in ["null", "[]", '{"by":{},"reason":1}', "1" * 5000]
    ),
    *({"end": "lease over", "more": more} for more in ["", "x", "9" * 15, '{"over":1}']),
    *({"end": "dismissed", "more": f'{{"over":{over}}}'} for over in ["-1", "1e999", "9" * 400]),
]


@pytest.mark.parametrize("fields", HOSTILE, ids=lambda fields: str(fields)[:40])
def test_what_cannot_be_an_entry_is_passed_over(
    redis_client: redis.Redis, inspector: Inspector, fields: dict[str, Any]
) -> None:
    add(redis_client)
    add(redis_client, **fields)
    redis_client.xadd(KEY, {"other": "fields"})
    add(redis_client)

    assert len(inspector.history().entries) == 2


@pytest.mark.parametrize("fields", READABLE, ids=lambda fields: str(fields)[:40])
def test_what_others_wrote_is_shown_as_far_as_it_can_be_read(
    redis_client: redis.Redis, inspector: Inspector, fields: dict[str, Any]
) -> None:
    add(redis_client, **fields)

    entry = the_entry(inspector)
    assert entry.key == "a"
    assert entry.held_for is None or entry.held_for >= 0
    assert entry.granted_at is None or 0 < entry.granted_at < 1e10


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_of_others_breaks_nothing(
    redis_client: redis.Redis, inspector: Inspector, record: bytes
) -> None:
    held = listed(redis_client, "a", history=ALL).take(0)
    token = held.token.encode()
    redis_client.set(
        lock_keys("lock:a").meta,
        b"%d %d %s %s" % (held.fence, len(token), token, record),
        px=60_000,
    )
    held.release()

    entry = the_entry(inspector)
    assert entry.fence == held.fence
    assert entry.holder is None or entry.holder.note.isprintable() or "\\" in entry.holder.note
    found: Any = redis_client.xrange(KEY)
    assert len(str(found)) < 50_000


def test_no_entry_has_the_token(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a", history=ALL) as held:
        token = held.token

    assert token not in repr(inspector.history())


def test_an_id_that_is_no_time_is_passed_over(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    add(redis_client)
    add(redis_client, f"{10**14}-0")

    the_entry(inspector)


@pytest.mark.parametrize(
    "options",
    [{"length": 0}, {"length": True}, {"length": 10**7}, {"held": -1}, {"held": None}],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"length|held"):
        HistoryOptions(**options)


# What it costs


def counted(client: redis.Redis, **options: Any) -> tuple[dict[str, int], int]:
    """Return how often each command was called in ten cycles, and how many bytes were sent."""
    lock = listed(client, "a", **options)
    with lock:
        pass
    client.config_resetstat()
    for _ in range(10):
        with lock:
            pass
    sent = client.info("stats")["total_net_input_bytes"]
    stats = client.info("commandstats")
    # What is done now and then only, and by the test itself.
    others = ("zremrangebyscore", "info", "resetstat")
    return {name: stats[name]["calls"] for name in stats if not name.endswith(others)}, sent


def test_by_default_a_cycle_of_a_free_lock_sends_and_does_nothing_more(
    real_server: RealServer,
) -> None:
    client = real_server.client()
    without, bytes_without = counted(client, history=None)
    notable, bytes_notable = counted(client)
    everything, _ = counted(client, history=ALL)

    assert notable == without
    assert bytes_notable == pytest.approx(bytes_without, abs=20)
    assert everything["cmdstat_xadd"] == 10


def test_the_history_is_noted_in_the_trips_that_are_made_anyway(real_server: RealServer) -> None:
    client = real_server.client()
    without, _ = counted(client, history=None)
    everything, _ = counted(client, history=ALL)

    assert everything["cmdstat_evalsha"] == without["cmdstat_evalsha"]


# Controls


def test_control_without_the_memory_of_a_loss_it_would_be_noted_twice(
    redis_client: redis.Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "RENEW", "and remember_loss(owner) then", "then")
    held = listed(redis_client, "a").take(0)
    redis_client.delete("lock:a")
    with pytest.raises(LockLost):
        held.reacquire()
    listed(redis_client, "a").take(0)

    assert len(entries(inspector)) == 2


def test_control_without_pcall_a_key_in_the_way_would_fail_a_release(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "RELEASE", "redis.pcall('XADD'", "redis.call('XADD'")
    redis_client.set(KEY, "theirs")

    with pytest.raises(LockUnavailable), listed(redis_client, "a", history=ALL):
        pass
