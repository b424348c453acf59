"""A handle that is known to be lost writes nothing, and asks nobody."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import LockError, LockLost, StaleFence, lock
from tests.contrib.fencing.models import Seat, Venue
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


WRITES: dict[str, Callable[[Any, Seat], object]] = {
    "save": lambda held, seat: seat.save(fence=held),
    "save a new one": lambda held, seat: Seat(row="B1").save(fence=held),
    "delete": lambda held, seat: seat.delete(fence=held),
    "claim": lambda held, seat: Seat.objects.claim(held, pk=seat.pk),
    "claim rows": lambda held, seat: Seat.objects.claim_all(held),
    "update rows": lambda held, seat: Seat.objects.update(fence=held, price=1),
    "delete rows": lambda held, seat: Seat.objects.all().delete(fence=held),
}
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@each_write
def test_a_handle_that_is_known_to_be_lost_writes_nothing(
    lost: LockHandle, seat: Seat, write: Callable[[Any, Seat], object]
) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises(LockLost) as caught:
        write(lost, seat)

    assert not isinstance(caught.value, StaleFence)
    assert not any(one["sql"].startswith(("UPDATE", "INSERT", "DELETE")) for one in captured)


@each_write
def test_its_number_alone_cannot_tell(
    lost: LockHandle, seat: Seat, write: Callable[[Any, Seat], object]
) -> None:
    write(lost.fence, seat)


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
