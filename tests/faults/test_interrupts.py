"""A caller that is interrupted at any step, or at any line, leaves no lock, no place and no count.

The first line of ``__exit__`` is left out: what comes before it, no Python code can guard.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_setnx_lock import LockBusy, LockLost, lock
from django_setnx_lock.core import MultiLock, RedisLock
from tests.faults.points import Lines, Points
from tests.processes import eventually
from tests.support import seams
from tests.support.locks import held_names, listed, many, queue_of
from tests.support.seams import release_each, take_each
from tests.support.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import FakeServer, RealServer, Server

    Work = Callable[[redis.Redis], list[LockHandle]]

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # A signal may come between making an operation and beginning it. Nothing has been sent then, so
    # all that is left of it is this warning of Python's.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

# The last two: a handler of a signal may use another lock, or tell that it was lost.
INTERRUPTS = [
    KeyboardInterrupt(),
    SystemExit(),
    asyncio.CancelledError(),
    GeneratorExit(),
    MemoryError(),
    LockLost("lost", key="lock:b"),
    LockBusy("busy", key="lock:b"),
]
# Says when it starts to wait for an answer that will come too late.
TAKER = """
import sys, redis
from django_setnx_lock.core import RedisLock
client = redis.Redis(port=int(sys.argv[1]), socket_timeout=30)
client.ping()
print("waiting", flush=True)
sys.stdin.readline()
RedisLock(client, "lock:a").take(0)
"""


# At each step on a connection


@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
def test_a_block_that_is_interrupted_by_whatever_at_any_step_leaves_no_lock(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    watch = server.client()
    # It may take a step more or less each time: whether there is an answer yet is one.
    for at in itertools.count(1):
        points = Points(at, error)
        client = server.client()
        with monkeypatch.context() as patched:
            points.watch(client, patched)
            try:
                with RedisLock(client, "lock:a", index="{lock:}:index"):
                    pass
            except type(error):
                assert not watch.exists("lock:a", "{lock:}:index"), points.passed
        if len(points.passed) < at:
            break
    assert {"after connect", "after send_packed_command"} < set(points.passed)
    assert points.passed[-1] == "after read_response"


def test_what_a_handler_of_a_signal_raises_leaves_no_answer_for_the_next_caller(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = server.client(), server.client()
    with RedisLock(client, "lock:a"):
        # From now on there is a connection at hand.
        busy = RedisLock(other, "lock:b").take(0)
    points = Points(2, LockLost("lost", key="lock:c"))
    with monkeypatch.context() as patched:
        points.watch(client, patched)
        with pytest.raises(LockLost, match=r"^lost$"):
            RedisLock(client, "lock:a").acquire(blocking=False)
    assert points.passed[:2] == ["before send_packed_command", "after send_packed_command"]

    assert not RedisLock(client, "lock:b").acquire(blocking=False)
    busy.release()


def given_the_lock(
    server: Server, points: Points, monkeypatch: pytest.MonkeyPatch, keys: str, step: str
) -> None:
    """Have a caller who waits for the last of ``keys`` be given it at ``step``.

    Another one waits behind it, who must be able to have the first of them in the end.
    """
    other = server.client()
    busy = listed(other, keys[-1]).take(0)
    behind: list[Waiter] = []

    def meanwhile() -> None:
        if not behind:
            behind.append(Waiter(listed(other, keys[0]), other))
            busy.release()

    points.meanwhile(f"before {step}", meanwhile)
    client = server.client()
    with monkeypatch.context() as patched:
        points.watch(client, patched)
        try:
            held = many(client, keys).take() if len(keys) > 1 else listed(client, keys).take()
        except (KeyboardInterrupt, LockBusy):
            held = None
    if held is not None:
        held.release()
    meanwhile()
    behind[0].held().release()
    assert held_names(other, keys) == "", points.passed
    assert all(queue_of(other, f"lock:{key}") == [] for key in keys), points.passed


@pytest.mark.real
@pytest.mark.parametrize(
    ("keys", "error"),
    [
        pytest.param("a", KeyboardInterrupt(), id="a"),
        pytest.param("abc", KeyboardInterrupt(), id="abc", marks=pytest.mark.matrix),
        pytest.param("a", LockBusy("busy", key="b"), id="a-LockBusy", marks=pytest.mark.matrix),
    ],
)
@pytest.mark.parametrize("step", ["sleep", "can_read"])
def test_a_waiter_that_is_interrupted_at_any_step_keeps_nobody_behind_it_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch, keys: str, error: BaseException, step: str
) -> None:
    whole = Points()
    given_the_lock(server, whole, monkeypatch, keys, step)
    for at in range(1, len(whole.passed) + 1):
        server.flush()
        given_the_lock(server, Points(at, error), monkeypatch, keys, step)

    assert {"after connect", f"before {step}", "after read_response"} < set(whole.passed)


def test_ctrl_c_in_a_real_process_leaves_no_lock(proxy: Proxy, real_server: RealServer) -> None:
    direct: redis.Redis = real_server.client()
    direct.script_load(seams.script("ACQUIRE").source)
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKER, str(proxy.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with taker:
        assert taker.stdin
        assert taker.stdout
        assert taker.stdout.readline() == "waiting\n"
        proxy.halve_replies(seams.script("ACQUIRE").sha.encode())
        taker.stdin.write("\n")
        taker.stdin.flush()
        assert proxy.holds.wait(20)
        was_taken = direct.exists("lock:a")

        taker.send_signal(signal.SIGINT)
        proxy.let_go()
        _, said = taker.communicate(timeout=20)

    assert was_taken
    assert "KeyboardInterrupt" in said
    assert not direct.exists("lock:a")


@pytest.mark.parametrize("waits", [True, False])
def test_ctrl_c_in_a_loop_leaves_no_lock(real_server: RealServer, waits: bool) -> None:
    client = real_server.client()
    held = RedisLock(client, "lock:a" if waits else "lock:b").take()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with RedisLock(client, "lock:c", renew=True):
            loop.call_later(0.05, signal.raise_signal, signal.SIGINT)
            async with RedisLock(client, "lock:a", renew=True):
                await asyncio.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert queue_of(client) == []
    held.release()
    assert held_names(client) == ""


# At each line


def at_each_line(begin: Callable[[], Callable[[], object]], **but: Any) -> Iterator[Lines]:
    """Interrupt what ``begin`` returns at each line in turn; give the lines, each time.

    The last time it was not interrupted.
    """
    for at in itertools.count(1):
        work, lines = begin(), Lines(at, **but)
        is_interrupted = lines.run(work)
        yield lines
        if not is_interrupted:
            return


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ("a", {}),
        ("a", {"renew": True}),
        pytest.param("ab", {"renew": True}, marks=pytest.mark.matrix),
    ],
)
def test_a_block_whose_end_is_interrupted_at_any_line_lets_the_lock_go(
    real_server: RealServer, keys: str, options: dict[str, Any]
) -> None:
    client, watch = real_server.client(), real_server.client()

    def begin() -> Callable[[], object]:
        block = many(client, keys, **options) if len(keys) > 1 else listed(client, keys, **options)
        # As ``with`` does, which looks it up before the block begins.
        leave = block.__exit__
        block.__enter__()
        return lambda: leave(None, None, None)

    for lines in at_each_line(begin):
        assert held_names(watch) == "", lines.passed[-1]
    assert lines.surrounds_a_request


@pytest.mark.matrix
def test_a_block_over_several_keys_is_begun_with_all_or_none(real_server: RealServer) -> None:
    client, watch = real_server.client(), real_server.client()
    blocks: list[MultiLock] = []

    def begin() -> Callable[[], object]:
        assert held_names(watch) == ""
        blocks.append(many(client, "ab", renew=True))
        return blocks[-1].__enter__

    lines = [*at_each_line(begin, but=MultiLock.__enter__)][-1]

    blocks[-1].__exit__(None, None, None)
    assert lines.surrounds_a_request
    assert held_names(watch) == ""


def enter_and_leave(lock: RedisLock) -> None:
    with lock:
        pass


def acquire_and_release(lock: RedisLock) -> None:
    lock.acquire()
    lock.release()


def take(lock: RedisLock) -> None:
    lock.take()


def test_no_interrupt_leaves_a_lock_that_could_be_had_again(real_server: RealServer) -> None:
    client = real_server.client()
    # What is made but once is not counted.
    enter_and_leave(mine(client, "b"))

    for lines in at_each_line(lambda: lambda: enter_and_leave(mine(client, "a"))):
        assert not client.exists("lock:a"), lines.passed[-1]
    assert lines.surrounds_a_request


@pytest.mark.parametrize("work", [enter_and_leave, acquire_and_release, take])
def test_no_interrupt_leaks_a_count(
    real_server: RealServer, work: Callable[[RedisLock], None]
) -> None:
    client = real_server.client()
    standing = []
    outer = inner = mine(client, "a")
    on_its_way: list[BaseException] = []

    def begin() -> Callable[[], object]:
        nonlocal outer, inner
        outer, inner = mine(client, "a"), mine(client, "a")
        outer.acquire()
        return noting(lambda: work(inner), on_its_way)

    for lines in at_each_line(begin):
        if work is acquire_and_release and inner.held is not None:
            # It was not released: the caller still has it, and can do so again.
            inner.release()
        # The interrupt may not let go what the other handle holds.
        assert outer.held
        outer.held.check()
        outer.release()
        on_its_way.clear()
        if client.exists("lock:a"):
            standing.append(lines.passed[-1])
            client.delete("lock:a")
    assert standing == []


def noting(work: Callable[[], object], on_its_way: list[BaseException]) -> Callable[[], object]:
    """Return what does ``work`` and keeps the interrupt, with all that its frames refer to."""

    def run() -> None:
        try:
            work()
        except KeyboardInterrupt as error:
            on_its_way.append(error)
            raise

    return run


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


def interrupted_at(
    client: redis.Redis, work: Work, lines: Lines, outermost: dict[str, Any]
) -> None:
    """Run ``work`` within ``lock:a``, which is let go while the interrupt is on its way up."""
    outer = RedisLock(client, "lock:a", reentrant=True, blocking=False, **outermost).take()
    held: list[LockHandle] = []
    on_its_way: list[BaseException] = []
    lines.run(noting(lambda: held.extend(work(client)), on_its_way))
    release_each(held)
    outer.release()


@pytest.mark.parametrize(
    ("work", "outermost"),
    [
        (each, {}),
        pytest.param(together, {}, marks=pytest.mark.matrix),
        pytest.param(one_after_the_other, {"protocol": "hosted"}, marks=pytest.mark.matrix),
    ],
)
def test_no_interrupt_leaves_a_lock_behind(
    real_server: RealServer, work: Work, outermost: dict[str, Any]
) -> None:
    client = real_server.client()
    release_each(work(client))
    whole, of_one = Lines(), Lines()
    interrupted_at(client, work, whole, outermost)
    # These are interrupted by the tests of one lock.
    of_one.run(lambda: mine(client, "c").take().release())
    passed = [*enumerate(whole.passed, 1)]
    firsts = {line: number for number, line in reversed(passed) if line not in of_one.passed}
    assert whole.surrounds_a_request
    assert firsts
    for at in firsts.values():
        lines = Lines(at)
        interrupted_at(client, work, lines, outermost)
        assert held_names(client) == "", lines.passed[-1]


def test_no_interrupt_leaves_a_lock_that_was_taken_over_to_nobody(real_server: RealServer) -> None:
    client = real_server.client()
    given: list[LockHandle] = []
    adopted: list[LockHandle] = []

    def begin() -> Callable[[], object]:
        given.append(RedisLock(client, "lock:a", blocking=False).take())
        ticket = given[-1].give_away()
        # As the interpreter keeps what is returned, without a line in between.
        return lambda: adopted.append(RedisLock(client, "lock:a", renew=True).adopt(ticket))

    for lines in at_each_line(begin):
        release_each(adopted)
        adopted.clear()
        # Its giver's token can still be taken over, or given back.
        assert client.get("lock:a") in (None, given[-1].token.encode()), lines.passed[-1]
        client.flushall()
    assert lines.surrounds_a_request


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
