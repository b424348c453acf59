"""What is told of those who wait: to listeners, and in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, signals
from tests.faults.proxy import Proxy
from tests.servers import ONCE
from tests.support.kinds import ALL, ONE_SERVER, QUEUED, SEVERAL
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World

Told = list[tuple[str, dict[str, Any]]]
SIGNALS = {
    "waiting": signals.lock_waiting,
    "waited": signals.lock_waited,
    "acquired": signals.lock_acquired,
    "busy": signals.lock_busy,
    "lost": signals.lock_lost,
    "released": signals.lock_released,
}


@pytest.fixture
def told() -> Iterator[Told]:
    """Give what listeners are told, in order."""
    found: Told = []

    def listener(name: str) -> Any:
        def listen(**about: Any) -> None:
            found.append((name, about))

        return listen

    listeners = {name: listener(name) for name in SIGNALS}
    for name, signal in SIGNALS.items():
        signal.connect(listeners[name])
    yield found
    for name, signal in SIGNALS.items():
        signal.disconnect(listeners[name])


def names(told: Told) -> list[str]:
    return [name for name, _ in told]


@on()
async def test_no_wait_is_told_of_who_does_not_wait(a: World, told: Told) -> None:
    async with a.rival().block():
        for _ in range(2):
            with pytest.raises(LockBusy) as busy:
                await a.lock().take(0)
    assert names(told) == ["acquired", "busy", "busy", "released"]
    assert told[2][1]["error"] is busy.value


@on([kind for kind in ALL if kind is not SEVERAL])
async def test_a_wait_in_vain_is_told_with_its_error(a: World, told: Told) -> None:
    async with a.rival(label="view pay").block():
        with pytest.raises(LockBusy) as busy:
            await a.lock().take(0.02)
    assert names(told)[1:-1] == ["waiting", "waited", "busy"]
    waiting, waited = told[1][1], told[2][1]
    assert waiting["holder"].label == "view pay"
    assert waiting["key"] == waited["key"] == a.kind.contested
    assert waited["error"] is busy.value
    assert waited["waited"] > 0


@on([SEVERAL])
async def test_of_several_keys_each_that_is_waited_for_is_told(a: World, told: Told) -> None:
    first, second = [await a.lock(f"lock:{key}", label=key).take(0) for key in "ac"]
    told.clear()
    job = a.spawn(a.lock().take(20))
    await a.eventually(lambda: a.info("lock:a").waiting)
    await first.release()
    await a.eventually(lambda: a.info("lock:c").waiting)
    await second.release()
    await (await job.result()).release()

    waits = [(name, about["key"]) for name, about in told if name.startswith("wait")]
    assert waits == [
        ("waiting", "lock:a"),
        ("waited", "lock:a"),
        ("waiting", "lock:c"),
        ("waited", "lock:c"),
    ]


@on(drivers=["asyncio"])
async def test_a_wait_that_is_cancelled_is_told_to_have_ended(a: World, told: Told) -> None:
    async with a.rival().block():
        job: Any = a.spawn(a.lock().take(20))
        await a.eventually(lambda: "waiting" in names(told))
        job.task.cancel()
        await asyncio.wait([job.task])
    # Of several, it has one before that meanwhile.
    told = [one for one in told if one[1]["key"] == a.kind.contested]
    assert names(told)[1:-1] == ["waiting", "waited"]
    assert isinstance(told[2][1]["error"], asyncio.CancelledError)


@on(ONE_SERVER, real=True)
async def test_a_wait_that_an_outage_ends_is_told_to_have_ended(a: World, told: Told) -> None:
    held = await a.rival().take(0)
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        job = a.spawn(a.lock().take(20))
        await a.eventually(lambda: "waiting" in names(told))
        proxy.refuse()
        with pytest.raises(LockUnavailable) as unavailable:
            await job.result()
    # Of several, it has one before that meanwhile.
    told = [one for one in told if one[1]["key"] == a.kind.contested]
    assert names(told) == ["acquired", "waiting", "waited"]
    assert told[-1][1]["error"] is unavailable.value
    await held.release()


@on(ONE_SERVER)
async def test_listeners_and_the_log_are_told_no_token(
    a: World, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    held = await a.lock(wait_warning=0.01).take(0)
    tokens = [one.token for one in held.raw.values()] if a.kind is SEVERAL else [held.token]
    with pytest.raises(LockBusy):
        await a.rival(wait_warning=0.01).take(0.05)
    a.lose()
    with pytest.raises(LockLost):
        await held.check()

    assert {"acquired", "waiting", "waited", "busy", "lost"} <= set(names(told))
    for token in tokens:
        assert token not in repr(told)
        assert token not in caplog.text


# The warning about a wait that takes long


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "has waited" in one.getMessage()]


@on()
async def test_a_long_wait_is_warned_of_once_with_the_holder(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with a.rival(label="view pay", timeout=30).block():
        job = a.spawn(a.lock(wait_warning=0.05).acquire(blocking_timeout=20))
        await a.eventually(lambda: warnings(caplog))
        # It goes on to wait, and says no more.
        await a.sleep(0.15)
    assert await job.result() is True
    (said,) = warnings(caplog)
    assert f"for the lock '{a.kind.contested}', held by" in said
    assert "(view pay)" in said


@on()
async def test_a_wait_that_is_not_too_long_is_not_warned_of(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with a.rival().block():
        for after in (30, None):
            assert await a.lock(wait_warning=after).acquire(blocking_timeout=0.02) is False
    assert warnings(caplog) == []


@on(ONE_SERVER)
async def test_a_wait_behind_another_program_is_warned_of(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    a.direct.set(a.kind.contested, a.kind.thief)
    job = a.spawn(a.lock(wait_warning=0.05).acquire(blocking_timeout=20))
    await a.eventually(lambda: warnings(caplog))
    a.direct.delete(a.kind.contested)
    assert await job.result() is True
    (said,) = warnings(caplog)
    assert "held by somebody else" in said


@on(QUEUED)
async def test_who_wait_keep_their_order_over_a_warning(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    held = await a.rival().take(0)
    first = a.spawn(a.lock(wait_warning=0.05).take(20))
    await a.waiting(1)
    second = a.spawn(a.rival().take(20))
    await a.waiting(2)
    await a.eventually(lambda: warnings(caplog))
    assert a.info().waiting == 2
    await held.release()

    first_held = await first.result()
    assert not second.done()
    await first_held.release()
    await (await second.result()).release()
