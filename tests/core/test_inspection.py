from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import Holder, Inspector, State
from tests.core.helpers import INDEX, PREFIX, ask, let_lapse, listed, meet
from tests.core.queueing import waiters


def test_a_held_lock_is_told_in_full(redis_client: redis.Redis, inspector: Inspector) -> None:
    held = listed(redis_client, "a", label="view pay", user="joe", note="by hand").take()

    info = inspector.get("lock:a")

    assert info.state is State.HELD
    assert (info.key, info.name, info.kind) == ("a", "lock:a", "string")
    assert info.holder is not None
    assert str(info.holder) == f"joe@{socket.gethostname()}:{os.getpid()} (view pay; by hand)"
    assert info.fence == held.fence
    assert info.remaining == pytest.approx(30, abs=1)
    assert info.held_for == pytest.approx(0, abs=1)
    assert info.waiting == 0
    assert len(info.fingerprint) == 32


def test_a_lock_tells_how_many_wait_for_it(redis_client: redis.Redis, inspector: Inspector) -> None:
    listed(redis_client, "a").take()
    for _ in range(3):
        ask(listed(redis_client, "a").attempt(), waits=True)

    assert inspector.get("lock:a").waiting == 3


def test_waiters_that_ask_no_more_are_not_counted(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a").take()
    killed, _ = waiters(redis_client, 2)
    let_lapse(redis_client, killed.token)

    assert inspector.get("lock:a").waiting == 1


def test_a_free_lock_is_free(redis_client: redis.Redis, inspector: Inspector) -> None:
    with listed(redis_client, "a"):
        pass

    info = inspector.get("lock:a")

    assert info.state is State.FREE
    assert (info.holder, info.remaining, info.held_for, info.fence) == (None,) * 4
    assert info.fingerprint == ""


def test_a_lock_of_another_program_is_foreign(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    with listed(redis_client, "a"):
        pass
    redis_client.set("lock:a", "somebody", px=20_000)

    info = inspector.get("lock:a")

    assert info.state is State.FOREIGN
    assert (info.holder, info.held_for, info.fence) == (None,) * 3
    assert info.remaining == pytest.approx(20, abs=1)
    assert info.fingerprint


def test_a_lock_without_a_lease_never_expires(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.set("lock:a", "somebody")

    info = inspector.get("lock:a")

    assert info.state is State.NEVER_EXPIRES
    assert info.remaining is None
    assert info.fingerprint


def test_our_own_lock_that_was_made_endless_is_told_with_its_holder(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    listed(redis_client, "a", label="view pay").take()
    redis_client.persist("lock:a")

    info = inspector.get("lock:a")

    assert info.state is State.NEVER_EXPIRES
    assert info.holder is not None
    assert info.holder.label == "view pay"


def test_a_name_that_holds_something_else_is_no_lock(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    redis_client.lpush("lock:a", "x")

    info = inspector.get("lock:a")

    assert info.state is State.NO_LOCK
    assert info.kind == "list"
    assert info.fingerprint == ""


@pytest.mark.parametrize("decode", [False, True])
def test_a_fingerprint_is_the_same_for_every_client(server: Any, decode: bool) -> None:
    held = listed(server.client(), "a").take()

    seen = Inspector(server.client(decode_responses=decode), PREFIX).get("lock:a")

    assert seen.fingerprint == Inspector(server.client(), PREFIX).get("lock:a").fingerprint
    assert held.token not in seen.fingerprint
    assert held.token not in repr(seen)


def test_a_fingerprint_changes_with_the_holder(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    seen = set()
    for _ in range(3):
        with listed(redis_client, "a"):
            seen.add(inspector.get("lock:a").fingerprint)

    assert len(seen) == 3


@pytest.mark.parametrize("look", ["get", "find"])
def test_bytes_that_are_no_text_are_a_clear_error_for_a_client_that_decodes(
    server: Any, look: str
) -> None:
    server.client().set("lock:a", b"\xff\xfe", px=20_000)
    server.client().set(b"lock:\xff", "x")
    inspector = Inspector(server.client(decode_responses=True), PREFIX)

    with pytest.raises(LockUnavailable, match="decode_responses") as caught:
        inspector.get("lock:a") if look == "get" else inspector.find(everything=True)

    assert caught.value.cause == "server"


def test_a_client_that_decodes_still_finds_a_lock_busy_whose_token_is_no_text(server: Any) -> None:
    server.client().set("lock:a", b"\xff\xfe", px=20_000)

    with pytest.raises(LockBusy):
        listed(server.client(decode_responses=True), "a").take(0)


@pytest.mark.parametrize("companion", ["meta", "waiters", "alive"])
def test_a_companion_key_of_another_type_does_not_hide_the_lock(
    redis_client: redis.Redis, inspector: Inspector, companion: str
) -> None:
    listed(redis_client, "a").take()
    redis_client.delete("{lock:a}:" + companion)
    redis_client.sadd("{lock:a}:" + companion, "no hash, no sorted set, no string")

    info = inspector.get("lock:a")

    assert (info.remaining is not None, info.waiting) == (True, 0)


def test_the_index_forgets_a_foreign_lock_that_never_expires_some_day(
    redis_client: redis.Redis,
) -> None:
    redis_client.set("lock:a", "somebody")

    meet(redis_client, "a")

    score: Any = redis_client.zscore(INDEX, "lock:a")
    assert score < float("inf")


@pytest.mark.parametrize("fence", ["9" * 20, "9" * 400, "9" * 5000], ids=len)
def test_a_number_that_no_fence_can_be_is_no_fence(
    redis_client: redis.Redis, inspector: Inspector, fence: str
) -> None:
    held = listed(redis_client, "a").take()
    redis_client.set("{lock:a}:meta", f'{fence} {len(held.token)} {held.token} {{"host":"web1"}}')

    info = inspector.get("lock:a")

    assert (info.fence, info.held_for, info.holder) == (None, None, Holder(host="web1"))


@pytest.mark.parametrize("fence", ["9" * 20, "9" * 400, "9" * 5000], ids=len)
def test_one_who_shares_a_lock_is_shown_whatever_his_fence_is(
    redis_client: redis.Redis, inspector: Inspector, fence: str
) -> None:
    held = listed(redis_client, "a", shared=True).take()
    redis_client.hset("{lock:a}:holders", held.token, f'{fence} {{"host":"web1"}}')

    (share,) = inspector.get("lock:a").shares

    assert (share.fence, share.holder) == (0, Holder(host="web1"))


def test_a_wait_without_a_time_is_told_without_it(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a").take()
    redis_client.set(f"{{lock:a}}:waits:{held.token}", "1 6 w lock:b {}")
    redis_client.zadd("{lock:b}:waiters", {"w": 1})
    redis_client.hset("{lock:b}:alive", "w", str(10**15))

    waits_for = inspector.get("lock:a").waits_for

    assert waits_for is not None
    assert (waits_for.key, waits_for.waited) == ("b", None)
