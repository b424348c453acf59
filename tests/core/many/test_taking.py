from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import LockHandle, MultiLock, RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.connections.backends import BLOCKING, Backend, run
from django_setnx_lock.core.locks.attempt import FailoverGrace
from django_setnx_lock.core.locks.multi_lock import MultiAttempt
from django_setnx_lock.core.protocol import replies, scripts
from django_setnx_lock.core.renewal import watchdog
from tests.core.helpers import FakeTime, ask, called, listed, queue_of, send
from tests.core.many.helpers import as_given, held_names, many
from tests.processes import eventually
from tests.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable


def test_all_are_held_in_the_block_and_none_after_it(redis_client: redis.Redis) -> None:
    with many(redis_client, "ba") as held:
        assert held_names(redis_client) == "ab"
        held.check()

    assert held_names(redis_client) == ""
    assert held.released


def test_the_handles_are_had_by_key_in_the_order_given(redis_client: redis.Redis) -> None:
    held = many(redis_client, "cab").take()

    assert list(held) == ["c", "a", "b"]
    assert all(held[key].key == key for key in held)
    assert held.fences == {key: held[key].fence for key in "cab"}


def test_a_key_given_twice_is_taken_once(redis_client: redis.Redis) -> None:
    held = many(redis_client, "aba").take(0)

    assert list(held) == ["a", "b"]


def test_one_key_will_do(redis_client: redis.Redis) -> None:
    with many(redis_client, "a") as held:
        assert list(held) == ["a"]


def test_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no key"):
        MultiLock(None, [])


def test_a_single_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\['lock:a'\]"):
        MultiLock(None, "lock:a")


@pytest.mark.parametrize("busy", "abc")
def test_where_one_is_busy_none_is_taken(redis_client: redis.Redis, busy: str) -> None:
    listed(redis_client, busy, label="view pay").acquire()

    with pytest.raises(LockBusy) as caught:
        many(redis_client, "abc").take(0)

    assert caught.value.key == busy
    assert caught.value.holder
    assert caught.value.holder.label == "view pay"
    assert held_names(redis_client) == busy


def test_where_one_is_busy_acquire_says_so(redis_client: redis.Redis) -> None:
    listed(redis_client, "b").acquire()
    lock = many(redis_client, "ab", blocking=False)

    assert lock.acquire() is False
    assert lock.held is None


def test_of_a_name_that_is_no_lock_the_error_tells_and_none_is_taken(server: Server) -> None:
    client = server.client()
    client.lpush("lock:b", "x")

    with pytest.raises(LockUnavailable) as caught:
        many(client, "abc").take(5)

    assert caught.value.cause == "wrongtype"
    assert held_names(client) == "b"


@pytest.mark.parametrize("limit", [0.05, 1, 10])
def test_the_limit_bounds_the_whole(
    redis_client: redis.Redis, fake_time: FakeTime, limit: float
) -> None:
    listed(redis_client, "b").acquire()
    started = fake_time.now

    with pytest.raises(LockBusy):
        many(redis_client, "abc").take(limit)

    assert fake_time.now - started == pytest.approx(limit, abs=1e-6)
    assert held_names(redis_client) == "b"


def test_what_a_waiter_holds_comes_before_what_it_waits_for(redis_client: redis.Redis) -> None:
    awaited = listed(redis_client, "b").take()
    waiting = many(redis_client, "cba")

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(waiting.take, 20)
        eventually(lambda: queue_of(redis_client, "lock:b"))
        meanwhile = held_names(redis_client)
        awaited.release()
        held = result.result(10)

    assert meanwhile == "ab"
    held.check()
    held.release()


def test_it_goes_on_to_wait_for_the_next(redis_client: redis.Redis) -> None:
    first, second = listed(redis_client, "a").take(), listed(redis_client, "b").take()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(many(redis_client, "ab").take, 20)
        eventually(lambda: queue_of(redis_client, "lock:a"))
        first.release()
        eventually(lambda: queue_of(redis_client, "lock:b"))
        second.release()
        held = result.result(10)

    held.check()


@pytest.mark.usefixtures("patient", "nobody_looks")
def test_each_is_had_in_the_order_of_arrival(redis_client: redis.Redis) -> None:
    held = listed(redis_client, "b").take()
    order: list[str] = []

    def take(keys: str) -> None:
        with many(redis_client, keys, blocking_timeout=20):
            order.append(keys)

    with ThreadPoolExecutor(3) as pool:
        results: list[Future[None]] = []
        for keys in ("bc", "bd", "ab"):
            results.append(pool.submit(take, keys))
            eventually(lambda: len(queue_of(redis_client, "lock:b")) == len(results))
        held.release()
        for result in results:
            result.result(10)

    assert order == ["bc", "bd", "ab"]


