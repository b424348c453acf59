from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_setnx_lock import LockUnsupported, StaleFence, lock
from tests.contrib.fencing.models import Seat


@pytest.mark.django_db
def test_of_two_holders_the_later_one_writes() -> None:
    seat = Seat.objects.create(row="A1")
    with lock("seat:1") as earlier:
        pass
    with lock("seat:1") as later:
        seat.save(fence=later)

    with pytest.raises(StaleFence) as caught:
        seat.save(fence=earlier)

    assert caught.value.key == "seat:1"
    assert (caught.value.fence, caught.value.stored) == (earlier.fence, later.fence)
    assert str(caught.value) == (
        f"nothing of fencing.Seat {seat.pk} was written with fence {earlier.fence}: "
        f"a later holder has claimed or written it, with fence {later.fence}"
    )


@pytest.mark.django_db
def test_whoever_has_the_lock_again_has_its_fence() -> None:
    seat = Seat.objects.create(row="A1")

    with lock("seat:1", reentrant=True) as held, lock("seat:1", reentrant=True) as again:
        seat.save(fence=again)
        seat.save(fence=held)

    assert seat.fence == held.fence


@pytest.mark.django_db
@pytest.mark.parametrize("fence", [None, "7", 7.0, True, b"7"], ids=repr)
def test_what_is_no_fence_is_refused(fence: Any) -> None:
    with pytest.raises(TypeError, match="fence must be the handle of a lock or its number"):
        Seat.objects.update(fence=fence)


@pytest.mark.django_db
@pytest.mark.parametrize("fence", [0, -1, 2**63])
def test_a_number_out_of_range_is_refused(fence: int) -> None:
    with pytest.raises(ValueError, match="from 1 to"):
        Seat(row="A1").save(fence=fence)


@pytest.mark.django_db
def test_the_largest_fence_is_a_number_that_the_column_holds() -> None:
    Seat(row="A1").save(fence=2**63 - 1)

    assert Seat.objects.get().fence == 2**63 - 1


@pytest.mark.django_db
def test_locks_of_several_keys_have_a_fence_each() -> None:
    with lock("seat:1", "seat:2") as held:
        with pytest.raises(LockUnsupported, match="use fences"):
            Seat(row="A1").save(fence=held)
        Seat(row="A1").save(fence=held["seat:1"])

    assert Seat.objects.get().fence == held.fences["seat:1"]


@pytest.mark.django_db
def test_a_lock_on_several_masters_has_none() -> None:
    class Handle:
        key = "seat:1"

        @property
        def fence(self) -> int:
            raise LockUnsupported("no fencing number", key=self.key)

    with pytest.raises(LockUnsupported):
        Seat(row="A1").save(fence=Handle())


@pytest.mark.django_db(transaction=True)
def test_the_twins_for_asyncio_go_by_the_fence() -> None:
    async def write() -> None:
        seat = Seat(row="A1")
        await seat.asave(fence=7)
        for stale in (
            lambda: seat.asave(fence=5),
            lambda: seat.adelete(fence=5),
            lambda: Seat.objects.aupdate(fence=5, price=1),
            lambda: Seat.objects.all().adelete(fence=5),
        ):
            with pytest.raises(StaleFence):
                await stale()
        await Seat.objects.aupdate(fence=7, price=2)
        await seat.arefresh_from_db()
        assert (seat.price, seat.fence) == (2, 7)
        await seat.adelete(fence=7)
        assert not await Seat.objects.aexists()

    asyncio.run(write())
