"""An interrupt anywhere in putting a release off leaves no lock behind the transaction."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_setnx_lock.core import RedisLock
from django_setnx_lock.transactions import AT_COMMIT
from tests.core.many.helpers import fail_once
from tests.faults.test_interrupts_sharing import Lines
from tests.servers import FakeServer


@pytest.mark.django_db(transaction=True)
def test_no_interrupt_leaves_a_lock_behind_the_transaction() -> None:
    client = FakeServer().client()
    at, interrupted, standing = 0, True, []

    while interrupted:
        at += 1
        lines = Lines(at)
        with transaction.atomic():
            held = RedisLock(client, "a", ending=AT_COMMIT, blocking=False).take()
            interrupted = lines.run(lambda: held.finish(None))  # noqa: B023 - run at once
            # As the end of a block does it.
            held.finish(None)
        if client.exists("a") or "commit" in vars(connections["default"]):
            standing.append(lines.passed[-1])
            client.delete("a")

    assert standing == []
    assert at > 20


@pytest.mark.django_db(transaction=True)
def test_an_interrupt_after_the_commit_keeps_no_lock_of_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = [FakeServer().client() for _ in range(3)]

    def work() -> None:
        with transaction.atomic():
            for client in clients:
                for name in "ab":
                    RedisLock(client, name, ending=AT_COMMIT, blocking=False).take().release()
            # What is asked before the commit is not interrupted.
            monkeypatch.setattr("django_setnx_lock.transactions.check_each", lambda _: None)
            fail_once(monkeypatch, KeyboardInterrupt(), is_sent=False)

    with pytest.raises(KeyboardInterrupt):
        work()

    assert [client.exists("a", "b") for client in clients] == [0, 0, 0]
