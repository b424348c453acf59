"""Another program writes the very time that we had written, when ours was let go or taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost
from django_setnx_lock.core import Inspector, Outcome
from tests.support.locks import PREFIX, timed, value_of
from tests.wire.helpers import ask, cancel, send
from tests.wire.timestamps import ServerClock, T, asking

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle

ASKED: dict[str, Callable[[LockHandle], object]] = {
    "check": lambda held: held.check(),
    "reacquire": lambda held: held.reacquire(),
    "extend": lambda held: held.extend(5),
    "release": lambda held: held.release(),
}


@pytest.fixture(autouse=True)
def server_clock(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> ServerClock:
    return ServerClock(monkeypatch, redis_client)


def force(client: redis.Redis) -> None:
    inspector = Inspector(client, PREFIX)
    seen = inspector.get("lock:a").fingerprint
    assert inspector.force_release("lock:a", seen, by="joe") is Outcome.RELEASED


def takes_it_until(client: redis.Redis, value: str | None) -> str:
    """Have another program take the lock."""
    assert value is not None
    assert client.setnx("lock:a", value)
    return value


def forced_out(client: redis.Redis) -> tuple[LockHandle, str]:
    """Force-release a lock of seconds, which another program takes until the same one."""
    held = timed(client, "s").take(0)
    value = value_of(client)
    force(client)
    return held, takes_it_until(client, value)


@pytest.mark.parametrize("what", ASKED)
def test_who_was_forced_out_has_lost_it(redis_client: redis.Redis, what: str) -> None:
    held, value = forced_out(redis_client)

    with pytest.raises(LockLost, match="by joe"):
        ASKED[what](held)

    assert value_of(redis_client) == value


def test_a_second_copy_of_a_release_removes_nothing(redis_client: redis.Redis) -> None:
    held = timed(redis_client, "s").take(0)
    value = value_of(redis_client)
    # Carried out, but the answer is lost.
    send(redis_client, held.grant.releasing())
    takes_it_until(redis_client, value)

    held.release()

    assert held.released
    assert value_of(redis_client) == value


def test_a_second_copy_of_what_gives_it_up_removes_nothing(redis_client: redis.Redis) -> None:
    turn = asking(redis_client, "s")
    ask(turn, waits=False)
    value = value_of(redis_client)
    cancel(turn)
    takes_it_until(redis_client, value)

    cancel(turn)

    assert value_of(redis_client) == value


@pytest.mark.parametrize("how", ["release", "give up", "force"])
def test_the_other_has_it_for_as_long_as_it_may_mean(
    redis_client: redis.Redis, server_clock: ServerClock, how: str
) -> None:
    value = let_go(redis_client, how)
    # Our lease would be over, and the second that the other wrote has not come.
    server_clock.set(T + 9_700_000)

    with pytest.raises(LockBusy):
        timed(redis_client, "s").take(0)

    assert value_of(redis_client) == value


def let_go(client: redis.Redis, how: str) -> str:
    """Hold the lock for 9.5 s, but let it go, and have another program take it for 10 s."""
    turn = asking(client, "s", 9.5)
    held: Any = ask(turn, waits=False)
    value = value_of(client)
    if how == "force":
        force(client)
    elif how == "give up":
        cancel(turn)
    else:
        held.release()
    return takes_it_until(client, value)


@pytest.mark.parametrize("how", ["release", "give up", "force"])
def test_a_fence_is_remembered_though_the_end_is_not(
    redis_client: redis.Redis, server_clock: ServerClock, how: str
) -> None:
    turn = asking(redis_client, "s")
    held: Any = ask(turn, waits=False)
    {
        "release": held.release,
        "give up": lambda: cancel(turn),
        "force": lambda: force(redis_client),
    }[how]()
    server_clock.set(T - 30_000_000)

    assert timed(redis_client, "s").take(0).fence == held.fence + 1
