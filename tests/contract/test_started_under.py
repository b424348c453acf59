"""A process that was started under a lock has it again by what its environment says.

Where a fake is cannot be said there.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import LockHandle
from tests.processes import FORKS, in_thread
from tests.support import seams
from tests.support.children import child
from tests.support.kinds import EXCLUSIVE, READERS
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

VARIABLE = "SETNX_LOCK_HELD_TOKENS"
GOOD = {"place": "p", "name": "n", "token": "secret", "fence": 1, "timeout": 30.0}
NONSENSE = [
    "secret",
    "{",
    "7",
    "[7]",
    "null",
    '["secret"]',
    '[{"token": "secret"}]',
    "[" * 100_000,
    *[json.dumps([{**GOOD, name: None}]) for name in GOOD],
    json.dumps([{**GOOD, "timeout": -1}]),
    json.dumps([{**GOOD, "timeout": float("nan")}]),
    json.dumps([{**GOOD, "fence": "1"}]),
    json.dumps([{**GOOD, "more": 1}]),
]


def held_above(a: World, name: str = "", **options: Any) -> LockHandle:
    """Have another process hold the lock: a thread that is over."""
    lock = a.lock(name, thread_local=False, **options).raw
    handles: list[LockHandle] = []

    def take() -> None:
        handles.append(lock.take(0))
        handles[0].handover()

    in_thread(take)
    return handles[0]


@on([EXCLUSIVE, READERS], real=True)
async def test_it_has_the_lock_again_and_leaving_it_releases_nothing(a: World) -> None:
    above = held_above(a)
    with seams.started_under(above):
        lock = a.lock(reentrant=True, blocking=False)
        async with lock.block() as held, lock.block():
            await held.check()
            assert (held.token, held.fence) == (above.token, above.fence)
        async with lock.block():
            pass
        assert not a.is_free()
    in_thread(above.release)


@on([EXCLUSIVE], real=True)
async def test_without_the_environment_or_reentrant_it_waits_for_itself(a: World) -> None:
    above = held_above(a)
    with pytest.raises(LockBusy):
        await a.lock(reentrant=True).take(0)
    with seams.started_under(above), pytest.raises(LockBusy):
        await a.lock().take(0)
    in_thread(above.release)


@on([EXCLUSIVE], real=True)
async def test_what_the_one_above_has_no_longer_is_not_had_again(a: World) -> None:
    above = held_above(a)
    with seams.started_under(above):
        a.direct.set("lock:a", "somebody", px=20_000)
        with pytest.raises(LockBusy):
            await a.lock(reentrant=True).take(0)
        a.direct.delete("lock:a")
        async with a.lock(reentrant=True).block() as anew:
            assert anew.fence > above.fence


@on([EXCLUSIVE], real=True)
async def test_all_that_are_held_are_carried(a: World) -> None:
    above = [held_above(a), held_above(a, "lock:z")]
    with seams.started_under(*above):
        async with (
            a.lock(reentrant=True).block() as first,
            a.lock("lock:z", reentrant=True).block() as second,
        ):
            assert [first.token, second.token] == [held.token for held in above]
    for held in above:
        in_thread(held.release)


@on([EXCLUSIVE], real=True)
async def test_one_thread_or_task_has_it_at_a_time(a: World) -> None:
    above = held_above(a)
    with seams.started_under(above):
        async with a.lock(reentrant=True).block():
            job = a.spawn(a.lock(reentrant=True).acquire(blocking=False))
            assert await job.result() is False
        job = a.spawn(a.lock(reentrant=True).take(0))
        assert (await job.result()).token == above.token
    in_thread(above.release)


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_the_lease_is_followed_and_never_lengthened(a: World) -> None:
    above = held_above(a, timeout=20)
    with seams.started_under(above):
        held = a.lock(timeout=20, reentrant=True).raw.take(0)
        a.direct.pexpire("lock:a", 5_000)
        held.reacquire()
        with pytest.raises(LockError, match="with_lock"):
            held.extend(10)
        assert a.direct.pttl("lock:a") <= 5_000
        held.release()
    in_thread(above.release)


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_it_goes_on_for_as_long_as_the_one_above_renews(a: World) -> None:
    above = held_above(a, timeout=30, renew=True)
    lost: list[Any] = []
    with seams.started_under(above):
        held = a.lock(timeout=30, reentrant=True, on_lost=lost.append).raw.take(0)
        await a.renewed(held, after=DUE)
        a.direct.delete("lock:a")
        a.pass_time(DUE)
        await a.eventually(lambda: lost)
        with pytest.raises(LockLost):
            held.check()
    assert lost == [held]


@on([READERS], drivers=["blocking"], real=True)
async def test_under_a_reader_it_may_read_and_is_told_that_it_cannot_write(a: World) -> None:
    above = held_above(a)
    with seams.started_under(above):
        held = a.lock(reentrant=True).raw.take(0)
        assert held.token == above.token
        with pytest.raises(LockError):
            a.rival(reentrant=True).raw.take(1)
        held.release()
    in_thread(above.release)


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_a_fork_has_none_of_it(a: World, fork: Callable[[], int]) -> None:
    above = held_above(a)
    with seams.started_under(above):
        in_thread(lambda: a.lock(reentrant=True).raw.take(0).release())

        def work(say: Any) -> None:
            say(a.lock(reentrant=True).raw.acquire(blocking=False))

        with child(work, fork) as process:
            assert process.hear() is False
    in_thread(above.release)


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_no_password_stands_in_the_environment(a: World) -> None:
    rights: Any = {"enabled": True, "keys": ["*"], "commands": ["+@all"]}
    a.direct.acl_setuser("shop", passwords=["+hidden"], **rights)
    try:
        a.asks_at(a.server.client(username="shop", password="hidden"))
        with a.lock().raw as held, seams.started_under(held):
            assert a.lock(reentrant=True).raw.take(0).token == held.token
            assert held.token in os.environ[VARIABLE]
            assert "hidden" not in os.environ[VARIABLE]
    finally:
        a.direct.acl_deluser("shop")


@pytest.mark.usefixtures("no_collection")
@on([EXCLUSIVE], drivers=["blocking"], real=True)
@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: text if len(text) < 200 else "deep")
async def test_what_cannot_be_understood_is_told_and_ignored(
    a: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with seams.started_under(), caplog.at_level(logging.WARNING, "django_setnx_lock"):
        for name in ("lock:a", "lock:z"):
            async with a.lock(name, reentrant=True).block():
                pass
    (record,) = caplog.records
    assert VARIABLE in record.getMessage()
    assert "secret" not in caplog.text