def crossing(redis_client: redis.Redis, limit: float) -> list[bool]:
    """Have two wait for what the other would hold first, if they took keys as given."""
    first, second = listed(redis_client, "a").take(), listed(redis_client, "b").take()

    def take(keys: str) -> bool:
        lock = many(redis_client, keys, blocking_timeout=limit)
        is_taken = lock.acquire()
        if is_taken:
            lock.release()
        return is_taken

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(take, "ab"), pool.submit(take, "ba")]
        queues = ("lock:a", "lock:b")
        eventually(lambda: sum(len(queue_of(redis_client, name)) for name in queues) == 2)
        first.release()
        eventually(lambda: queue_of(redis_client, "lock:b"))
        second.release()
        return [result.result(20) for result in results]


def test_callers_that_give_the_keys_in_opposite_order_do_not_wait_for_each_other(
    redis_client: redis.Redis,
) -> None:
    started = time.monotonic()

    assert crossing(redis_client, 15) == [True, True]

    assert time.monotonic() - started < 10


def test_without_the_order_they_would_wait_for_each_other(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_given(monkeypatch)

    assert False in crossing(redis_client, 0.2)


def test_what_is_held_early_is_kept_while_the_rest_is_waited_for(
    redis_client: redis.Redis, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(redis_client, "b", timeout=60).acquire()
    slept = fake_time.slept

    with pytest.raises(LockBusy):
        many(redis_client, "ab", timeout=6).take(20)

    # Its lease is 6 s: it is asked for again every third of that.
    assert slept[:-1] == pytest.approx([2] * (len(slept) - 1))
    assert len(slept) == 10


def test_nothing_that_is_held_is_asked_for_more_rarely(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    listed(redis_client, "a", timeout=300).acquire()

    with pytest.raises(LockBusy):
        many(redis_client, "ab", timeout=6).take(50)

    first, second, *_ = fake_time.slept
    assert 22 < first <= 25
    assert 22 < second <= 25


def test_all_have_a_whole_lease_when_the_last_was_waited_for(redis_client: redis.Redis) -> None:
    busy = listed(redis_client, "b", timeout=0.2).take()

    held = many(redis_client, "ab", timeout=20).take(10)

    assert busy.lost
    assert 16 < held.remaining() <= 20
    assert redis_client.pttl("lock:a") > 19_000
    assert held["a"].fence < held["b"].fence


def is_had_by_somebody_else_meanwhile(client: redis.Redis) -> bool:
    """Whether who wants the first has it from one who waits for more than its lease."""
    busy, other = listed(client, "b").take(), listed(client, "a")
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(many(client, "ab", timeout=0.6).take, 10)
        eventually(lambda: held_names(client) == "ab")
        is_had = other.acquire(blocking_timeout=1)
        if is_had:
            other.release()
        busy.release()
        for held in result.result(20).parts:
            held.check()
    return is_had


@pytest.mark.real
def test_what_is_held_early_outlives_its_lease(redis_client: redis.Redis) -> None:
    assert not is_had_by_somebody_else_meanwhile(redis_client)


@pytest.mark.real
def test_without_asking_again_it_would_not(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiAttempt, "longest_sleep", 20)

    assert is_had_by_somebody_else_meanwhile(redis_client)


def test_taken_in_turn_what_was_used_up_is_made_whole_in_the_end(
    redis_client: redis.Redis,
) -> None:
    listed(redis_client, "b", timeout=0.4, protocol="timestamp").acquire()

    held = many(redis_client, "ab", timeout=0.7, protocol="timestamp").take(10)

    assert held["a"].remaining() > 0.35


def test_taken_in_turn_what_is_over_by_then_is_taken_anew(redis_client: redis.Redis) -> None:
    listed(redis_client, "b", timeout=0.4, protocol="timestamp").acquire()

    held = many(redis_client, "ab", timeout=0.3, protocol="timestamp").take(10)

    held.check()


def asked(attempt: MultiAttempt, *, waits: bool) -> list[LockHandle] | replies.Busy:
    """Ask once for the locks of ``attempt``, in the calling thread."""
    return run(attempt.ask(BLOCKING, waits=waits))


def lose_the_first(turn: MultiAttempt, client: redis.Redis) -> RedisLock:
    """Have ``lock:a``, which ``turn`` holds, be somebody else's."""
    client.delete("lock:a")
    other = listed(client, "a")
    assert other.acquire(blocking=False)
    return other


def test_who_finds_an_earlier_one_lost_gives_up_the_later_ones_before_it_waits(
    redis_client: redis.Redis,
) -> None:
    busy = listed(redis_client, "c").take()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "abc"])
    asked(turn, waits=True)
    assert held_names(redis_client) == "abc"
    lose_the_first(turn, redis_client)

    # The first answer is that its token is done with.
    asked(turn, waits=True)
    asked(turn, waits=True)

    assert held_names(redis_client) == "ac"
    assert queue_of(redis_client, "lock:c") == []
    assert len(queue_of(redis_client, "lock:a")) == 1
    busy.release()


def test_who_was_not_answered_gives_up_later_ones_that_may_have_been_granted(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listed(redis_client, "b").take()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "abc"])
    assert isinstance(asked(turn, waits=True), replies.Busy)
    turn.awaited.grace = FailoverGrace(
        SimpleNamespace(connection_pool=SimpleNamespace(sentinel_manager=object()))
    )
    first.release()
    error = grant_and_fail(turn, monkeypatch)
    assert held_names(redis_client) == "abc"
    turn.retry_delay(error, None)
    redis_client.delete("lock:b")
    listed(redis_client, "b").acquire(blocking=False)

    asked(turn, waits=True)

    assert held_names(redis_client) == "ab"


