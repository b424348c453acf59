from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from django_setnx_lock import LockBusy, LockError, LockLost, lock, locked, rwlock, semaphore
from django_setnx_lock.testing import LockTester
from tests.databases import SECOND, second_database, state
from tests.processes import in_thread
from tests.settings import FAKE
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from django_setnx_lock.core import RedisLock
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db(transaction=True)

FEW, MANY = 10, 80
PACKAGE = "django_setnx_lock"


class Planned(Exception):
    """What a test raises in a transaction."""


def mark_in_transaction(way: Callable[[], None]) -> None:
    with transaction.atomic():
        way()
        transaction.set_rollback(True)
    raise Planned


def fail_in_transaction(way: Callable[[], None]) -> None:
    with transaction.atomic():
        way()
        raise Planned


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Hold each test to it that nothing waits any more for the end of a transaction."""
    yield
    assert seams.waiting_for_the_end() == []
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


@pytest.fixture
def second(tmp_path: Path) -> Iterator[str]:
    with second_database(tmp_path) as alias:
        yield alias


def by_block() -> None:
    with lock("a"):
        pass


def by_methods() -> None:
    one = lock("a")
    one.acquire()
    one.release()


def by_handle() -> None:
    lock("a").take().release()


def by_several() -> None:
    with lock("b", "a"):
        pass


def by_timestamps() -> None:
    with override_settings(SETNX_LOCK={"PROTOCOL": "timestamp-ms"}):
        by_block()


WAYS = {
    "timestamps": by_timestamps,
    "block": by_block,
    "methods": by_methods,
    "handle": by_handle,
    "several": by_several,
    "function": locked("a")(lambda: None),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
def test_what_is_let_go_in_a_transaction_is_held_until_its_commit(
    way: Callable[[], None], journal: list[str]
) -> None:
    with transaction.atomic():
        way()
        within = state("a")

    assert (within, journal, state("a")) == ("locked", ["commit default locked"], "open")


@each_way
@pytest.mark.parametrize("fail", [fail_in_transaction, mark_in_transaction])
def test_what_is_let_go_in_a_transaction_is_held_until_its_rollback(
    way: Callable[[], None], fail: Callable[[Callable[[], None]], None], journal: list[str]
) -> None:
    with pytest.raises(Planned):
        fail(way)

    assert (journal, state("a")) == (["rollback default locked"], "open")


def test_a_lock_around_a_transaction_is_let_go_where_its_block_ends(journal: list[str]) -> None:
    with lock("a"):
        with transaction.atomic():
            pass
        after = state("a")

    assert (journal, after, state("a")) == (["commit default locked"], "locked", "open")


@pytest.mark.parametrize(
    ("setting", "options", "then"),
    [
        ({}, {"until_commit": False}, "open"),
        ({"UNTIL_COMMIT": False}, {}, "open"),
        ({"UNTIL_COMMIT": False}, {"until_commit": True}, "locked"),
    ],
    ids=repr,
)
def test_a_lock_is_free_before_the_commit_where_it_or_the_setting_says_so(
    setting: dict[str, Any], options: dict[str, Any], then: str, journal: list[str]
) -> None:
    with override_settings(SETNX_LOCK=setting), transaction.atomic(), lock("a", **options):
        pass

    assert journal == [f"commit default {then}"]


def commit_savepoint() -> None:
    with transaction.atomic():
        by_block()


def merge_savepoint() -> None:
    with transaction.atomic(savepoint=False):
        by_block()


def roll_back_savepoint() -> None:
    with pytest.raises(Planned):
        fail_in_transaction(by_block)


@pytest.mark.parametrize("inner", [commit_savepoint, merge_savepoint, roll_back_savepoint])
def test_the_end_of_a_savepoint_does_not_release(inner: Callable[[], None]) -> None:
    with transaction.atomic():
        inner()
        after = state("a")

    assert (after, state("a")) == ("locked", "open")


def test_the_lock_is_free_when_callbacks_of_the_commit_run() -> None:
    seen: list[str] = []

    with transaction.atomic():
        transaction.on_commit(lambda: seen.append(state("a")))
        by_block()

    assert seen == ["open"]


def test_transactions_of_several_databases_are_all_waited_for(
    second: str, journal: list[str]
) -> None:
    with transaction.atomic():
        with transaction.atomic(using=second):
            by_block()
        between = state("a")

    assert between == "locked"
    assert journal == ["commit second locked", "commit default locked"]
    assert state("a") == "open"


def test_a_database_without_a_transaction_is_not_waited_for(second: str) -> None:
    connections[SECOND].ensure_connection()

    with transaction.atomic():
        by_block()

    assert state("a") == "open"


def test_transactions_of_other_threads_are_not_waited_for() -> None:
    with transaction.atomic():
        in_thread(by_block)

        assert state("a") == "open"


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Have the test end its transactions itself."""
    transaction.set_autocommit(False)
    yield
    if not transaction.get_autocommit():
        transaction.rollback()
        transaction.set_autocommit(True)


