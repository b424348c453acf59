"""Requests that arrive twice, or late: the scripts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.locks import text
from tests.wire.running import LEASE, RECORD, SLICE, TOKENS, Wire, box

if TYPE_CHECKING:
    import redis

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


def send(wire: Wire, name: str, token: str) -> Any:
    script, *args = REQUESTS[name]
    args = [box(token) if one == "BOX" else one for one in args]
    return wire.run(script, token, *args)


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
def test_what_is_asked_for_twice_is_had_once_with_one_fence(wire: Wire, token: str) -> None:
    fence = wire.take(token)
    wire.run("renew", token, "60000")
    before = held(wire.client)

    assert wire.take(token, lease=1_000) == fence

    assert held(wire.client) == before
    assert wire.client.pttl("lock:a") > 50_000
    # So it is by one who waits.
    (reply,) = wire.queue(token)
    assert (reply[0], int(reply[1])) == (b"OK", fence)


@tokens
@ways
def test_nothing_of_a_token_that_is_done_with_changes_who_has_the_lock(
    wire: Wire, token: str, how: str
) -> None:
    for name in REQUESTS:
        wire.client.flushall()
        wire.take(token)
        wire.let_go(token, how)
        wire.take(f"{token[:-2]}other")
        wire.queue("waiter")
        before, ends = held(wire.client), wire.client.pttl("lock:a")

        send(wire, name, token)

        assert held(wire.client) == before, name
        assert ends - 5_000 < wire.client.pttl("lock:a") <= ends, name


@tokens
@ways
def test_a_token_that_is_done_with_takes_no_lock_and_no_place(
    wire: Wire, token: str, how: str
) -> None:
    for name in (name for name in REQUESTS if name.startswith("ask")):
        wire.client.flushall()
        wire.take(token)
        wire.let_go(token, how)

        send(wire, name, token)

        left = wire.client.exists("lock:a", "{lock:a}:waiters", "{lock:a}:waiting")
        assert left == 0, name


def test_no_copy_frees_what_is_kept_or_keeps_it_for_longer(wire: Wire) -> None:
    for name in REQUESTS:
        wire.client.flushall()
        wire.take("w1")
        wire.run("release", "w1", "", "5000")
        before, ends = held(wire.client), wire.client.pttl("lock:a")

        send(wire, name, "w1")

        assert held(wire.client)[:2] == before[:2], name
        assert ends - 1_000 < wire.client.pttl("lock:a") <= ends, name


def test_a_release_that_comes_when_min_hold_is_over_keeps_nothing(wire: Wire) -> None:
    # As where the time has passed; and where the server's clock has stepped back.
    for change, is_kept in ((-10_000_000, False), (3_600_000_000, True)):
        fence = wire.take("w1")
        wire.client.set("{lock:a}:meta", f"{fence + change} w1 {RECORD}", keepttl=True)

        wire.run("release", "w1", "", "5000")

        assert wire.client.pttl("lock:a") <= 5_000
        assert bool(wire.client.exists("lock:a")) is is_kept
        wire.client.delete("lock:a")


@tokens
def test_who_was_forced_out_hears_of_it_though_a_copy_of_what_took_the_lock_came_since(
    wire: Wire, token: str
) -> None:
    wire.take(token)
    wire.let_go(token, "force")
    assert wire.ask(token)[0] == b"GONE"
    wire.take("other")

    for name in ("check", "renew", "release"):
        word, mark, *_ = send(wire, name, token)
        assert (word, text(mark)) == (b"LOST", '{"by":"ann"}')


@tokens
def test_of_what_was_lost_to_another_nobody_is_said_to_have_forced_it(
    wire: Wire, token: str
) -> None:
    wire.take(token)
    wire.client.set("lock:a", "another program's", px=LEASE)
    wire.let_go("another program's", "force")

    assert send(wire, "release again", token)[:2] == [b"LOST", None]


def test_several_that_were_given_up_in_doubt_are_taken_by_no_copy(wire: Wire) -> None:
    at = ("{s}a", "{s}:{s}a:meta", "{s}b", "{s}:{s}b:meta")
    request = ("w1", str(LEASE), RECORD, str(SLICE), "box")
    wire.run("several", *request, at=at)
    for first in (0, 2):
        wire.run("release", "w1", "doubt", at=at[first : first + 2])

    assert wire.run("several", *request, at=at) == [[b"GONE"]]

    assert not wire.client.exists("{s}a", "{s}b", "{s}:{s}a:waiters", "{s}:{s}b:waiters")
