"""Locks that are given away to another process, and taken over there."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from django_setnx_lock.core import Inspector, RedisLock, Redlock, clock
from django_setnx_lock.core.locks.transfer import TransferTicket
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from tests.core.helpers import in_thread, listed
from tests.core.redis_py import around
from tests.servers import FakeServer
from tests.support.seams import mutate

if TYPE_CHECKING:
    from collections.abc import Callable


def given(client: redis.Redis, **options: Any) -> str:
    return listed(client, "a", **options).take(0).give_away()


def test_what_is_given_away_stays_held_and_is_not_renewed(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a", renew=True) as held:
        held.give_away()

    assert held.grant not in WATCHDOG.watched()
    assert redis_client.get("lock:a") == held.token.encode()
    with pytest.raises(LockError, match="it was released"):
        held.check()


def test_it_is_given_away_with_a_full_lease_or_more(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a", timeout=10).take(0)
    redis_client.pexpire("lock:a", 3000)
    again = listed(redis_client, "b", timeout=10).take(0)

    held.give_away()
    again.give_away(within=60)

    assert 9_000 < redis_client.pttl("lock:a") <= 10_000
    assert 59_000 < redis_client.pttl("lock:b") <= 60_000


def test_who_takes_it_over_has_its_fence_and_lets_it_go(redis_client: redis.Redis) -> None:
    given_by = listed(redis_client, "a", label="view pay").take(0)
    ticket = given_by.give_away()

    with listed(redis_client, "a", label="task send", renew=True).adopt(ticket) as held:
        seen = Inspector(redis_client, "lock:").get("lock:a")
        held.check()
        is_renewed = held.grant in WATCHDOG.watched()

    assert held.fence == given_by.fence == seen.fence
    assert is_renewed
    assert seen.holder is not None
    assert seen.holder.label == "task send"
    assert not redis_client.exists("lock:a")


def test_a_ticket_is_good_for_one(redis_client: redis.Redis) -> None:
    ticket = given(redis_client)
    first = listed(redis_client, "a").adopt(ticket)

    with pytest.raises(LockLost):
        listed(redis_client, "a").adopt(ticket)

    first.check()


def test_without_a_new_token_two_would_take_it_over(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, "SWAP", "redis.call('SET', NAME, ARGV[2], 'KEEPTTL')", "")
    ticket = given(redis_client)
    listed(redis_client, "a").adopt(ticket)

    listed(redis_client, "a").adopt(ticket)


def test_a_third_caller_never_gets_in_between(redis_client: redis.Redis) -> None:
    got: list[int] = []
    over = threading.Event()
    begun = threading.Event()

    def try_it() -> None:
        while not over.is_set():
            try:
                held = listed(redis_client, "a").take(0)
            except LockBusy:
                begun.set()
                continue
            got.append(held.fence)
            held.release()

    with listed(redis_client, "a") as first:
        third = threading.Thread(target=try_it)
        third.start()
        assert begun.wait(20)
        held = first
        for _ in range(20):
            held = listed(redis_client, "a").adopt(held.give_away())
        over.set()
        third.join(20)
        fence = held.fence
        held.release()

    assert got == []
    assert fence == first.fence


def test_who_waited_meanwhile_has_it_next(redis_client: redis.Redis) -> None:
    ticket = given(redis_client)
    held = listed(redis_client, "a").adopt(ticket)
    waiter = listed(redis_client, "a", blocking_timeout=20)
    threading.Timer(0.05, held.release).start()

    assert in_thread(lambda: waiter.take().fence) > held.fence


@pytest.mark.parametrize("how", ["over", "taken"])
def test_a_ticket_for_what_is_held_no_longer_is_refused(
    redis_client: redis.Redis, how: str
) -> None:
    ticket = given(redis_client)
    redis_client.delete("lock:a")
    if how == "taken":
        listed(redis_client, "a").take(0)

    with pytest.raises(LockLost):
        listed(redis_client, "a").adopt(ticket)


def test_who_force_released_it_is_told(redis_client: redis.Redis) -> None:
    ticket = given(redis_client)
    inspector = Inspector(redis_client, "lock:")
    seen = inspector.get("lock:a")
    inspector.force_release(seen.name, seen.fingerprint, by="ann", reason="stuck")

    with pytest.raises(LockLost) as caught:
        listed(redis_client, "a").adopt(ticket)

    assert caught.value.forced_by == "ann"


def test_every_handle_of_the_giver_has_it_no_longer(redis_client: redis.Redis) -> None:
    with (
        listed(redis_client, "a", reentrant=True) as outer,
        listed(redis_client, "a", reentrant=True) as inner,
    ):
        ticket = inner.give_away()
        with pytest.raises(LockBusy):
            listed(redis_client, "a", reentrant=True).take(0)

    assert outer.released
    assert redis_client.exists("lock:a")
    listed(redis_client, "a").adopt(ticket).release()


def test_it_is_given_away_in_asyncio_too(real_server: Any) -> None:
    client = real_server.client()

    async def give() -> str:
        async with listed(client, "a") as held:
            return await held.agive_away()

    ticket = asyncio.run(give())

    listed(client, "a").adopt(ticket).release()


@pytest.mark.parametrize("ticket", ["", "{}", "[]", "7", '{"name":"lock:a","token":7,"fence":1}'])
def test_what_is_no_ticket_is_refused(redis_client: redis.Redis, ticket: str) -> None:
    with pytest.raises(ValueError, match="no ticket"):
        listed(redis_client, "a").adopt(ticket)


def test_the_ticket_of_another_lock_is_refused_without_telling_its_token(
    redis_client: redis.Redis,
) -> None:
    ticket = given(redis_client)

    with pytest.raises(ValueError, match=r"'lock:a'.*'lock:b'") as caught:
        listed(redis_client, "b").adopt(ticket)

    assert json.loads(ticket)["token"] not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"shared": True}, {"limit": 2}, {"protocol": "timestamp"}, {"polling": True}],
    ids=str,
)
def test_a_lock_of_another_kind_cannot_be_given_away(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    held = listed(redis_client, "a", **options).take(0)

    with pytest.raises(LockUnsupported, match="given away"):
        held.give_away()
    with pytest.raises(LockUnsupported, match="given away"):
        listed(redis_client, "a", **options).adopt("{}")

    held.release()


def test_a_lock_on_several_masters_cannot_be_given_away() -> None:
    one = Redlock([FakeServer().client() for _ in range(3)], "lock:a")
    held = one.take(0)

    with pytest.raises(LockUnsupported, match="on several masters"):
        held.give_away()
    with pytest.raises(LockUnsupported, match="on several masters"):
        one.adopt("{}")

    held.release()


def test_one_that_was_released_cannot_be_given_away(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "a").take(0)
    held.release()

    with pytest.raises(LockError, match="cannot give away"):
        held.give_away()


@pytest.mark.parametrize("within", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(redis_client: redis.Redis, within: float) -> None:
    held = listed(redis_client, "a").take(0)

    with pytest.raises(ValueError, match="within"):
        held.give_away(within)

    held.check()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), LockUnavailable("gone")], ids=repr)
@pytest.mark.parametrize("is_done", [True, False])
def test_whoever_is_interrupted_leaves_it_free_or_the_ticket_good(
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    is_done: bool,
) -> None:
    ticket = given(redis_client)
    redis_client.script_load(scripts.SWAP.source)
    errors = [error]

    def cut(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        if errors and words[1] == scripts.SWAP.sha:
            if is_done:
                send()
            raise errors.pop()
        return send()

    around(redis_client, monkeypatch, cut)

    with pytest.raises(type(error)):
        listed(redis_client, "a").adopt(ticket)

    if is_done:
        assert not redis_client.exists("lock:a")
    else:
        listed(redis_client, "a").adopt(ticket).release()


def test_what_was_taken_over_too_late_is_not_begun(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = given(redis_client)
    moved = 0.0
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + moved)

    def slow(send: Callable[[], Any], words: tuple[Any, ...]) -> Any:
        nonlocal moved
        if words[1] == scripts.SWAP.sha:
            moved = 60.0
        return send()

    around(redis_client, monkeypatch, slow)

    with pytest.raises(LockLost, match="took longer"):
        listed(redis_client, "a").adopt(ticket)

    assert not redis_client.exists("lock:a")


def test_a_ticket_does_not_show_its_token() -> None:
    assert "secret" not in repr(TransferTicket("lock:a", "secret", 1))


def test_a_lock_is_held_for_a_block_of_its_handle(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "lock:a").take(0) as held:
        held.check()

    assert not redis_client.exists("lock:a")
