from __future__ import annotations

import pytest
import redis
from redis import exceptions as redis_exceptions

from django_setnx_lock import LockBusy, LockError, LockUnavailable
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.connections.execute import scan
from django_setnx_lock.core.connections.failures import translated, worth_undoing
from django_setnx_lock.core.protocol import commands
from django_setnx_lock.core.protocol.keys import lock_keys
from django_setnx_lock.core.protocol.replies import text
from tests.servers import ONCE, free_port

KEYS = lock_keys("lock:a")
ACQUIRE = commands.SETNX.acquire(KEYS, None, "t", 30_000, "{}", 0)
CHECK = commands.SETNX.check(KEYS, "t")
CAUSES = [
    (redis_exceptions.ConnectionError("Error 111 connecting"), "unreachable"),
    (redis_exceptions.ConnectionError("Connection closed by server."), "unreachable"),
    (redis_exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "unreachable"),
    (redis_exceptions.TimeoutError("Timeout reading from socket"), "timeout"),
    (redis_exceptions.ConnectionError("Too many connections"), "pool"),
    (redis_exceptions.ConnectionError("No connection available."), "pool"),
    (redis_exceptions.ReadOnlyError("You can't write against a read only replica."), "readonly"),
    (redis_exceptions.ResponseError("Error running script: -READONLY You can't"), "readonly"),
    (redis_exceptions.OutOfMemoryError("command not allowed"), "memory"),
    (redis_exceptions.ResponseError("-OOM command not allowed when used memory"), "memory"),
    (redis_exceptions.ResponseError("WRONGTYPE Operation against a key"), "wrongtype"),
    (redis_exceptions.NoPermissionError("this user has no permissions to run"), "denied"),
    (redis_exceptions.ResponseError("ACL failure in script: no permissions"), "denied"),
    (redis_exceptions.ResponseError("The user executing the script can't run this command or "
                                    "subcommand script: f_1"), "denied"),
    (redis_exceptions.AuthenticationError("invalid username-password pair"), "denied"),
    (redis_exceptions.ResponseError("NOAUTH Authentication required."), "denied"),
    (redis_exceptions.ResponseError("Protocol error: unauthenticated multibulk length"), "denied"),
    (redis_exceptions.ResponseError("MISCONF Redis is configured to save"), "server"),
    (redis_exceptions.InvalidResponse("Protocol Error"), "server"),
    (redis_exceptions.DataError("Invalid input"), "server"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "cause"), CAUSES, ids=lambda value: str(value)[:40])
def test_each_error_of_redis_has_its_cause_in_a_word(
    error: redis_exceptions.RedisError, cause: str
) -> None:
    with pytest.raises(LockUnavailable) as caught, translated("order:1"):
        raise error

    assert caught.value.cause == cause
    assert caught.value.key == "order:1"
    assert caught.value.__cause__ is error
    assert "'order:1' is unavailable" in str(caught.value)


def test_an_error_of_ours_stays_as_it_is() -> None:
    with pytest.raises(LockBusy), translated("a"):
        raise LockBusy("m")


def test_what_is_no_error_of_redis_stays_as_it_is() -> None:
    with pytest.raises(KeyboardInterrupt), translated("a"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("cause", "undone"),
    [
        ("pool", False), ("readonly", False), ("memory", False), ("wrongtype", False),
        ("denied", False), ("unreachable", True), ("timeout", True), ("server", True),
    ],
)  # fmt: skip
def test_a_refused_request_needs_no_undoing(cause: str, undone: bool) -> None:
    assert worth_undoing(LockUnavailable("m", cause=cause)) is undone


def test_a_request_that_was_interrupted_is_undone() -> None:
    assert worth_undoing(KeyboardInterrupt())
    assert worth_undoing(LockError("m"))


@pytest.fixture
def with_scripts(redis_client: redis.Redis) -> redis.Redis:
    """Give a client of a server that knows the scripts: others are carried out after the rest."""
    for request in (ACQUIRE, CHECK):
        redis_client.script_load(request.script.source)
    return redis_client


def test_many_requests_are_answered_in_order(with_scripts: redis.Redis) -> None:
    replies = run(execute.call_many(BLOCKING, with_scripts, [ACQUIRE, CHECK, ACQUIRE], ["a"] * 3))

    first, checked, again = ([text(part) for part in reply] for reply in replies)
    assert first[0] == again[0] == checked[0] == "OK"
    assert first[1] == again[1]


def test_a_flushed_script_is_sent_again_alone_and_among_many(redis_client: redis.Redis) -> None:
    run(execute.call_many(BLOCKING, redis_client, [ACQUIRE, CHECK], ["a"] * 2))

    redis_client.script_flush()
    alone = run(execute.call(BLOCKING, redis_client, CHECK, "a"))
    redis_client.script_flush()
    run(execute.call(BLOCKING, redis_client, CHECK, "a"))
    many = run(execute.call_many(BLOCKING, redis_client, [CHECK, ACQUIRE, CHECK], ["a"] * 3))

    assert [text(reply[0]) for reply in (alone, *many)] == ["OK"] * 4


def test_one_refused_request_among_many_does_not_spoil_the_others(
    with_scripts: redis.Redis,
) -> None:
    with_scripts.lpush("lock:list", "x")
    wrong = commands.SETNX.acquire(lock_keys("lock:list"), None, "t", 30_000, "{}", 0)

    replies = run(
        execute.call_many(BLOCKING, with_scripts, [ACQUIRE, wrong, CHECK], ["a", "wrong", "a"])
    )

    assert isinstance(replies[1], LockUnavailable)
    assert replies[1].cause == "wrongtype"
    assert [text(replies[at][0]) for at in (0, 2)] == ["OK", "OK"]


def test_the_error_of_one_request_among_many_shows_no_token(redis_client: redis.Redis) -> None:
    redis_client.lpush("lock:list", "x")
    wrong = commands.SETNX.acquire(lock_keys("lock:list"), None, "s3cret", 30_000, "{}", 0)

    (reply,) = run(execute.call_many(BLOCKING, redis_client, [wrong], ["wrong"]))

    assert isinstance(reply, LockUnavailable)
    assert "s3cret" not in f"{reply} {reply!r} {reply.__cause__!r} {vars(reply)}"


def test_scanning_finds_keys_of_any_type(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", "x")
    redis_client.set("other", "x")
    redis_client.hset("lock:h", "x", "y")

    found = sorted(str(text(name)) for name in scan(redis_client, "lock:*"))
    assert found == ["lock:a", "lock:h"]


def test_what_the_caller_was_handling_keeps_its_frames() -> None:
    with redis.Redis(port=free_port(), retry=ONCE) as client:
        try:
            int("x")
        except ValueError as error:
            own = error
            with pytest.raises(LockUnavailable) as caught:
                run(execute.call(BLOCKING, client, CHECK, "a"))

    chain, led_to = [], caught.value.__cause__
    while led_to is not None:
        chain.append((type(led_to), led_to.__traceback__ is None))
        led_to = led_to.__cause__ or led_to.__context__
    assert chain[0] == (redis.ConnectionError, True)
    assert chain[-1] == (ValueError, False)
    assert own.__traceback__ is not None
