"""An interrupt anywhere in putting a release off costs one lease at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from django_setnx_lock import lock
from tests.faults.points import Lines
from tests.processes import eventually
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import FakeServer


def block(key: str) -> Iterator[None]:
    with lock(key, timeout=1, blocking_timeout=0):
        yield


@pytest.mark.django_db(transaction=True)
def test_no_interrupt_leaves_a_lock_behind_the_transaction(fake_server: FakeServer) -> None:
    client = fake_server.client()
    at, interrupted, standing = 0, True, []

    while interrupted:
        at += 1
        lines = Lines(at)
        with transaction.atomic():
            held = block(str(at))
            next(held)
            interrupted = lines.run(lambda: next(held, None))  # noqa: B023 - at once
        assert seams.waiting_for_the_end() == []
        if client.exists(f"lock:{at}"):
            standing.append(f"lock:{at}")

    assert lines.passed
    # Where the block begins to end, and nowhere else, one is left to its lease.
    assert len(standing) < at / 10
    eventually(lambda: not client.exists("lock:", *standing))
