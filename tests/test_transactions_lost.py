from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_setnx_lock import LockLost, lock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import Redlock
from django_setnx_lock.transactions import AT_COMMIT
from tests.core.many.helpers import around_many
from tests.databases import second_database, state
from tests.servers import FakeServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from django_setnx_lock.core.connections.connection import Command

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def in_autocommit() -> Iterator[None]:
    """Hold each test to it that the connection can be used again."""
    yield
    assert connection.get_autocommit()
    assert not connection.in_atomic_block
    Group.objects.all().delete()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[str]:
    with second_database(tmp_path) as alias:
        yield alias


def lose(*keys: str) -> None:
    for key in keys:
        get_client().delete(f"lock:{key}")


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


def test_without_the_look_before_the_commit_it_would_be_committed(
    monkeypatch: pytest.MonkeyPatch, journal: list[str]
) -> None:
    monkeypatch.setattr("django_setnx_lock.transactions.check_each", lambda _held: None)

    work("a")

    assert (journal, Group.objects.count()) == (["commit default open"], 1)


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
            with lock("a"):
                pass
            lose("a")

    with pytest.raises(LockLost):
        register()

    with transaction.atomic():
        pass
    assert seen == []


def test_all_looks_of_one_commit_are_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[int] = []

    def count(send: Callable[[], list[Any]], commands: Sequence[Command]) -> list[Any]:
        trips.append(len(commands))
        return send()

    with transaction.atomic(), lock("a") as held:
        # So that the server has the scripts.
        held.check()

    with transaction.atomic():
        for key in "abc":
            with lock(key):
                pass
        around_many(monkeypatch, count)

    # And one to let them go.
    assert trips == [3, 3]


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
    def work() -> None:
        with transaction.atomic():
            with lock("a", max_hold=0.05) as held:
                Group.objects.create(name="a")
            fake_server.connected = False
            while not held.lost:
                pass

    with pytest.raises(LockLost, match="max_hold"):
        work()

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


def test_a_lock_that_lost_the_majority_of_its_masters_is_lost() -> None:
    clients = [FakeServer().client() for _ in range(3)]

    def work() -> None:
        with transaction.atomic():
            with Redlock(clients, "a", ending=AT_COMMIT, master_timeout=5):
                Group.objects.create(name="a")
            for client in clients[:2]:
                client.flushall()

    with pytest.raises(LockLost):
        work()

    assert Group.objects.count() == 0


def test_a_commit_by_hand_is_refused_too(journal: list[str]) -> None:
    transaction.set_autocommit(False)
    try:
        with lock("a"):
            Group.objects.create(name="a")
        lose("a")

        with pytest.raises(LockLost):
            transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert (journal[0], Group.objects.count()) == ("rollback default open", 0)


def test_autocommit_again_is_refused_too() -> None:
    transaction.set_autocommit(False)
    with lock("a"):
        Group.objects.create(name="a")
    lose("a")

    with pytest.raises(LockLost):
        transaction.set_autocommit(True)

    transaction.set_autocommit(True)
    assert Group.objects.count() == 0


def test_an_interrupt_while_it_looks_commits_nothing(
    monkeypatch: pytest.MonkeyPatch, journal: list[str]
) -> None:
    def interrupt(_held: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("django_setnx_lock.transactions.check_each", interrupt)

    with pytest.raises(KeyboardInterrupt), transaction.atomic(), lock("a"):
        Group.objects.create(name="a")

    assert (journal, Group.objects.count()) == (["rollback default locked"], 0)
