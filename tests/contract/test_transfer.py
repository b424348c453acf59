"""A lock that is given away is taken over by whom has the ticket, with its fence, and by one."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from django_setnx_lock.core import Redlock
from tests.faults.proxy import Proxy
from tests.servers import ONCE, free_port
from tests.support.kinds import EXCLUSIVE, HOSTED, PERMITS, READERS, REDLOCK, STEADY, TIMESTAMP
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World


async def given(a: World, **options: Any) -> str:
    return str(await (await a.lock(**options).take(0)).give_away())


def adopted(a: World, ticket: str, **options: Any) -> Any:
    """Take the lock over, as another process does."""
    lock = a.lock(**options).raw
    return a.ask(lambda _: lock.adopt(ticket))


@on([EXCLUSIVE])
async def test_what_is_given_away_stays_held_for_its_lease_and_is_not_renewed(a: World) -> None:
    async with a.lock(timeout=STEADY, renew=True).block() as held:
        await held.give_away()
        assert a.direct.get("lock:a") == held.token
    with pytest.raises(LockError, match="it was released"):
        await held.check()
    assert not held.lost
    await a.eventually(a.is_free)


@on([EXCLUSIVE])
async def test_it_is_given_away_with_a_full_lease_or_the_time_that_is_asked_for(a: World) -> None:
    held = await a.lock(timeout=10).take(0)
    a.direct.pexpire("lock:a", 3_000)
    await held.give_away()
    assert 5_000 < a.direct.pttl("lock:a") <= 10_000
    other = await a.lock("lock:z", timeout=10).take(0)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="within"):
            await other.give_away(seconds)
    await other.check()
    await other.give_away(within=60)
    assert 50_000 < a.direct.pttl("lock:z") <= 60_000


@on([EXCLUSIVE])
async def test_who_takes_it_over_is_its_holder(a: World) -> None:
    giver = await a.lock(label="view pay").take(0)
    ticket = await giver.give_away()
    held = adopted(a, ticket, label="task send", timeout=30, renew=True)
    info = a.info()
    assert held.fence == giver.fence == info.fence
    assert info.holder is not None
    assert info.holder.label == "task send"
    await a.renewed(held, after=DUE)
    with pytest.raises(LockLost):
        adopted(a, ticket)
    a.ask(lambda _: held.check())
    a.ask(lambda _: held.release())
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_nobody_gets_in_between_and_who_waits_has_it_next(a: World) -> None:
    got: list[int] = []
    is_over, has_begun = threading.Event(), threading.Event()

    def try_it() -> None:
        while not is_over.is_set():
            try:
                other = a.lock().raw.take(0)
            except LockBusy:
                has_begun.set()
                continue
            got.append(other.fence)
            other.release()

    held = first = a.lock().raw.take(0)
    third = threading.Thread(target=try_it)
    third.start()
    assert has_begun.wait(20)
    for _ in range(20):
        held = a.lock().raw.adopt(held.give_away())
    is_over.set()
    third.join(20)
    assert got == []
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    held.release()
    following = await job.result()
    assert following.fence > held.fence == first.fence
    await following.release()


@on([EXCLUSIVE])
async def test_a_ticket_for_what_is_held_no_longer_is_refused(a: World) -> None:
    for comes_next in (False, True):
        ticket = await given(a)
        a.direct.delete("lock:a")
        if comes_next:
            await a.lock().take(0)
        with pytest.raises(LockLost):
            adopted(a, ticket)
    a.direct.delete("lock:a")
    ticket = await given(a)
    a.force(by="ann")
    with pytest.raises(LockLost) as lost:
        adopted(a, ticket)
    assert lost.value.forced_by == "ann"


@on([EXCLUSIVE])
async def test_every_handle_of_the_giver_has_it_no_longer(a: World) -> None:
    lock = a.lock(reentrant=True)
    async with lock.block() as outer, lock.block() as inner:
        ticket = await inner.give_away()
        with pytest.raises(LockBusy):
            await lock.take(0)
    assert outer.released
    assert not a.is_free()
    held = adopted(a, ticket)
    a.ask(lambda _: held.release())
    assert a.is_free()


@on([EXCLUSIVE])
@pytest.mark.parametrize("ticket", ["", "{}", "[]", "7", '{"name":"lock:a","token":7,"fence":1}'])
async def test_what_is_no_ticket_is_refused(a: World, ticket: str) -> None:
    with pytest.raises(ValueError, match="no ticket"):
        adopted(a, ticket)


@on([READERS, PERMITS, TIMESTAMP, HOSTED, REDLOCK], drivers=["blocking"])
async def test_what_is_no_plain_lock_is_neither_given_away_nor_taken_over(a: World) -> None:
    held = a.lock().raw.take(0)
    for refused in (held.give_away, lambda: a.lock().raw.adopt("{}")):
        with pytest.raises(LockUnsupported, match=r"given away|on several masters"):
            refused()
    held.check()
    held.release()
    with pytest.raises(LockError):
        held.give_away()


@on([EXCLUSIVE], drivers=["blocking"], real=True)
@pytest.mark.parametrize("is_done", [True, False])
async def test_who_has_no_answer_leaves_it_free_or_the_ticket_good(a: World, is_done: bool) -> None:
    adopted(a, await given(a)).release()
    ticket = await given(a)
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        a.client.ping()
        if is_done:
            proxy.drop_replies(b"task send")
        else:
            proxy.refuse()
        with pytest.raises(LockUnavailable):
            a.lock(label="task send").raw.adopt(ticket)
    a.asks_at(a.server.client())
    if is_done:
        await a.eventually(a.is_free)
    else:
        a.lock().raw.adopt(ticket).release()
        assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_what_was_taken_over_too_late_is_not_begun(a: World) -> None:
    lease = 0.3
    ticket = await given(a, timeout=30)
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        a.client.ping()
        proxy.hold(b"task send")
        lock = a.lock(label="task send", timeout=lease)

        async def take_over() -> None:
            lock.raw.adopt(ticket)

        job = a.spawn(take_over())
        await a.eventually(proxy.holds.is_set)
        await a.sleep(lease)
        proxy.let_go()
        with pytest.raises(LockLost, match="took longer"):
            await job.result()
    await a.eventually(a.is_free)


# What a report of an error shows of a ticket: nothing

REFUSED: dict[str, Callable[[World, str], Any]] = {
    "not held": lambda a, ticket: a.lock().raw.adopt(ticket),
    "another lock": lambda a, ticket: a.lock("lock:z").raw.adopt(ticket),
    "no ticket": lambda a, ticket: a.lock().raw.adopt(f"{ticket}}}"),
    "of a kind": lambda a, ticket: READERS.make(a.clients).adopt(ticket),
    "several masters": lambda a, ticket: Redlock(nowhere(3), "lock:a").adopt(ticket),
    "no server": lambda a, ticket: EXCLUSIVE.make(nowhere(1)).adopt(ticket),
}


def nowhere(count: int) -> list[Any]:
    return [redis.Redis(port=free_port(), retry=ONCE) for _ in range(count)]


@on([EXCLUSIVE], drivers=["blocking"])
@pytest.mark.parametrize("adopt", REFUSED.values(), ids=REFUSED)
async def test_no_frame_of_a_lock_that_was_not_taken_over_shows_the_ticket(
    a: World, adopt: Callable[[World, str], Any]
) -> None:
    ticket = await given(a)
    a.direct.delete("lock:a")
    token = json.loads(ticket)["token"]
    with pytest.raises((LockError, ValueError)) as refused:
        adopt(a, ticket)
    shown = [
        (entry.frame.code.name, name)
        for entry in refused.traceback
        if "django_setnx_lock" in str(entry.path)
        for name, value in entry.frame.f_locals.items()
        if token in f"{value!r} {value}"
    ]
    assert shown == []
    assert token not in f"{refused.value!r} {vars(refused.value)}"
