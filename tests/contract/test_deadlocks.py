"""Callers that hold locks and wait for each other: one of them is refused, and nobody else is."""

from __future__ import annotations

import os
import pickle
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockDeadlock
from django_setnx_lock.core import MultiLock, RedisLock
from tests.processes import figure
from tests.support.children import child
from tests.support.drivers import Face
from tests.support.kinds import EXCLUSIVE
from tests.support.locks import INDEX
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

    # What a caller holds, and what it takes then: keys, with the options of the locks.
    Both = tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]

# How long a caller waits before it looks for a deadlock.
EVERY = float(os.environ.get("DEADLOCK_EVERY", "0.2"))
ROUNDS = int(os.environ.get("DEADLOCK_ROUNDS", "50"))
LONG = [pytest.mark.storm, pytest.mark.timeout(300 + 10 * ROUNDS)]
SHARED: dict[str, Any] = {"shared": True}
TWO: dict[str, Any] = {"limit": 2}


def lock(a: World, keys: str, **options: Any) -> Face:
    given = {
        "timeout": 30,
        "blocking_timeout": 60,
        "renew": True,
        "deadlock_timeout": EVERY,
        "index": INDEX,
        "label": f"on {keys}",
        **options,
    }
    if len(keys) == 1:
        return Face(RedisLock(a.client, f"lock:{keys}", key=keys, **given), a.driver)
    names = [f"lock:{key}" for key in keys]
    return Face(MultiLock(a.client, names, keys=keys, **given), a.driver)


def ring(count: int) -> list[Both]:
    keys = "abcdefghi"[:count]
    return [((key, {}), (keys[(at + 1) % count], {})) for at, key in enumerate(keys)]


KNOTS: dict[str, list[Both]] = {
    "two": ring(2),
    "three": ring(3),
    "nine": ring(9),
    "reader and writer": [(("a", SHARED), ("b", {})), (("b", {}), ("a", {}))],
    # All permits are held, by those who want what one who wants a permit has.
    "permits": [(("p", TWO), ("b", {})), (("p", TWO), ("b", {})), (("b", {}), ("p", TWO))],
    "several keys": [(("ab", {}), ("cd", {})), (("ce", {}), ("bf", {}))],
}


async def meet(a: World, knot: list[Both]) -> list[LockDeadlock]:
    """Have each caller hold one and take the other when all do that; return who was refused."""
    holding: list[str] = []

    async def take(both: Both) -> LockDeadlock | None:
        (held, held_options), (wanted, options) = both
        async with lock(a, held, **held_options).block():
            holding.append(held)
            await a.eventually(lambda: len(holding) == len(knot))
            return await refusal(lock(a, wanted, **options))

    jobs = [a.spawn(take(both)) for both in knot]
    return [error for job in jobs if (error := await job.result()) is not None]


async def refusal(wanted: Face) -> LockDeadlock | None:
    try:
        async with wanted.block():
            return None
    except LockDeadlock as error:
        return error


@on([EXCLUSIVE])
@pytest.mark.parametrize("knot", KNOTS.values(), ids=KNOTS)
async def test_exactly_one_of_a_deadlock_is_refused(a: World, knot: list[Both]) -> None:
    assert len(await meet(a, knot)) == 1


@pytest.mark.storm
@pytest.mark.timeout(300 + 10 * ROUNDS)
@on([EXCLUSIVE])
@pytest.mark.parametrize("knot", KNOTS.values(), ids=KNOTS)
async def test_exactly_one_is_refused_each_time(a: World, knot: list[Both]) -> None:
    for _ in range(ROUNDS):
        assert len(await meet(a, knot)) == 1


@on([EXCLUSIVE])
async def test_the_error_is_a_busy_one_that_draws_the_cycle_and_comes_home_from_a_worker(
    a: World,
) -> None:
    # Who waits behind a deadlock is not in it.
    (error,) = await meet(a, [*ring(2), (("c", {}), ("a", {}))])

    assert isinstance(error, LockBusy)
    assert error.holder is not None
    assert {(step.holds, step.waits_for) for step in error.cycle} == {("a", "b"), ("b", "a")}
    assert error.cycle[0].waits_for == error.key
    assert "(on b) holds 'a' and waits for 'b'" in " ".join(map(str, error.cycle))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.cycle, str(again)) == (error.cycle, str(error))


@on([EXCLUSIVE])
async def test_who_is_refused_has_left_the_queue(a: World) -> None:
    holding: list[str] = []
    waiting: list[int] = []

    async def take(held: str, wanted: str) -> None:
        async with lock(a, held).block():
            holding.append(held)
            await a.eventually(lambda: len(holding) == 2)
            if await refusal(lock(a, wanted)) is not None:
                waiting.append(a.info(f"lock:{wanted}").waiting)

    for job in [a.spawn(take("a", "b")), a.spawn(take("b", "a"))]:
        await job.result()
    assert waiting == [0]


