"""An interrupt anywhere in taking several locks, of which one is had again, leaves none behind.

Nor does one in taking over a lock that was given away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock
from tests.faults.points import Lines
from tests.support import seams
from tests.support.locks import held_names, many
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

    Work = Callable[[redis.Redis], list[LockHandle]]


def mine(client: redis.Redis, key: str) -> RedisLock:
    return RedisLock(client, f"lock:{key}", reentrant=True, blocking=False)


def each(client: redis.Redis) -> list[LockHandle]:
    taken = take_each([mine(client, key) for key in "ab"])
    return [one.held for one in taken if one.held]


def together(client: redis.Redis) -> list[LockHandle]:
    with many(client, "ab", reentrant=True, blocking=False):
        return []


def one_after_the_other(client: redis.Redis) -> list[LockHandle]:
    # Those that poll are not asked for in one script.
    with many(client, "ab", reentrant=True, blocking=False, protocol="hosted"):
        return []


def standing(client: redis.Redis, work: Work, **outermost: Any) -> Iterator[str]:
    """Interrupt ``work`` at each line in turn, within ``lock:a``, which is then let go while the
    interrupt is on its way up. Give the lines where that left a lock standing.
    """
    release_each(work(client))
    whole = Lines()
    interrupted_at(client, work, whole, outermost)
    passed = [*enumerate(whole.passed, 1)]
    # These are interrupted by the tests of one lock.
    of_one = Lines()
    of_one.run(lambda: mine(client, "c").take().release())
    firsts = {line: number for number, line in reversed(passed) if line not in of_one.passed}
    assert whole.surrounds_a_request
    assert firsts
    for at in firsts.values():
        lines = Lines(at)
        interrupted_at(client, work, lines, outermost)
        if names := held_names(client):
            yield f"{names} at {lines.passed[-1]}"
            client.flushall()
            seams.reset()


def interrupted_at(
    client: redis.Redis, work: Work, lines: Lines, outermost: dict[str, Any]
) -> None:
    outer = RedisLock(client, "lock:a", reentrant=True, blocking=False, **outermost).take()
    held: list[LockHandle] = []
    on_its_way: list[BaseException] = []

    def run() -> None:
        try:
            held.extend(work(client))
        except KeyboardInterrupt as error:
            on_its_way.append(error)
            raise

    lines.run(run)
    release_each(held)
    outer.release()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("work", [each, pytest.param(together, marks=pytest.mark.matrix)])
def test_no_interrupt_leaves_a_lock_behind(real_server: RealServer, work: Work) -> None:
    assert list(standing(real_server.client(), work)) == []


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_no_interrupt_leaves_one_behind_that_is_taken_after_another(
    real_server: RealServer,
) -> None:
    assert list(standing(real_server.client(), one_after_the_other, protocol="hosted")) == []


def unowned(client: redis.Redis) -> Iterator[str]:
    """Interrupt the taking over of a lock at each line in turn. Give the lines where that left it
    held by a token that nobody knows.
    """
    at, interrupted = 0, True
    while interrupted:
        at += 1
        given = RedisLock(client, "lock:a", blocking=False).take()
        ticket = given.give_away()
        adopted: list[LockHandle] = []

        def adopt(ticket: str = ticket, adopted: list[LockHandle] = adopted) -> None:
            # As the interpreter keeps what is returned, without a line in between.
            adopted.append(RedisLock(client, "lock:a", renew=True).adopt(ticket))

        lines = Lines(at)
        interrupted = lines.run(adopt)
        release_each(adopted)
        if client.get("lock:a") not in (None, given.token.encode()):
            yield lines.passed[-1]
        client.flushall()
    assert lines.surrounds_a_request


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_no_interrupt_leaves_a_lock_that_was_taken_over_to_nobody(real_server: RealServer) -> None:
    assert list(unowned(real_server.client())) == []
