"""The thread that holds a lock gets it again, and lets it go with the last handle."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.locks import owner
from django_setnx_lock.core.locks.batch import release_each, take_each
from tests.core.helpers import in_thread, value_of
from tests.processes import each_fork

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle


@pytest.fixture
def mine(redis_client: redis.Redis) -> Callable[..., RedisLock]:
    """Give what makes a reentrant lock that does not wait."""

    def mine(name: str = "lock:a", **options: Any) -> RedisLock:
        given = {"reentrant": True, "blocking": False, **options}
        return RedisLock(redis_client, name, **given)

    return mine


def test_two_objects_share_one_lock(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    with mine() as outer, mine() as inner:
        assert inner is not outer
        assert (inner.token, inner.fence) == (outer.token, outer.fence)
        assert value_of(redis_client) == outer.token


def test_without_reentrant_a_caller_excludes_itself(mine: Callable[..., RedisLock]) -> None:
    with mine(), pytest.raises(LockBusy):
        mine(reentrant=False).take()


def test_a_lock_that_was_not_taken_as_reentrant_is_not_had_again(
    mine: Callable[..., RedisLock],
) -> None:
    with mine(reentrant=False), pytest.raises(LockBusy):
        mine().take()


def test_one_object_is_entered_twice(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    lock = mine()

    with lock:
        with lock:
            pass
        assert redis_client.exists("lock:a")

    assert not redis_client.exists("lock:a")


def test_acquire_and_release_count(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    lock = mine()
    taken = [lock.acquire(), lock.acquire(), lock.acquire()]

    lock.release()
    lock.release()
    before = redis_client.exists("lock:a")
    lock.release()

    assert taken == [True] * 3
    assert (before, redis_client.exists("lock:a")) == (1, 0)
    with pytest.raises(LockError, match="not held here"):
        lock.release()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_whichever_is_released_last_lets_the_lock_go(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], order: tuple[int, ...]
) -> None:
    handles = [mine().take() for _ in range(3)]
    stood = []

    for number in order:
        stood.append(redis_client.exists("lock:a"))
        handles[number].release()

    assert stood == [1, 1, 1]
    assert not redis_client.exists("lock:a")


def test_after_the_outer_is_released_the_inner_can_be_had_again(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer, inner = mine().take(), mine().take()
    outer.release()

    third = mine().take()
    inner.release()
    third.check()
    third.release()

    assert not redis_client.exists("lock:a")


@pytest.mark.parametrize("which", [0, 1])
def test_releasing_one_handle_twice_never_frees_anothers(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], which: int
) -> None:
    handles = [mine().take() for _ in range(2)]
    handles[which].release()

    with pytest.raises(LockError, match="released already"):
        handles[which].release()

    handles[1 - which].check()
    assert redis_client.exists("lock:a")


def test_a_released_share_answers_as_any_released_handle(mine: Callable[..., RedisLock]) -> None:
    outer, inner = mine().take(), mine().take()

    inner.release()

    assert (inner.released, inner.lost, inner.remaining(), inner.owned()) == (True, False, 0, False)
    with pytest.raises(LockError, match="it was released"):
        inner.check()
    assert outer.owned()


def test_another_thread_does_not_share(mine: Callable[..., RedisLock]) -> None:
    lock = mine()

    with lock:
        assert in_thread(lock.acquire) is False
        assert in_thread(mine().acquire) is False


def test_a_thread_with_the_id_of_the_holder_that_has_ended_does_not_share(
    mine: Callable[..., RedisLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[LockHandle, int]] = []
    got: list[bool] = []

    def take() -> None:
        kept.append((mine(timeout=20).take(), threading.get_ident()))

    def again() -> None:
        if threading.get_ident() == kept[0][1]:
            got.append(mine().acquire())

    def ended(*works: Callable[[], None]) -> None:
        # All are there at once: whatever else goes on, one of them has the id that is free.
        everybody = threading.Barrier(len(works))
        threads = [
            threading.Thread(target=lambda work=work: (everybody.wait(10), work()))
            for work in works
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    def later() -> list[bool]:
        """Return what threads with the id of one that took the lock and ended get."""
        got.clear()
        # Some other thread may have come by the id meanwhile.
        for _ in range(20):
            ended(take)
            ended(*[again] * 20)
            kept.pop()[0].release()
            if got:
                break
        return got

    assert set(later()) == {False}

    # The control: keyed by the id, a thread that comes later has it again.
    owners: dict[int, owner.Owner] = {}
    monkeypatch.setattr(
        owner, "current", lambda: owners.setdefault(threading.get_ident(), owner.Owner())
    )
    assert True in later()


def test_the_same_name_elsewhere_is_another_lock(
    mine: Callable[..., RedisLock], server: Any
) -> None:
    elsewhere = RedisLock(server.client(db=1), "lock:a", reentrant=True)

    with mine() as here, elsewhere as there, mine() as again, elsewhere as there_again:
        assert again.token == here.token
        assert there_again.token == there.token
        assert here.token != there.token


def test_another_client_of_the_same_database_shares(
    mine: Callable[..., RedisLock], server: Any
) -> None:
    other = RedisLock(server.client(), "lock:a", reentrant=True, blocking=False)

    with mine() as outer, other as inner:
        assert inner.token == outer.token


def test_a_lock_taken_with_a_chosen_token_is_had_again_by_that_token(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    lock = mine()
    lock.acquire(token="chosen")

    with mine() as inner:
        inner.check()
        assert inner.token == "chosen"
    assert value_of(redis_client) == "chosen"


def test_who_chooses_a_token_takes_the_lock_anew(mine: Callable[..., RedisLock]) -> None:
    with mine():
        assert mine().acquire(token="chosen") is False


def test_a_lost_lock_is_not_had_again(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer = mine().take()
    redis_client.set("lock:a", "somebody", px=20_000)
    assert not outer.owned()

    with pytest.raises(LockBusy):
        mine().take()


def test_a_lock_whose_lease_is_over_is_taken_anew(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], fake_time: Any
) -> None:
    outer = mine(timeout=5).take()
    redis_client.delete("lock:a")
    fake_time.now += 6

    with mine() as anew:
        assert anew.fence > outer.fence


def test_a_loss_is_everybodys(redis_client: redis.Redis, mine: Callable[..., RedisLock]) -> None:
    outer, inner = mine().take(), mine().take()
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        inner.check()

    assert (outer.lost, inner.lost) == (True, True)
    for held in (inner, outer):
        with pytest.raises(LockLost):
            held.release()


def test_each_share_is_told_of_the_loss_once(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    told: list[LockHandle] = []
    outer, inner, over = [mine(on_lost=told.append).take() for _ in range(3)]
    over.release()
    redis_client.delete("lock:a")

    for held in (inner, outer):
        assert not held.owned()

    assert sorted(told, key=lambda one: one.grant.number) == [outer, inner]


def test_leaving_the_inner_block_of_a_lost_lock_raises(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer = mine().take()

    def work() -> None:
        with mine():
            redis_client.delete("lock:a")
            assert not outer.owned()

    with pytest.raises(LockLost):
        work()


def test_a_share_whose_lease_is_over_asks_redis_as_the_last_does(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], fake_time: Any
) -> None:
    outer, inner = mine(timeout=5).take(), mine(timeout=5).take()
    redis_client.set("lock:a", "somebody")
    fake_time.now += 6

    for held in (inner, outer):
        with pytest.raises(LockLost):
            held.release()


def test_extending_a_share_extends_the_lock(mine: Callable[..., RedisLock]) -> None:
    outer, inner = mine(timeout=10).take(), mine(timeout=10).take()

    inner.extend(20)

    assert 26 < outer.remaining() <= 30


def test_what_a_longer_timeout_asks_for_is_there(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer = mine(timeout=10).take()

    inner = mine(timeout=60).take()

    assert (outer.timeout, inner.timeout) == (10, 60)
    assert outer.remaining() > 59
    assert redis_client.pttl("lock:a") > 59_000


def test_a_short_rest_of_a_lease_is_made_whole(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], fake_time: Any
) -> None:
    outer = mine(timeout=30).take()
    fake_time.now += 16

    mine(timeout=30).take()

    assert outer.remaining() == 30


def test_max_hold_of_the_outer_binds_the_inner(
    mine: Callable[..., RedisLock], fake_time: Any
) -> None:
    outer = mine(timeout=5, max_hold=10).take()

    inner = mine(timeout=60).take()

    assert inner.timeout == pytest.approx(10)
    assert outer.remaining() <= 10


def test_a_lock_that_is_lost_at_that_moment_is_waited_for(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    told: list[LockHandle] = []
    outer = mine(timeout=5, on_lost=told.append).take()
    redis_client.delete("lock:a")

    anew = mine(timeout=60, on_lost=told.append).take()

    assert outer.lost
    assert told == [outer]
    assert anew.fence > outer.fence


def test_what_was_handed_over_is_not_had_again(mine: Callable[..., RedisLock]) -> None:
    outer = mine().take()
    outer.handover()

    with pytest.raises(LockBusy):
        mine().take()
    outer.release()


def test_a_share_that_is_handed_over_is_counted_on(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer, inner = mine().take(), mine().take()
    inner.handover()

    outer.release()

    assert redis_client.exists("lock:a")
    in_thread(inner.release)
    assert not redis_client.exists("lock:a")


def test_a_share_thrown_away_counts_no_longer(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    outer = mine().take()
    mine().take()
    gc.collect()

    outer.release()

    assert not redis_client.exists("lock:a")


def test_a_lock_thrown_away_is_not_had_again(mine: Callable[..., RedisLock]) -> None:
    # The fake keeps the frames of whoever was first to send a script.
    mine("lock:b").take().release()
    mine().take()
    gc.collect()

    assert mine().acquire() is False


@each_fork
def test_a_fork_shares_nothing(mine: Callable[..., RedisLock], fork: Callable[[], int]) -> None:
    held = mine().take()
    assert held.grant.handles == [held]
    child = fork()
    if not child:
        status = 1
        try:
            lock = mine()
            status = 0 if lock.again() is None else 2
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held.release()


def test_a_batch_has_again_what_is_held(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    with mine("lock:b") as outer:
        taken = take_each([mine("lock:a"), mine("lock:b")])
        held = [one.held for one in taken if one.held]

        assert [one.name for one in held] == ["lock:a", "lock:b"]
        assert held[1].token == outer.token
        assert release_each(held) == []
        assert (redis_client.exists("lock:a"), redis_client.exists("lock:b")) == (0, 1)
        outer.check()


@pytest.mark.parametrize("reentrant", [None, 1, "yes"])
def test_reentrant_is_true_or_false(redis_client: redis.Redis, reentrant: Any) -> None:
    with pytest.raises(TypeError, match="reentrant is True or False"):
        RedisLock(redis_client, "lock:a", reentrant=reentrant)


def test_there_is_one_holder_record(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    with mine(label="outer"):
        keys = set(redis_client.keys("*"))
        with mine(label="inner"):
            assert set(redis_client.keys("*")) == keys
            with pytest.raises(LockBusy) as caught:
                in_thread(mine().take)

    assert caught.value.holder is not None
    assert caught.value.holder.label == "outer"


def test_no_request_is_sent_for_a_share(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(redis_client, "lock:a", reentrant=True)
    sent: list[object] = []
    real: Any = execute.call

    async def call(*args: Any, **options: Any) -> Any:
        sent.append(args)
        return await real(*args, **options)

    monkeypatch.setattr(execute, "call", call)

    with lock:
        taken = len(sent)
        with lock, lock:
            pass
        assert len(sent) == taken == 1
    assert len(sent) == 2
