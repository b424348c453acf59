"""An interrupt anywhere in putting a release off leaves no lock behind the transaction."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_setnx_lock import RedisLock
from django_setnx_lock.transactions import AT_COMMIT
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