def autocommit() -> None:
    transaction.set_autocommit(True)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (transaction.commit, ["commit default locked"]),
        (transaction.rollback, ["rollback default locked"]),
        # The database commits of its own accord.
        (autocommit, []),
    ],
)
def test_without_autocommit_the_end_by_hand_releases(
    end: Callable[[], None], told: list[str], journal: list[str]
) -> None:
    by_block()
    before = state("a")

    end()

    assert (before, journal, state("a")) == ("locked", told, "open")


@pytest.mark.usefixtures("by_hand")
def test_without_autocommit_an_atomic_block_is_not_the_end() -> None:
    with transaction.atomic():
        by_block()

    assert state("a") == "locked"


def test_a_connection_that_is_closed_in_its_transaction_releases() -> None:
    with transaction.atomic():
        by_block()
        connection.close()
        after = state("a")

    assert after == "open"


def test_a_commit_that_fails_is_rolled_back_before_the_release(
    monkeypatch: pytest.MonkeyPatch, journal: list[str]
) -> None:
    def fail() -> None:
        raise DatabaseError("disk full")

    # Put back as an attribute of its own it would stay there.
    monkeypatch.setitem(vars(connections["default"]), "_commit", fail)

    with pytest.raises(DatabaseError, match="disk full"), transaction.atomic():
        by_block()

    assert (journal, state("a")) == (["rollback default locked"], "open")


def test_a_release_that_fails_breaks_no_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fake_server: FakeServer
) -> None:
    commit: Any = vars(BaseDatabaseWrapper)["_commit"]

    def disconnect(self: BaseDatabaseWrapper) -> None:
        commit(self)
        fake_server.connected = False

    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", disconnect)
    with transaction.atomic(), lock("a"):
        Group.objects.create(name="x")

    assert Group.objects.get().name == "x"
    assert "unavailable" in caplog.text


def test_what_is_put_off_is_renewed() -> None:
    with LockTester() as locks, transaction.atomic():
        with lock("a", timeout=3, renew=True):
            pass
        locks.advance(20)

        locks.assert_locked("a")


@pytest.mark.parametrize("keys", ["a", "ab"])
def test_what_is_put_off_is_held_here_no_longer(keys: str) -> None:
    one = lock(*keys)

    with transaction.atomic():
        held = one.take()
        held.release()

        assert one.held is None
        for release in (held.release, one.release):
            with pytest.raises(LockError, match=r"released already|it is not held here"):
                release()