def grant_and_fail(turn: MultiAttempt, monkeypatch: pytest.MonkeyPatch) -> LockUnavailable:
    """Have the reply to what ``turn`` asks be lost; return what it is told."""

    call: Any = execute.call

    async def cut(self: object, *arguments: Any, **options: Any) -> Any:
        await call(self, *arguments)
        raise LockUnavailable("cut", cause="unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(execute, "call", cut)
        with pytest.raises(LockUnavailable) as caught:
            asked(turn, waits=True)
    return caught.value


def test_who_lost_an_earlier_one_has_all_in_the_end(redis_client: redis.Redis) -> None:
    busy = listed(redis_client, "b").take()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "ab"])
    asked(turn, waits=True)
    other = lose_the_first(turn, redis_client)
    asked(turn, waits=True)

    other.release()
    busy.release()
    held = asked(turn, waits=True)

    assert isinstance(held, list)
    for one in held:
        one.check()


def test_a_grant_that_took_longer_than_its_lease_is_given_back(
    redis_client: redis.Redis, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "ab"])
    call: Any = execute.call

    async def late(*arguments: Any, **options: Any) -> Any:
        reply = await call(*arguments, **options)
        fake_time.now += 31
        return reply

    monkeypatch.setattr(execute, "call", late)

    assert not isinstance(asked(turn, waits=True), list)
    assert held_names(redis_client) == ""


def test_each_waiter_of_what_is_given_up_is_looked_after(
    redis_client: redis.Redis, nobody_looks: None
) -> None:
    own = listed(redis_client, "a").take()
    busy = listed(redis_client, "b").take()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "ab"])
    asked(turn, waits=True)
    own.release()
    asked(turn, waits=True)
    other = listed(redis_client, "a").attempt()
    ask(other, waits=True)

    asked(turn, waits=False)

    assert redis_client.get("lock:a") == f"baton:{other.token}".encode()
    assert [look.head for look in watchdog.WATCHDOG.handoff_checks()] == [other.token]
    busy.release()


def test_an_operator_who_takes_one_away_meanwhile_is_waited_for_no_less(
    redis_client: redis.Redis,
) -> None:
    busy = listed(redis_client, "b").take()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "ab"])
    asked(turn, waits=True)
    redis_client.delete("lock:a")
    redis_client.set(f"{{lock:a}}:gone:{turn.attempts[0].token}", '{"by": "joe"}', px=60_000)

    answer = asked(turn, waits=True)
    busy.release()

    assert not isinstance(answer, list)
    assert turn.asks_again()
    assert isinstance(asked(turn, waits=True), list)


def test_who_does_not_wait_is_told_who_has_it_although_the_first_answer_was_lost(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(redis_client, "b", label="view pay").acquire()
    ask = MultiAttempt.ask

    async def twice(self: MultiAttempt, io: Backend, *, waits: bool, **limits: Any) -> Any:
        monkeypatch.undo()
        called(self.attempts[0].target, self.request(waits=waits))
        return await ask(self, io, waits=waits, **limits)

    monkeypatch.setattr(MultiAttempt, "ask", twice)

    with pytest.raises(LockBusy) as caught:
        many(redis_client, "ab").take(0)

    assert caught.value.key == "b"
    assert caught.value.holder


def test_one_key_is_taken_by_its_own_script(redis_client: redis.Redis) -> None:
    request = listed(redis_client, "a").attempt().request(waits=False)

    assert request.script is scripts.ACQUIRE


@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_first_copy_asked_for_beyond_what_a_second_is_told_is_given_up(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    listed(redis_client, "c").acquire()
    turn = MultiAttempt([listed(redis_client, key).attempt() for key in "abc"])
    send(redis_client, turn.request(waits=True))
    redis_client.delete("lock:b")
    listed(redis_client, "b").acquire()

    call: Any = execute.call

    async def again(*args: Any, repeated: Callable[[], None] | None = None, **limits: Any) -> Any:
        if is_known and repeated:
            repeated()
        return await call(*args, **limits)

    monkeypatch.setattr(execute, "call", again)
    # The first answer is that the token is done with that has lost ``b``.
    asked(turn, waits=True)
    asked(turn, waits=True)

    # Not knowing of the first copy, he would stand in two queues.
    assert bool(queue_of(redis_client, "lock:c")) is not is_known
    assert queue_of(redis_client, "lock:b")