@on([EXCLUSIVE])
async def test_a_caller_with_some_of_several_keys_is_one_of_a_deadlock(a: World) -> None:
    async def take_all() -> LockDeadlock | None:
        return await refusal(lock(a, "ac"))

    async with lock(a, "c").block():
        job = a.spawn(take_all())
        await a.eventually(lambda: a.info("lock:c").waiting)
        mine = await refusal(lock(a, "a"))
    theirs = await job.result()

    assert [type(error) for error in (mine, theirs) if error] == [LockDeadlock]


@on([EXCLUSIVE])
async def test_a_reader_behind_a_waiting_writer_is_in_its_deadlock(a: World) -> None:
    # The writer holds nothing: it waits for one reader, who waits for the other.
    async def read_behind() -> LockDeadlock | None:
        async with lock(a, "b").block():
            await a.eventually(lambda: a.info("lock:a").waiting)
            return await refusal(lock(a, "a", shared=True))

    async def write() -> None:
        async with lock(a, "a").block():
            pass

    async with lock(a, "a", shared=True).block():
        jobs = [a.spawn(read_behind()), a.spawn(write())]
        await a.eventually(lambda: a.info("lock:a").waiting == 2)
        mine = await refusal(lock(a, "b"))
    theirs = await jobs[0].result()
    await jobs[1].result()

    assert (mine is None) != (theirs is None)


@on([EXCLUSIVE])
async def test_where_a_permit_becomes_free_there_is_no_deadlock(a: World) -> None:
    free = await lock(a, "p", **TWO).take(0)

    async def let_go_later() -> None:
        await a.sleep(4 * EVERY)
        await free.release()

    jobs = [a.spawn(let_go_later())]
    assert await meet(a, KNOTS["permits"][1:]) == []
    await jobs[0].result()


@on([EXCLUSIVE])
async def test_a_wait_that_ended_is_no_part_of_a_deadlock(a: World) -> None:
    # What stands there of it for a while is not believed.
    waits, done = [False], [False]

    async def hold_and_give_up() -> None:
        async with lock(a, "a").block():
            with pytest.raises(LockBusy):
                await lock(a, "b").take(2 * EVERY)
            waits[0] = True
            await a.eventually(lambda: done[0])

    async def let_go_later() -> None:
        await a.sleep(4 * EVERY)
        done[0] = True

    async with lock(a, "b").block():
        other = a.spawn(hold_and_give_up())
        await a.eventually(lambda: waits[0])
        timer = a.spawn(let_go_later())
        assert await refusal(lock(a, "a")) is None
    await other.result()
    await timer.result()


@on([EXCLUSIVE])
async def test_a_caller_that_waits_for_itself_is_not_refused(a: World) -> None:
    # Another may let the lock go.
    held = await lock(a, "a").take(0)

    async def let_go_later() -> None:
        await a.sleep(3 * EVERY)
        await held.release()

    timer = a.spawn(let_go_later())
    assert await refusal(lock(a, "a")) is None
    await timer.result()


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_two_processes_find_it(a: World) -> None:
    def work(mine: str, other: str) -> Callable[[Any], None]:
        def take(say: Any) -> None:
            a.asks_at(a.server.client())
            with lock(a, mine).raw:
                say("held")
                while not a.client.exists(f"lock:{other}"):
                    time.sleep(0.01)
                try:
                    with lock(a, other).raw:
                        say(0)
                except LockDeadlock:
                    say(1)

        return take

    with child(work("a", "b")) as one, child(work("b", "a")) as two:
        assert one.hear() == two.hear() == "held"
        assert one.hear() + two.hear() == 1


@on([EXCLUSIVE])
@pytest.mark.parametrize("seconds", [1.0, pytest.param(60.0, marks=LONG)])
async def test_none_is_reported_where_all_take_them_in_one_order(a: World, seconds: float) -> None:
    end = time.monotonic() + seconds
    waits = [0]

    async def work(number: int) -> None:
        rng = random.Random(number)  # noqa: S311 - no secret
        while time.monotonic() < end:
            await take(rng, sorted(rng.sample("abcdef", rng.randint(1, 4))))

    async def take(rng: random.Random, keys: list[str]) -> None:
        if not keys:
            await a.sleep(rng.choice([0, 0.01, EVERY]))
            return
        options = TWO if keys[0] == "f" else rng.choice([{}, {}, SHARED])
        began = time.monotonic()
        async with lock(a, keys[0], **options).block():
            waits[0] += time.monotonic() - began > EVERY
            await take(rng, keys[1:])

    for job in [a.spawn(work(number)) for number in range(8)]:
        await job.result()
    figure(f"{waits[0]} waits that looked for a deadlock: none found")
    assert waits[0]
