"""Processes that are forked, by Python or in C, as uWSGI does: each begins anew.

What a child takes with the client that its parent uses as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import Inspector, RedisLock
from tests.processes import FORKS, eventually, run, until
from tests.support import seams
from tests.support.children import child
from tests.support.drivers import growth
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers import RealServer

forks = pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)


def lock(client: redis.Redis, name: str, **options: Any) -> RedisLock:
    return RedisLock(client, f"lock:{name}", 30, renew=True, **options)


def renewal_of(held: Any) -> Callable[[], bool]:
    """Let ten seconds pass, so that it is due; return what says whether it has come."""
    has_grown = growth(held, after=DUE)
    seams.pass_time(DUE)
    return has_grown


@forks
def test_a_child_renews_what_it_takes_and_its_parent_goes_on(
    real_server: RealServer, fork: Callable[[], int]
) -> None:
    client = real_server.client()
    with lock(client, "a") as held:
        eventually(renewal_of(held))

        def work(say: Any) -> None:
            with lock(client, "b") as own:
                eventually(renewal_of(own))
                is_busy = not lock(client, "a").acquire(blocking=False)
                say([own.lost, is_busy, held.owned(), held.remaining()])

        with child(work, fork) as process:
            said = process.hear()
            eventually(renewal_of(held))

        assert held.owned()
    assert said == [False, True, False, 0.0]


@forks
def test_a_child_has_a_name_of_its_own(real_server: RealServer, fork: Callable[[], int]) -> None:
    client = real_server.client()

    def named(name: str) -> list[Any]:
        with lock(client, name, **seams.says_alive("lock:")):
            holder = Inspector(client, "lock:").get(f"lock:{name}").holder
            return [holder and holder.process, holder and holder.pid]

    mine = named("a")
    with child(lambda say: say(named("b")), fork) as process:
        theirs = process.hear()

    assert all(mine + theirs)
    assert not set(mine) & set(theirs)


@forks
def test_a_child_of_a_task_renews_in_a_loop_of_its_own(
    real_server: RealServer, fork: Callable[[], int]
) -> None:
    client = real_server.client()

    async def hold_another() -> list[bool]:
        async with lock(client, "b") as own:
            await until(renewal_of(own))
            return [own.lost, await lock(client, "a").alocked()]

    def work(say: Any) -> None:
        # The loop of the parent is not the child's.
        asyncio._set_running_loop(None)  # noqa: SLF001 - nothing else forgets it
        say(run(hold_another()))

    async def hold() -> None:
        async with lock(client, "a") as held:
            await until(renewal_of(held))
            with child(work, fork) as process:
                assert await asyncio.to_thread(process.hear) == [False, True]
            await until(renewal_of(held))
            assert await held.aowned()

    run(hold())
