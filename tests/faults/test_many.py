"""Several locks at once: interrupted, killed, and cut off, nobody is left with some of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import MultiLock
from tests.faults.awaits import Awaits
from tests.faults.points import Lines, Points
from tests.processes import Stopwatch, eventually, may_be_late, until
from tests.servers import ONCE
from tests.support import seams
from tests.support.locks import held_names, listed, listeners, many, queue_of
from tests.support.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import redis

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer, Server

    Story = Callable[[Server, Points, pytest.MonkeyPatch], None]

REAL = pytest.mark.real
WAITER = """
import sys, redis
from django_setnx_lock.core import MultiLock
MultiLock(redis.Redis(port=int(sys.argv[1])), ["lock:a", "lock:b"], timeout=1).take()
"""


def nothing_waits(client: Any) -> bool:
    return not client.keys("*:waiters") and not client.keys("*:alive")


def take_if_not_interrupted(
    server: Server, points: Points, monkeypatch: pytest.MonkeyPatch, limit: float | None
) -> None:
    """Take all three, with connections of its own, and release them."""
    client = server.client()
    held = None
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        points.watch(client, patched)
        held = many(client, "abc").take(limit)
    if held is not None:
        held.release()


def finds_them_free(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    take_if_not_interrupted(server, points, monkeypatch, 0)


def waits_for_the_second(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who has the first is left the second; somebody else waits for the first."""
    other = server.client()
    busy = listed(other, "b").take()
    behind: list[Waiter] = []

    def meanwhile() -> None:
        if not behind:
            behind.append(Waiter(listed(other, "a"), other))
            busy.release()

    points.meanwhile("before sleep", meanwhile)
    take_if_not_interrupted(server, points, monkeypatch, None)
    meanwhile()
    behind[0].held().release()


