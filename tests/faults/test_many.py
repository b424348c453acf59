"""Several locks at once: interrupted, killed, and cut off, nobody is left with some of them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import LockHandle, MultiLock, MultiLockHandle
from django_setnx_lock.core.connections.backends import BLOCKING, Asyncio, Backend
from django_setnx_lock.core.connections.backends import run as drive
from django_setnx_lock.core.locks import batch
from django_setnx_lock.core.locks import multi_handle as many_held
from django_setnx_lock.core.locks import multi_lock as many_lock
from django_setnx_lock.core.locks.batch import release_each
from django_setnx_lock.core.locks.multi_lock import MultiAttempt
from django_setnx_lock.core.protocol import scripts
from tests.core.aio.helpers import until
from tests.core.helpers import ask, listed, queue_of
from tests.core.many.helpers import held_names, many
from tests.core.queueing import listeners
from tests.faults.awaits import Awaits
from tests.faults.controls import send_nothing_behind, take_out
from tests.faults.points import Points, traced
from tests.faults.test_interrupts import Lines
from tests.processes import eventually, may_be_late
from tests.servers import ONCE

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
    busy, behind = listed(other, "b").take(), listed(other, "a").attempt()
    come_and_go = [lambda: ask(behind, waits=True), busy.release]

    def meanwhile() -> None:
        while come_and_go:
            come_and_go.pop(0)()

    points.meanwhile("before BLPOP", meanwhile)
    take_if_not_interrupted(server, points, monkeypatch, None)
    meanwhile()
    held = ask(behind, waits=True)
    assert isinstance(held, LockHandle)
    held.release()


def waits_in_vain(server: Server, points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    other = server.client()
    busy = listed(other, "b").take()
    with contextlib.suppress(LockBusy):
        take_if_not_interrupted(server, points, monkeypatch, 0.02)
    assert held_names(other) == "b"
    busy.release()


STORIES = [finds_them_free, waits_for_the_second, waits_in_vain]


def interrupted_everywhere(server: Server, story: Story, monkeypatch: pytest.MonkeyPatch) -> int:
    """Tell the story, interrupted at each point; return how many there are."""
    whole = Points()
    story(server, whole, monkeypatch)
    for at in range(1, len(whole.passed) + 1):
        server.flush()
        story(server, Points(at), monkeypatch)
        client = server.client()
        assert held_names(client) == "", whole.passed[:at]
        assert nothing_waits(client), whole.passed[:at]
    return len(whole.passed)


@REAL
@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("story", STORIES)
def test_who_is_interrupted_anywhere_holds_none_and_waits_for_none(
    server: Server, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interrupted_everywhere(server, story, monkeypatch) > 3


@REAL
@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("story", STORIES)
def test_without_giving_back_he_would(
    server: Server, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep(*args: Any) -> None:
        pass

    monkeypatch.setattr(many_lock, "cancel_each", keep)
    send_nothing_behind(monkeypatch)

    with pytest.raises(AssertionError):
        interrupted_everywhere(server, story, monkeypatch)


def ended_at(client: redis.Redis, at: int, **options: Any) -> bool:
    """Take all in a block, interrupted at that line of its end; say whether it came so far."""
    block = many(client, "ab", **options)
    block.__enter__()
    try:
        with traced(Lines(at, MultiLock.__exit__)):
            block.__exit__(None, None, None)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_block_whose_end_is_interrupted_at_any_line_lets_all_go(real_server: RealServer) -> None:
    client, watch = real_server.client(), real_server.client()
    at = 1
    while ended_at(client, at, renew=True):
        assert held_names(watch) == "", at
        at += 1
    assert at > 60


def begun_at(client: redis.Redis, at: int) -> bool:
    """Begin a block, interrupted at that line; say whether it came so far."""
    block = many(client, "ab")
    try:
        with traced(Lines(at, MultiLock.__enter__)):
            block.__enter__()
    except KeyboardInterrupt:
        return True
    block.__exit__(None, None, None)
    return False


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_block_whose_beginning_is_interrupted_at_any_line_holds_none(
    real_server: RealServer,
) -> None:
    client, watch = real_server.client(), real_server.client()
    at = 1
    while begun_at(client, at):
        assert held_names(watch) == "", at
        at += 1
    assert at > 200


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_without_another_try_some_would_stand_for_their_leases(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def once(self: MultiLockHandle, io: Backend, *args: Any, **options: Any) -> None:
        await self._release(io)

    async def release_once(io: Backend, held: Any, **options: Any) -> Any:
        return await batch._release(io, held, now=True)

    monkeypatch.setattr(MultiLockHandle, "_finish", once)
    monkeypatch.setattr(many_held, "release_all", release_once)
    client, watch = real_server.client(), real_server.client()
    left_behind = []
    at = 1

    while ended_at(client, at):
        left_behind += [at] if held_names(watch) else []
        watch.flushall()
        at += 1

    assert len(left_behind) > 10


def test_a_grant_whose_reply_was_cut_off_is_held_after_all(
    proxy: Proxy, real_server: RealServer
) -> None:
    direct = real_server.client()
    direct.script_load(scripts.ACQUIRE_ALL.source)
    dropped = proxy.drop_next_reply(scripts.ACQUIRE_ALL.sha.encode())

    held = many(proxy.client(), "abc").take(0)

    assert dropped.is_set()
    assert all(direct.get(one.name) == one.token.encode() for one in held.parts)


def test_a_refusal_whose_reply_was_cut_off_names_the_holder_all_the_same(
    proxy: Proxy, real_server: RealServer
) -> None:
    direct = real_server.client()
    direct.script_load(scripts.ACQUIRE_ALL.source)
    listed(direct, "c", label="view pay").acquire()
    dropped = proxy.drop_next_reply(scripts.ACQUIRE_ALL.sha.encode())

    with pytest.raises(LockBusy, match="view pay") as caught:
        many(proxy.client(), "abc").take(0)

    assert dropped.is_set()
    assert caught.value.key == "c"
    assert held_names(direct) == "c"


def test_where_every_reply_is_cut_off_none_is_held(proxy: Proxy, real_server: RealServer) -> None:
    direct = real_server.client()
    direct.script_load(scripts.ACQUIRE_ALL.source)
    # The holder record is in every copy, whether it names the script or has it in full.
    proxy.drop_replies(b'"pid":')

    with pytest.raises(LockUnavailable, match="the locks are unavailable"):
        many(proxy.client(retry=ONCE), "abc").take(0)

    assert direct.keys("*:meta")
    assert held_names(direct) == ""


@pytest.mark.parametrize("granted", [False, True], ids=["given up", "released"])
def test_a_request_that_arrives_when_its_time_is_over_takes_none(
    proxy: Proxy, real_server: RealServer, *, granted: bool
) -> None:
    direct = real_server.client()
    for script in (scripts.ACQUIRE_ALL, scripts.CANCEL, scripts.RELEASE):
        direct.script_load(script.source)
    late(proxy, direct, granted=granted)

    proxy.let_go()

    assert held_names(direct) == ""
    assert nothing_waits(direct)


def test_without_the_memory_of_tokens_it_would_take_them(
    proxy: Proxy, real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_seen = "redis.call('EXISTS', WAITERS, ALIVE, TOMBSTONE) == 0"
    take_out(monkeypatch, "ACQUIRE_ALL", never_seen, never_seen.replace(", TOMBSTONE", ""))
    direct = real_server.client()
    for script in (scripts.ACQUIRE_ALL, scripts.CANCEL, scripts.RELEASE):
        direct.script_load(script.source)
    late(proxy, direct, granted=True)

    proxy.let_go()

    assert held_names(direct) == "abc"


def late(proxy: Proxy, direct: redis.Redis, *, granted: bool) -> None:
    """Have a request for all kept back, which was given up, or whose copy was granted."""
    impatient = proxy.client(retry=Retry(NoBackoff(), 0), socket_timeout=0.1)
    proxy.hold(scripts.ACQUIRE_ALL.sha.encode())
    turn = MultiAttempt([listed(impatient, key).attempt() for key in "abc"])
    with pytest.MonkeyPatch.context() as patched:
        send_nothing_behind(patched)
        with pytest.raises(LockUnavailable) as caught:
            drive(turn.ask(BLOCKING, waits=True))
    assert caught.value.cause == "timeout"
    assert proxy.holds.wait(10)
    for one in turn.attempts:
        one.target.client = direct
    if granted:
        held = drive(turn.ask(BLOCKING, waits=True))
        assert isinstance(held, list)
        assert release_each(held) == []
    else:
        drive(batch.cancel_each(BLOCKING, turn.attempts))


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
    started = time.monotonic()

    held = many(client, "ab").take(20)

    # His lease, and the time for which the second was left to him.
    assert time.monotonic() - started < 1 + 1 + late
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


async def nothing(*args: Any, **options: Any) -> None:
    pass


@pytest.mark.parametrize("story", ASYNC_STORIES)
def test_without_the_clean_up_it_would(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch, story: Any
) -> None:
    monkeypatch.setattr(Asyncio, "shield", nothing)
    send_nothing_behind(monkeypatch)

    with pytest.raises((AssertionError, TimeoutError, asyncio.TimeoutError, LockBusy)):
        cancelled_everywhere(real_server, story, deadline=1, late=True)
