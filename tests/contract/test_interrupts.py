"""A caller that is interrupted, as by Ctrl-C, leaves neither a lock nor a place in the queue."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockError
from tests.faults.points import Points
from tests.support import seams
from tests.support.calls import Calls
from tests.support.children import child
from tests.support.kinds import ALL, EXCLUSIVE, ONE_SERVER, QUEUED, REDLOCK
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # One that was interrupted before its first step.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
# A lease: what an interrupt costs at most.
LEASE = 1.0


def at_each_step(
    a: World,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[], object],
    after: Callable[[], object],
) -> None:
    """Do ``work``, interrupted at each step on a connection in turn; and ``after`` it."""
    passed: set[str] = set()
    for at in itertools.count(1):
        # Its first steps are those of a connection that is made.
        a.asks_at(a.server.client())
        points = Points(at)
        with monkeypatch.context() as patched:
            points.watch(a.client, patched)
            with contextlib.suppress(KeyboardInterrupt):
                work()
        with points.looking_away():
            after()
        passed.update(points.passed)
        if len(points.passed) < at:
            break
    for step in ("connect", "send", "read"):
        for when in ("before", "after"):
            assert any(step in one for one in passed if one.startswith(when)), passed


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_a_block_that_is_interrupted_at_any_step_leaves_no_lock(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        with a.lock().raw:
            pass

    def after() -> None:
        assert a.is_free()

    at_each_step(a, monkeypatch, work, after)


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_a_lock_that_is_not_handed_out_for_an_interrupt_is_not_held(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def work() -> None:
        taken.clear()
        taken.append(a.lock().raw.take(0))

    def after() -> None:
        for held in taken:
            held.release()
        assert a.is_free()

    at_each_step(a, monkeypatch, work, after)


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_an_operation_that_is_interrupted_at_any_step_costs_no_lock(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = a.lock().raw.take(0)

    def work() -> None:
        held.check()
        held.extend(5)
        held.reacquire()

    watched = a.client

    for at in itertools.count(1):
        points = Points(at)
        with monkeypatch.context() as patched:
            points.watch(watched, patched)
            with contextlib.suppress(KeyboardInterrupt):
                work()
        assert not held.lost
        held.check()
        if len(points.passed) < at:
            break
    held.release()
    assert a.is_free()


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_a_release_that_is_interrupted_at_any_step_can_be_called_again(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in itertools.count(1):
        held = a.lock().raw.take(0)
        points = Points(at)
        with monkeypatch.context() as patched:
            points.watch(a.client, patched)
            with contextlib.suppress(KeyboardInterrupt):
                held.release()
        if len(points.passed) < at:
            break
        # It may have come through before the interrupt.
        with contextlib.suppress(LockError):
            held.release()
        assert a.is_free()
    assert at > 1


@on(QUEUED, drivers=["blocking"], real=True)
async def test_a_waiter_that_is_interrupted_at_any_step_is_not_waited_for(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = a.clients
    rival = a.kind.make_rival([a.server.client()]).take(0)

    def work() -> None:
        a.lock(timeout=1).raw.acquire(blocking_timeout=0.01)

    def after() -> None:
        assert a.info().waiting == 0
        rival.check()

    at_each_step(a, monkeypatch, work, after)
    rival.release()
    a.clients = clients
    assert a.rival().raw.acquire(blocking=False)


@on([kind for kind in ALL if kind is not REDLOCK], drivers=["blocking"], real=True)
@pytest.mark.parametrize(
    "renew",
    [pytest.param(False, marks=pytest.mark.matrix, id="plain"), pytest.param(True, id="renewed")],
)
async def test_a_block_that_is_interrupted_at_any_call_costs_one_lease_at_most(
    a: World, renew: bool
) -> None:
    spared = (seams.END_OF_BLOCK,)
    warm(a, renew)
    costs = 0
    for at in itertools.count(1):
        calls = Calls(at, spared)
        was_interrupted = calls.run(lambda: one_block(a, renew))
        if not a.is_free():
            gc.collect()
            costs += 1
            await a.eventually(a.is_free)
        if not was_interrupted:
            break
    assert not calls.has_interrupted
    # Between the grant and the block, and nowhere else.
    assert costs < at / 4


def warm(a: World, renew: bool) -> None:
    for _ in range(2):
        one_block(a, renew)


def one_block(a: World, renew: bool) -> None:
    with a.lock(timeout=LEASE, renew=renew).raw:
        pass


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_an_interrupt_in_the_first_instruction_of_the_end_costs_one_lease(a: World) -> None:
    lock = a.lock(timeout=LEASE, renew=True).raw

    def interrupt(frame: Any, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is seams.END_OF_BLOCK:
            sys.settrace(None)
            raise KeyboardInterrupt

    def work() -> None:
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with lock:
                pass
        finally:
            sys.settrace(before)

    with pytest.raises(KeyboardInterrupt):
        work()
    try:
        await a.eventually(a.is_free, seconds=2.5 * LEASE)
    finally:
        if lock.held is not None:
            lock.held.release()


@on([EXCLUSIVE, REDLOCK], drivers=["blocking"], real=True)
async def test_an_interrupt_as_a_thread_is_begun_is_raised_and_leaves_nothing(a: World) -> None:
    # In a process that has no thread yet which renews, or asks one of several masters.
    def work(say: Any) -> None:
        release = threading.Condition._release_save  # type: ignore[attr-defined]  # noqa: SLF001 - in start()

        def interrupted(condition: Any) -> Any:
            threading.Condition._release_save = release  # type: ignore[attr-defined]  # noqa: SLF001
            release(condition)
            raise KeyboardInterrupt

        threading.Condition._release_save = interrupted  # type: ignore[attr-defined]  # noqa: SLF001
        lock = a.kind.make([server.client() for server in a.servers], timeout=1, renew=True)
        try:
            lock.take(0)
        except BaseException as error:  # noqa: BLE001 - which one is the question
            say(type(error).__name__)
        else:
            say("held")

    with child(work) as process:
        assert process.hear() == "KeyboardInterrupt"
    await a.eventually(a.is_free)