def waits_in_vain(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    other = server.client()
    busy = listed(other, "b").take()
    with contextlib.suppress(LockBusy):
        take_if_not_interrupted(server, points, monkeypatch, 0.02)
    assert held_names(other) == "b"
    busy.release()


STORIES = [finds_them_free, waits_for_the_second, waits_in_vain]


def interrupted_everywhere(
    server: Server, story: Story, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Tell the story, interrupted at each point; return the points."""
    whole = Points()
    story(server, whole, monkeypatch)
    for at in range(1, len(whole.passed) + 1):
        server.flush()
        story(server, Points(at), monkeypatch)
        client = server.client()
        assert held_names(client) == "", whole.passed[:at]
        assert nothing_waits(client), whole.passed[:at]
    return whole.passed


@REAL
@pytest.mark.parametrize("story", STORIES)
def test_who_is_interrupted_anywhere_holds_none_and_waits_for_none(
    server: Server, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = interrupted_everywhere(server, story, monkeypatch)

    assert {"after send_packed_command", "after read_response"} < set(passed)


def interrupted_at_each_line(
    client: redis.Redis, watch: redis.Redis, what: Callable[..., object]
) -> Lines:
    """Run a block over two keys, interrupted at each line of ``what``; nothing may be left held."""
    for at in itertools.count(1):
        block = many(client, "ab", renew=True)
        lines = Lines(at, but=None if what is MultiLock.__exit__ else what)
        # As ``with`` does, which looks both up before the block begins.
        leave = block.__exit__
        if what is MultiLock.__exit__:
            block.__enter__()
            is_interrupted = lines.run(lambda: leave(None, None, None))  # noqa: B023 - run at once
        else:
            is_interrupted = lines.run(block.__enter__)
        if not is_interrupted:
            if what is MultiLock.__enter__:
                leave(None, None, None)
            return lines
        assert held_names(watch) == "", lines.passed[-1]
    raise AssertionError


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("what", [MultiLock.__enter__, MultiLock.__exit__])
def test_a_block_that_is_interrupted_at_any_line_lets_all_go(
    real_server: RealServer, what: Callable[..., object]
) -> None:
    client, watch = real_server.client(), real_server.client()

    assert interrupted_at_each_line(client, watch, what).surrounds_a_request


def test_a_grant_whose_reply_was_cut_off_is_held_after_all(
    proxy: Proxy, real_server: RealServer
) -> None:
    direct = real_server.client()
    direct.script_load(seams.script("SEVERAL").source)
    dropped = proxy.drop_next_reply(seams.script("SEVERAL").sha.encode())

    held = many(proxy.client(), "abc").take(0)

    assert dropped.is_set()
    assert all(direct.get(one.name) == one.token.encode() for one in held.parts)


def test_a_refusal_whose_reply_was_cut_off_names_the_holder_all_the_same(
    proxy: Proxy, real_server: RealServer
) -> None:
    direct = real_server.client()
    direct.script_load(seams.script("SEVERAL").source)
    listed(direct, "c", label="view pay").acquire()
    dropped = proxy.drop_next_reply(seams.script("SEVERAL").sha.encode())

    with pytest.raises(LockBusy, match="view pay") as caught:
        many(proxy.client(), "abc").take(0)

    assert dropped.is_set()
    assert caught.value.key == "c"
    assert held_names(direct) == "c"


def test_where_every_reply_is_cut_off_none_is_held(proxy: Proxy, real_server: RealServer) -> None:
    direct = real_server.client()
    direct.script_load(seams.script("SEVERAL").source)
    # The holder record is in every copy, whether it names the script or has it in full.
    proxy.drop_replies(b'"pid":')

    with pytest.raises(LockUnavailable, match="unavailable"):
        many(proxy.client(retry=ONCE), "abc").take(0)

    assert direct.keys("*:meta")
    assert held_names(direct) == ""


@may_be_late(1)
def test_who_is_killed_while_he_waits_is_followed_at_the_end_of_his_lease(
    real_server: RealServer, late: float
) -> None:
    client = real_server.client()
    busy = listed(client, "b").take()
    waiter = subprocess.Popen([sys.executable, "-c", WAITER, str(real_server.port)])
    with waiter:
        eventually(lambda: listeners(real_server) == 1)
        assert held_names(client) == "ab"
        waiter.kill()
    busy.release()
    with Stopwatch() as watch:
        held = many(client, "ab").take(20)

    # His lease, and the time for which the second was left to him.
    assert watch.seconds < 1 + 1 + late
    held.release()


async def free(client: redis.Redis, awaits: Awaits) -> None:
    async def work() -> None:
        async with many(client, "ab"):
            pass

    await run(awaits, work())


async def in_vain(client: redis.Redis, awaits: Awaits) -> None:
    busy = await listed(client, "b").atake(0)

    async def work() -> None:
        with contextlib.suppress(LockBusy):
            await many(client, "ab").atake(0.02)

    await run(awaits, work())
    assert held_names(client) == "b"
    await busy.arelease()


async def left_the_second(client: redis.Redis, awaits: Awaits) -> None:
    """A task that has the first waits until it is left the second; another waits for the first."""
    busy = await listed(client, "b").atake(0)

    async def work() -> None:
        async with many(client, "ab"):
            pass

    mine = asyncio.create_task(run(awaits, work()))
    await until(lambda: mine.done() or queue_of(client, "lock:b"))
    behind = asyncio.create_task(listed(client, "a").atake(20))
    await until(lambda: mine.done() or queue_of(client, "lock:a"))
    await busy.arelease()
    await mine
    await (await behind).arelease()


async def run(awaits: Awaits, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in a task of its own; a cancellation is never swallowed."""

    async def stepped() -> None:
        await awaits.run(work)

    (outcome,) = await asyncio.gather(asyncio.create_task(stepped()), return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError) is awaits.has_cancelled
    assert outcome is None or awaits.has_cancelled, outcome


def cancelled_everywhere(server: RealServer, story: Any, deadline: float = 20, **how: Any) -> int:
    client = server.client()
    at = 0
    while True:
        awaits = Awaits(at, **how)
        asyncio.run(asyncio.wait_for(story(client, awaits), deadline))
        assert held_names(client) == "", f"cancelled at await {at}"
        assert nothing_waits(client), f"cancelled at await {at}"
        if not awaits.came_so_far:
            return at - 1
        at += 1


ASYNC_STORIES = [free, in_vain, left_the_second]


@pytest.mark.parametrize("story", ASYNC_STORIES)
@pytest.mark.parametrize("how", [{}, {"late": True}, {"again": 2}], ids=str)
def test_a_task_that_is_cancelled_anywhere_holds_none_and_waits_for_none(
    real_server: RealServer, story: Any, how: dict[str, Any]
) -> None:
    assert cancelled_everywhere(real_server, story, **how) >= 3