@pytest.mark.parametrize("others", ["", "b"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_was_put_off_can_be_taken_again_in_the_transaction(
    reentrant: bool, others: str, journal: list[str]
) -> None:
    with transaction.atomic():
        with lock("a", reentrant=reentrant):
            pass
        for _ in range(2):
            with lock("a", *others, reentrant=reentrant, blocking_timeout=0):
                pass

    assert (journal, state("a"), state("b")) == (["commit default locked"], "open", "open")


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_was_had_again_waits_for_the_transaction_in_which_it_is_let_go(
    reentrant: bool,
) -> None:
    with transaction.atomic():
        with lock("a", reentrant=reentrant):
            pass
        held = lock("a", reentrant=reentrant).take(0)
    between = state("a")
    with transaction.atomic():
        held.release()
        within = state("a")

    assert (between, within, state("a")) == ("locked", "locked", "open")


def test_what_was_put_off_is_not_had_twice_at_a_time_without_reentrant() -> None:
    with transaction.atomic():
        by_block()
        with lock("a", reentrant=False), pytest.raises(LockBusy):
            lock("a", reentrant=False).take(0)


def test_whether_it_can_be_taken_again_is_not_up_to_who_had_it_before() -> None:
    with transaction.atomic():
        with lock("a", reentrant=False):
            pass
        with lock("a", reentrant=True, blocking_timeout=0) as held:
            assert held.owned()


def test_others_find_it_busy_and_readers_read_on_until_the_commit() -> None:
    def from_elsewhere(one: RedisLock) -> bool:
        return in_thread(lambda: one.acquire(blocking=False))

    report = rwlock("report")
    with transaction.atomic():
        by_block()
        with report.read():
            pass
        within = [from_elsewhere(one) for one in (lock("a"), report.write(), report.read())]

    assert within == [False, False, True]


def test_min_hold_counts_from_the_grant_all_the_same() -> None:
    with transaction.atomic(), lock("a", min_hold=20):
        pass

    assert state("a") == "locked"


def test_a_permit_that_was_put_off_is_had_again() -> None:
    with transaction.atomic():
        for _ in range(3):
            with semaphore("s", 1, blocking_timeout=0):
                pass

    with semaphore("s", 1, blocking_timeout=0) as held:
        assert not held.lost


def test_a_transaction_in_a_thread_of_an_async_caller_is_waited_for(journal: list[str]) -> None:
    def work() -> None:
        with transaction.atomic():
            by_block()

    async_to_sync(sync_to_async(work))()

    assert journal == ["commit default locked"]


@pytest.mark.usefixtures("fake_connections")
def test_what_is_awaited_is_free_at_once() -> None:
    async def work() -> bool:
        async with lock("a"):
            pass
        return await lock("a").alocked()

    with transaction.atomic():
        assert async_to_sync(work)() is False


def lose(*keys: str) -> None:
    for key in keys:
        FAKE.client().delete(f"lock:{key}")


def work(*keys: str) -> None:
    """Write in a transaction, under locks that are lost before its commit."""
    with transaction.atomic():
        for key in keys:
            with lock(key):
                Group.objects.create(name=key)
        lose(keys[-1])


def test_what_was_lost_before_the_commit_is_rolled_back(journal: list[str]) -> None:
    with pytest.raises(LockLost, match="'a' is no longer ours"):
        work("a")

    assert (journal, Group.objects.count()) == (["rollback default open"], 0)


def test_one_of_several_that_was_lost_is_enough() -> None:
    with pytest.raises(LockLost, match="'c' is no longer ours"):
        work("a", "b", "c")

    assert Group.objects.count() == 0
    assert [state(key) for key in "abc"] == ["open"] * 3


def test_callbacks_of_a_commit_that_was_refused_do_not_run() -> None:
    seen: list[str] = []

    def register() -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append("run"))
            work("a")

    with pytest.raises(LockLost):
        register()

    assert seen == []


def test_the_error_of_the_transaction_is_not_hidden_by_the_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        with transaction.atomic():
            with lock("a"):
                pass
            lose("a")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()

    assert "'a' is no longer ours" in caplog.text


def test_while_redis_is_away_the_local_lease_counts(
    fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction.atomic():
        with lock("a"):
            Group.objects.create(name="a")
        fake_server.connected = False
    fake_server.connected = True

    assert Group.objects.count() == 1
    assert "its lease still runs" in caplog.text


def test_when_the_lease_is_over_nobody_is_asked(fake_server: FakeServer) -> None:
    def outlast() -> None:
        with transaction.atomic():
            with lock("a", max_hold=1):
                Group.objects.create(name="a")
            fake_server.connected = False
            seams.pass_time(1)

    with pytest.raises(LockLost, match="max_hold"):
        outlast()

    assert Group.objects.count() == 0
    fake_server.connected = True


def test_what_is_lost_when_its_block_ends_says_so_there() -> None:
    def work() -> None:
        with lock("a") as held:
            lose("a")
            assert not held.owned()

    with transaction.atomic(), pytest.raises(LockLost):
        work()


def test_the_first_commit_of_several_databases_is_refused(second: str, journal: list[str]) -> None:
    def work() -> None:
        with transaction.atomic(), transaction.atomic(using=second):
            with lock("a"):
                pass
            lose("a")

    with pytest.raises(LockLost):
        work()

    assert journal == ["rollback second open", "rollback default open"]


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("end", [transaction.commit, autocommit])
def test_a_commit_by_hand_is_refused_too(end: Callable[[], None]) -> None:
    with lock("a"):
        Group.objects.create(name="a")
    lose("a")

    with pytest.raises(LockLost):
        end()

    autocommit()
    assert Group.objects.count() == 0


def calls(do: Callable[[], None]) -> int:
    """Count the calls of and in this package while ``do`` runs, in this thread."""
    found = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal found
        if event in ("call", "c_call"):
            found += str(frame.f_globals.get("__name__")).startswith(PACKAGE)

    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(None)
    return found


def take_many(number: int, *, again: bool = False) -> None:
    """Take ``number`` locks in one transaction."""
    with transaction.atomic():
        for one in range(number):
            with lock(f"key:{one}"):
                pass
        if again:
            for one in range(number):
                with lock(f"key:{one}"):
                    pass


@pytest.mark.parametrize("again", [False, True])
def test_the_work_for_a_lock_does_not_grow_with_those_put_off(again: bool) -> None:
    # What is done once is done.
    take_many(1, again=again)

    few = calls(lambda: take_many(FEW, again=again)) / FEW
    many = calls(lambda: take_many(MANY, again=again)) / MANY

    assert many < few * 1.1
