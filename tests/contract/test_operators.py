"""What an operator sees of a lock, and does to its holder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_setnx_lock import LockLost, LockUnsupported, signals
from django_setnx_lock.core import Outcome, State
from tests.faults.proxy import Proxy
from tests.support.kinds import (
    EXCLUSIVE,
    HOSTED,
    ONE_SERVER,
    PERMITS,
    QUEUED,
    READERS,
    SEVERAL,
    TIMESTAMP,
)
from tests.support.rows import on
from tests.support.world import DUE, World

STATES = {"readers": State.READ, "permits": State.PERMITS}


@on(ONE_SERVER)
async def test_a_holder_is_shown(a: World) -> None:
    async with a.lock(label="view pay", user="ann", note="invoice 7").block() as held:
        info = a.info()

        assert info.state is STATES.get(a.kind.name, State.HELD)
        assert info.holder is not None
        assert (info.holder.label, info.holder.user, info.holder.note) == (
            "view pay",
            "ann",
            "invoice 7",
        )
        assert info.holder.pid == os.getpid()
        assert info.fence in a.fences(held)
        assert 0 < (info.remaining or 0) <= 10.01
        assert info.fingerprint
    assert a.info().state is State.FREE


@on([EXCLUSIVE, TIMESTAMP, HOSTED])
async def test_a_value_of_another_program_is_shown_as_that(a: World) -> None:
    a.direct.set("lock:a", a.kind.thief, px=30_000)
    assert a.info().state in (State.FOREIGN, State.HELD)
    assert a.info().holder is None


@on([EXCLUSIVE])
async def test_a_key_of_another_type_is_no_lock_and_is_left_alone(a: World) -> None:
    a.direct.rpush("lock:a", "data")
    a.direct.expire("lock:a", 60)
    assert a.info().state is State.NO_LOCK
    for _ in range(2):
        with pytest.raises(Exception, match="lock:a"):
            await a.lock().take(0)
    assert a.direct.lrange("lock:a", 0, -1) == ["data"]


@on(ONE_SERVER)
async def test_no_token_is_shown(a: World) -> None:
    async with a.lock().block() as held:
        tokens = [one.token for one in held.raw.values()] if a.kind is SEVERAL else [held.token]
        info = a.info()
        for token in tokens:
            assert token not in repr(info)
            assert token not in repr(held.raw)
            assert token != info.fingerprint


@on(ONE_SERVER)
async def test_who_was_forced_out_learns_by_whom_and_why(a: World) -> None:
    held = await a.lock().take(0)

    assert a.force(by="joe", reason="stuck since noon") is Outcome.RELEASED

    with pytest.raises(LockLost) as lost:
        await held.check()
    assert (lost.value.forced_by, lost.value.reason) == ("joe", "stuck since noon")
    assert held.lost
    assert await a.rival().acquire(blocking=False) is True


@on(QUEUED)
async def test_a_waiter_follows_who_was_forced_out(a: World) -> None:
    held = await a.rival(timeout=30).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)

    a.force()

    following = await job.result()
    with pytest.raises(LockLost):
        await held.release()
    await following.check()
    await following.release()


@on(ONE_SERVER)
async def test_nobody_but_the_holder_that_was_seen_is_forced_out(a: World) -> None:
    held = await a.lock().take(0)
    seen = a.info()
    seen_one = seen.shares[0] if seen.shares else seen
    await held.release()
    name = a.kind.contested

    outcome = a.ask(lambda inspector: inspector.force_release(name, seen_one.fingerprint))
    assert outcome is Outcome.FREE

    async with a.lock().block() as other:
        outcome = a.ask(lambda inspector: inspector.force_release(name, seen_one.fingerprint))
        assert outcome is Outcome.CHANGED_HANDS
        await other.check()


@on(ONE_SERVER, real=True)
async def test_who_takes_it_while_the_release_by_force_is_under_way_keeps_it(a: World) -> None:
    held = await a.lock().take(0)
    with Proxy(a.server.port) as proxy, ThreadPoolExecutor(1) as pool:
        a.direct = proxy.client(decode_responses=True)
        proxy.hold(b"under way")
        forcing = pool.submit(a.force, reason="under way")
        await a.eventually(proxy.holds.is_set)
        await held.release()
        async with a.rival().block() as other:
            proxy.let_go()

            assert forcing.result(20) is Outcome.CHANGED_HANDS
            await other.check()


@on([READERS, PERMITS])
async def test_of_several_holders_one_is_forced_out(a: World) -> None:
    options: dict[str, Any] = {"limit": 2} if a.kind is PERMITS else {}
    first = await a.lock(label="first", **options).take(0)
    second = await a.lock(label="second", **options).take(0)
    shares = a.info().shares
    chosen = next(one for one in shares if one.holder and one.holder.label == "first")

    outcome = a.ask(lambda inspector: inspector.force_release("lock:a", chosen.fingerprint))

    assert outcome is Outcome.RELEASED
    with pytest.raises(LockLost):
        await first.check()
    await second.check()
    await second.release()


@on([EXCLUSIVE, READERS, PERMITS, SEVERAL])
async def test_who_is_asked_to_stop_hears_of_it_once(a: World) -> None:
    heard: list[Any] = []

    def hears(stop_request: Any, **_: Any) -> None:
        heard.append(stop_request)

    signals.lock_stop_requested.connect(hears)
    try:
        async with a.lock().block() as held:
            asked = held.stop_requested
            assert asked is None
            info = a.info()
            holder = info.shares[0] if info.shares else info
            for expected in (Outcome.ASKED, Outcome.ASKED_BEFORE):
                outcome = a.ask(
                    lambda inspector: inspector.ask_to_stop(
                        a.kind.contested, holder.fingerprint, by="joe", reason="deploy"
                    )
                )
                assert outcome is expected
            await held.check()
            await held.check()
            asked = held.stop_requested
            assert (asked.by, asked.reason) == ("joe", "deploy")
            assert not held.lost
    finally:
        signals.lock_stop_requested.disconnect(hears)
    assert len(heard) == 1
    # The next holder is not asked.
    async with a.lock().block() as held:
        await held.check()
        assert held.stop_requested is None


@on([EXCLUSIVE], real=True)
async def test_a_renewal_brings_the_request_to_stop(a: World) -> None:
    async with a.lock(timeout=30, renew=True).block() as held:
        seen = a.info().fingerprint
        a.ask(lambda inspector: inspector.ask_to_stop("lock:a", seen, by="joe"))
        a.pass_time(DUE)
        await a.eventually(lambda: held.stop_requested)


@on([TIMESTAMP, HOSTED])
async def test_who_could_not_hear_it_is_not_asked_to_stop(a: World) -> None:
    async with a.lock().block():
        seen = a.info().fingerprint
        with pytest.raises(LockUnsupported):
            a.ask(lambda inspector: inspector.ask_to_stop("lock:a", seen))
