"""What an operator sees of a lock, and does to its holder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnsupported, signals
from django_setnx_lock.core import Inspector, Outcome, State
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
from tests.support.locks import INDEX
from tests.support.rows import on
from tests.support.world import DUE, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import LockInfo
    from tests.support.drivers import Face

STATES = {"readers": State.READ, "permits": State.PERMITS}
HEAR = [EXCLUSIVE, READERS, PERMITS, SEVERAL]


def fingerprint(info: LockInfo) -> str:
    """Return what stands for the one holder, or for the first to end of several."""
    return (info.shares[0] if info.shares else info).fingerprint


def ask(a: World, name: str = "", reason: str = "deploy") -> Outcome:
    """Ask the holder of now to stop."""
    name = name or a.kind.contested
    seen = fingerprint(a.info(name))
    return a.ask(lambda look: look.ask_to_stop(name, seen, by="joe", reason=reason))


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


@on([EXCLUSIVE, READERS, PERMITS, TIMESTAMP, HOSTED])
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
        # Words that are in no script.
        proxy.hold(b"by the book")
        forcing = pool.submit(a.force, reason="by the book")
        await a.eventually(proxy.holds.is_set)
        await held.release()
        async with a.rival().block() as other:
            proxy.let_go()

            assert forcing.result(20) is Outcome.CHANGED_HANDS
            await other.check()


@on(HEAR)
async def test_who_came_after_the_last_look_is_not_asked_to_stop(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a.lock().block():
        seen = a.info()

    def outcome() -> Outcome:
        with monkeypatch.context() as patched:
            patched.setattr(Inspector, "get", lambda look, name: seen)
            return a.ask(lambda look: look.ask_to_stop(a.kind.contested, fingerprint(seen)))

    assert outcome() is Outcome.FREE
    async with a.lock().block() as other:
        assert outcome() is Outcome.CHANGED_HANDS
        await other.check()
        assert other.stop_requested is None


@on(ONE_SERVER)
async def test_nothing_is_taken_from_nobody_in_particular(a: World) -> None:
    name = a.kind.contested
    assert a.ask(lambda look: look.force_release(name, "0" * 32)) is Outcome.FREE
    async with a.lock().block() as held:
        assert a.ask(lambda look: look.force_release(name, "")) is Outcome.CHANGED_HANDS
        await held.check()


@on([READERS, PERMITS])
async def test_it_is_not_taken_from_all_who_hold_it_at_once(a: World) -> None:
    options: dict[str, Any] = {"limit": 2} if a.kind is PERMITS else {}
    async with a.lock(**options).block() as first, a.lock(**options).block() as second:
        whole = a.info().fingerprint
        outcome = a.ask(lambda look: look.force_release("lock:a", whole))
        assert outcome is Outcome.CHANGED_HANDS
        for held in (first, second):
            await held.check()


@pytest.mark.parametrize("value", ["somebody", "", "\udcff\0"], ids=ascii)
@on([EXCLUSIVE, HOSTED])
async def test_a_lock_of_another_program_can_be_taken_from_it(a: World, value: str) -> None:
    a.server.client(encoding_errors="surrogateescape").set("lock:a", value)

    def release(look: Inspector) -> Outcome:
        return look.force_release("lock:a", look.get("lock:a").fingerprint)

    raw = a.server.client()
    assert a.ask(lambda _: release(Inspector(raw, "lock:"))) is Outcome.RELEASED
    assert a.is_free()


@on([EXCLUSIVE, TIMESTAMP, HOSTED])
async def test_what_is_no_lock_is_never_removed(a: World) -> None:
    a.direct.rpush("lock:a", "data")
    a.direct.expire("lock:a", 60)
    assert a.ask(lambda look: look.force_release("lock:a", "")) is Outcome.FREE
    assert a.direct.lrange("lock:a", 0, -1) == ["data"]


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


HEARS: dict[str, Callable[[Face], Any]] = {
    "check": lambda held: held.check(),
    "owned": lambda held: held.owned(),
    "reacquire": lambda held: held.reacquire(),
    "extend": lambda held: held.extend(10),
    "extend to": lambda held: held.extend(10, replace_ttl=True),
}


@pytest.mark.parametrize("how", HEARS)
@on(HEAR)
async def test_whatever_the_holder_asks_says_that_it_is_to_stop(a: World, how: str) -> None:
    async with a.lock().block() as held:
        assert ask(a) is Outcome.ASKED
        assert held.stop_requested is None
        await HEARS[how](held)
        assert str(held.stop_requested) == "joe asks to stop: deploy"


@on(HEAR)
async def test_an_operator_sees_who_asked_and_when_and_the_lock_stays_as_it_is(a: World) -> None:
    async with a.lock(note=',"stop":{"by":"x"}').block() as held:
        before, keys = a.info(), set(a.direct.keys())
        ask(a)
        now = a.info()
        first, second = (one.shares[0] if one.shares else one for one in (before, now))
        assert first.stop_requested is None
        asked = second.stop_requested
        assert asked is not None
        assert (asked.by, asked.reason) == ("joe", "deploy")
        assert before.as_of <= asked.at <= now.as_of
        assert (first.fingerprint, first.fence, first.holder) == (
            second.fingerprint,
            second.fence,
            second.holder,
        )
        assert set(a.direct.keys()) == keys
        await held.check()


@on([EXCLUSIVE])
async def test_what_an_operator_says_is_made_plain(a: World) -> None:
    async with a.lock().block() as held:
        seen = a.info().fingerprint
        reason = '"}\x1b[2J\u202e' + "x" * 999
        a.ask(lambda look: look.ask_to_stop("lock:a", seen, by="j\no%1", reason=reason))
        await held.check()
        asked = held.stop_requested
        assert asked.by == "j\\no%1"
        assert asked.reason.startswith('"}\\x1b[2J\\u202exx')
        assert len(asked.reason) == 500


@on([READERS, PERMITS])
async def test_of_several_holders_one_is_asked_to_stop(a: World) -> None:
    options: dict[str, Any] = {"limit": 2} if a.kind is PERMITS else {}
    first = await a.lock(label="first", **options).take(0)
    second = await a.lock(label="second", **options).take(0)
    (chosen,) = (one for one in a.info().shares if one.holder and one.holder.label == "second")

    a.ask(lambda look: look.ask_to_stop("lock:a", chosen.fingerprint))
    for held in (first, second):
        await held.check()

    assert first.stop_requested is None
    assert second.stop_requested is not None
    seen = {one.holder and one.holder.label: one.stop_requested for one in a.info().shares}
    assert seen["first"] is None
    assert seen["second"] is not None
    for held in (first, second):
        await held.release()


@on([SEVERAL])
async def test_of_several_keys_the_whole_tells_the_first_that_was_asked_for(a: World) -> None:
    async with a.lock().block() as held:
        first, middle, last = held.raw
        ask(a, last, "last")
        ask(a, middle, "middle")
        await held.check()
        assert held.stop_requested.reason == "middle"
        assert held.raw[first].stop_requested is None
        assert held.raw[last].stop_requested.reason == "last"


@on([EXCLUSIVE, READERS])
async def test_each_who_has_it_again_hears_of_it(a: World) -> None:
    async with a.lock(reentrant=True).block() as outer, a.lock(reentrant=True).block() as inner:
        ask(a)
        await inner.check()
        assert outer.stop_requested is inner.stop_requested is not None


@on(HEAR)
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


@on([EXCLUSIVE, TIMESTAMP, HOSTED])
async def test_who_could_not_hear_it_is_not_asked_to_stop(a: World) -> None:
    # Where who polls has a queue, it is a holder like any.
    if a.kind is not EXCLUSIVE and not (a.kind is HOSTED and a.kind.has_queue):
        async with a.lock().block():
            with pytest.raises(LockUnsupported, match=r"protocol='(timestamp-ms|hosted)'"):
                ask(a)
    a.steal()
    with pytest.raises(LockUnsupported, match=r"foreign|protocol='timestamp-ms'"):
        ask(a)


@on([EXCLUSIVE, READERS, SEVERAL])
async def test_what_a_holder_waits_for_itself_is_told(a: World) -> None:
    options: dict[str, Any] = {"deadlock_timeout": 0.1, "index": INDEX, "renew": True}
    names = a.kind.names

    async def work() -> None:
        async with a.lock(**options).block(), a.lock("lock:z", **options).block():
            pass

    rival = await a.lock("lock:z", **({"shared": False} if a.kind is READERS else {})).take(0)
    job = a.spawn(work())

    def awaited() -> Any:
        info = a.info(names[0])
        return (info.shares[0] if info.shares else info).waits_for

    found = await a.eventually(awaited)
    other = a.info("lock:z")
    assert (found.key, found.name) == ("z", "lock:z")
    assert found.fingerprint == other.waiters[0].fingerprint
    assert other.waits_for is None
    await rival.release()
    await job.result()
    assert a.info(names[0]).waits_for is None


@on([EXCLUSIVE, READERS, PERMITS])
async def test_waiters_are_named_in_their_order(a: World) -> None:
    rival = await a.rival(timeout=30).take(0)

    async def wait(label: str) -> None:
        async with a.lock(label=label).block():
            pass

    jobs = []
    for number in range(3):
        jobs.append(a.spawn(wait(f"{number}")))
        await a.waiting(number + 1)

    for most in (1, 2, 9):
        info = a.ask(partial(Inspector.get, name=a.kind.contested, waiters=most))
        labels = [one.holder and one.holder.label for one in info.waiters]
        assert labels == ["0", "1", "2"][:most]
    assert len(info.waiters) == 3
    waited = [one.waited or 0 for one in info.waiters]
    assert waited == sorted(waited, reverse=True)
    assert info.longest_wait == waited[0]
    assert len({one.fingerprint for one in info.waiters}) == 3
    await rival.release()
    for job in jobs:
        await job.result()
