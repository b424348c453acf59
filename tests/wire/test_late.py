"""Requests that arrive twice, or late: the scripts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.locks import text
from tests.wire.running import LEASE, RECORD, SLICE, ask, box, let_go, queue, run, take

if TYPE_CHECKING:
    import redis

TOKENS = ("w1", "read:w1", "permit:2:w1")
ways = pytest.mark.parametrize("how", ["repeat", "doubt", "force"])
tokens = pytest.mark.parametrize("token", TOKENS)
# A request that one who has, or had, the lock, or waits for it, may have sent.
REQUESTS: dict[str, tuple[str, ...]] = {
    "ask": ("acquire", str(LEASE), RECORD, "0", ""),
    "ask and wait": ("acquire", str(LEASE), RECORD, str(SLICE), "BOX"),
    "ask for several": ("several", str(LEASE), RECORD, "0", ""),
    "ask for several and wait": ("several", str(LEASE), RECORD, str(SLICE), "BOX"),
    "release": ("release", ""),
    "release again": ("release", "repeat"),
    "keep": ("release", "", "60000"),
    "cancel": ("release", "cancel"),
    "cancel in doubt": ("release", "doubt"),
    "renew": ("renew", "60000"),
    "check": ("renew", "-1"),
    "look": ("look",),
    "force": ("force", '{"by":"joe"}'),
    "ask to stop": ("stop", '{"by":"joe"}'),
}


def send(client: redis.Redis, name: str, token: str) -> Any:
    script, *args = REQUESTS[name]
    args = [box(token) if one == "BOX" else one for one in args]
    return run(client, script, token, *args)


def held(client: redis.Redis) -> Any:
    """Return who has the lock, as who, and who waits; not for how long."""
    return (
        client.get("lock:a"),
        client.get("{lock:a}:meta"),
        client.zrange("{lock:a}:shares", 0, -1),
        client.hgetall("{lock:a}:holders"),
        client.zrange("{lock:a}:waiters", 0, -1),
    )


@tokens
def test_what_is_asked_for_twice_is_had_once_with_one_fence(
    redis_client: redis.Redis, token: str
) -> None:
    fence = take(redis_client, token)
    run(redis_client, "renew", token, "60000")
    before = held(redis_client)

    assert take(redis_client, token, lease=1_000) == fence

    assert held(redis_client) == before
    assert redis_client.pttl("lock:a") > 50_000
    # So it is by one who waits.
    (reply,) = queue(redis_client, token)
    assert (reply[0], int(reply[1])) == (b"OK", fence)


@tokens
@ways
def test_nothing_of_a_token_that_is_done_with_changes_who_has_the_lock(
    redis_client: redis.Redis, token: str, how: str
) -> None:
    for name in REQUESTS:
        redis_client.flushall()
        take(redis_client, token)
        let_go(redis_client, token, how)
        take(redis_client, f"{token[:-2]}other")
        queue(redis_client, "waiter")
        before, ends = held(redis_client), redis_client.pttl("lock:a")

        send(redis_client, name, token)

        assert held(redis_client) == before, name
        assert ends - 5_000 < redis_client.pttl("lock:a") <= ends, name


@tokens
@ways
def test_a_token_that_is_done_with_takes_no_lock_and_no_place(
    redis_client: redis.Redis, token: str, how: str
) -> None:
    for name in (name for name in REQUESTS if name.startswith("ask")):
        redis_client.flushall()
        take(redis_client, token)
        let_go(redis_client, token, how)

        send(redis_client, name, token)

        left = redis_client.exists("lock:a", "{lock:a}:waiters", "{lock:a}:waiting")
        assert left == 0, name


def test_no_copy_frees_what_is_kept_or_keeps_it_for_longer(redis_client: redis.Redis) -> None:
    for name in REQUESTS:
        redis_client.flushall()
        take(redis_client, "w1")
        run(redis_client, "release", "w1", "", "5000")
        before, ends = held(redis_client), redis_client.pttl("lock:a")

        send(redis_client, name, "w1")

        assert held(redis_client)[:2] == before[:2], name
        assert ends - 1_000 < redis_client.pttl("lock:a") <= ends, name


def test_a_release_that_comes_when_min_hold_is_over_keeps_nothing(
    redis_client: redis.Redis,
) -> None:
    # As where the time has passed; and where the server's clock has stepped back.
    for change, is_kept in ((-10_000_000, False), (3_600_000_000, True)):
        fence = take(redis_client, "w1")
        redis_client.set("{lock:a}:meta", f"{fence + change} w1 {RECORD}", keepttl=True)

        run(redis_client, "release", "w1", "", "5000")

        assert redis_client.pttl("lock:a") <= 5_000
        assert bool(redis_client.exists("lock:a")) is is_kept
        redis_client.delete("lock:a")


@tokens
def test_who_was_forced_out_hears_of_it_though_a_copy_of_what_took_the_lock_came_since(
    redis_client: redis.Redis, token: str
) -> None:
    take(redis_client, token)
    let_go(redis_client, token, "force")
    assert ask(redis_client, token)[0] == b"GONE"
    take(redis_client, "other")

    for name in ("check", "renew", "release"):
        word, mark, *_ = send(redis_client, name, token)
        assert (word, text(mark)) == (b"LOST", '{"by":"ann"}')


@tokens
def test_of_what_was_lost_to_another_nobody_is_said_to_have_forced_it(
    redis_client: redis.Redis, token: str
) -> None:
    take(redis_client, token)
    redis_client.set("lock:a", "another program's", px=LEASE)
    let_go(redis_client, "another program's", "force")

    assert send(redis_client, "release again", token)[:2] == [b"LOST", None]


def test_several_that_were_given_up_in_doubt_are_taken_by_no_copy(
    redis_client: redis.Redis,
) -> None:
    at = ("{s}a", "{s}:{s}a:meta", "{s}b", "{s}:{s}b:meta")
    request = ("w1", str(LEASE), RECORD, str(SLICE), "box")
    run(redis_client, "several", *request, at=at)
    for first in (0, 2):
        run(redis_client, "release", "w1", "doubt", at=at[first : first + 2])

    assert run(redis_client, "several", *request, at=at) == [[b"GONE"]]

    assert not redis_client.exists("{s}a", "{s}b", "{s}:{s}a:waiters", "{s}:{s}b:waiters")
