"""An interrupt anywhere in putting a release off leaves no lock behind the transaction."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_setnx_lock.core import RedisLock
from tests.faults.points import Lines
from tests.servers import FakeServer
from tests.support.seams import AT_COMMIT


@pytest.mark.django_db(transaction=True)
def test_no_interrupt_leaves_a_lock_behind_the_transaction() -> None:
    client = FakeServer().client()
    at, interrupted, standing = 0, True, []

    while interrupted:
        at += 1
        lines = Lines(at)
        with transaction.atomic():
            lock = RedisLock(client, "a", ending=AT_COMMIT, blocking=False)
            lock.__enter__()
            interrupted = lines.run(lambda: lock.__exit__(None, None, None))  # noqa: B023 - at once
        if client.exists("a") or "commit" in vars(connections["default"]):
            standing.append(lines.passed[-1])
            client.delete("a")

    assert standing == []
    assert lines.passed
