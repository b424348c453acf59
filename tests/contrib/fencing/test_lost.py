"""A handle that is known to be lost writes nothing, and asks nobody."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import LockError, LockLost, StaleFence, lock
from tests.contrib.fencing.models import Seat, Venue
from tests.contrib.fencing.writes import WRITES
from tests.support.seams import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_setnx_lock.core import LockHandle
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def lost(fake_server: FakeServer) -> Iterator[LockHandle]:
    """The handle of a lock that was found to be lost, while Redis does not answer."""
    with suppress(LockError), lock("seat:1") as held:
        fake_server.client().delete(held.name)
        with suppress(LockLost):
            held.check()
        fake_server.connected = False
        assert held.lost
        yield held


@pytest.fixture
def seat() -> Seat:
    seat: Seat = Seat.objects.create(row="A1")
    return seat


each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@each_write
def test_a_handle_that_is_known_to_be_lost_writes_nothing(
    lost: LockHandle, seat: Seat, write: Callable[[Any, Seat, Any], Any]
) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises(LockLost) as caught:
        write(Seat.objects.all(), seat, lost)

    assert not isinstance(caught.value, StaleFence)
    assert not any(one["sql"].startswith(("UPDATE", "INSERT", "DELETE")) for one in captured)


@each_write
def test_its_number_alone_cannot_tell(
    lost: LockHandle, seat: Seat, write: Callable[[Any, Seat, Any], Any]
) -> None:
    write(Seat.objects.all(), seat, lost.fence)


def test_a_handle_whose_lease_is_over_by_the_local_clock_writes_nothing(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now
    with suppress(LockError), lock("seat:1", timeout=30) as held:
        seat.save(fence=held)
        monkeypatch.setattr(clock, "now", lambda: now() + 60)

        with pytest.raises(LockLost, match="ran out"):
            seat.save(fence=held)


def test_a_write_of_the_lost_rolls_the_atomic_block_around_it_back(
    lost: LockHandle, seat: Seat
) -> None:
    with transaction.atomic():
        Venue.objects.create(name="before")
        with pytest.raises(LockLost):
            seat.save(fence=lost)
        assert transaction.get_rollback()

    assert not Venue.objects.exists()
