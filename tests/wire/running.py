"""Runs the scripts as callers do that ask when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.protocol.requests import Script
from tests.support.locks import text

if TYPE_CHECKING:
    import redis

NAMES = (
    "acquire",
    "several",
    "release",
    "renew",
    "look",
    "listen",
    "force",
    "stop",
    "swap",
    "locked",
    "deadlock",
)
SCRIPTS = {name: Script(name) for name in NAMES}
INDEX = "lock:index"
RECORD = '{"pid":1,"label":"Grüße, \\"a\\" b\\n"}'
# The longest sleep of a waiter, and how long the lock waits for one that it was given to, in ms.
SLICE, CLAIM = 25_000, 500
LEASE = 30_000


def keys(name: str = "lock:a") -> tuple[str, str, str]:
    return name, f"{{{name}}}:meta", INDEX


def run(client: redis.Redis, script: str, *args: str, at: tuple[str, ...] = keys()) -> Any:
    """Return the reply in full: a number is the short one of what is mostly asked."""
    reply = client.eval(SCRIPTS[script].source, len(at), *at, *args)
    if script == "acquire" and isinstance(reply, int):
        return [b"OK", reply] if reply > 0 else [b"OK", -reply, b"listed", None]
    return [b"OK"] if script == "release" and reply == 1 else reply


def box(token: str) -> str:
    return f"{{lock:a}}:wake:{token}"


def ask(client: redis.Redis, token: str, lease: int = LEASE) -> Any:
    """Ask for the lock, and do not wait."""
    return run(client, "acquire", token, str(lease), RECORD, "0", "")


def take(client: redis.Redis, who: str = "holder", lease: int = LEASE) -> int:
    """Take the lock; return the fence."""
    word, fence, *_ = ask(client, who, lease)
    assert word == b"OK"
    return int(fence)


def queue(
    client: redis.Redis, *tokens: str, lease: int = LEASE, is_asleep: bool = True
) -> list[Any]:
    """Have each ask and wait; return the answers."""
    replies = []
    for token in tokens:
        waits = (str(lease), RECORD, str(SLICE), box(token))
        replies.append(run(client, "acquire", token, *waits))
        if is_asleep:
            run(client, "listen", at=(box(token), f"{box(token)}:awake"))
    return replies


def let_go(client: redis.Redis, who: str = "holder", how: str = "") -> list[str]:
    """Release, cancel or force; return those it was given to, or who were roused."""
    if how == "force":
        reply = run(client, "force", who, '{"by":"ann"}')
    else:
        reply = run(client, "release", who, how)
    return tokens_in(reply[-1] if len(reply) > 1 else None)


def look(client: redis.Redis, *tokens: str) -> list[str]:
    """Look after those; return who is to be looked at next."""
    return tokens_in(run(client, "look", " ".join(tokens)))


def tokens_in(reply: bytes | None) -> list[str]:
    return (text(reply) or "").split()


def woken(client: redis.Redis, *tokens: str) -> list[str]:
    """Return those of ``tokens`` for whom mail lies at their mailboxes."""
    return [token for token in tokens if client.lpos(box(token), token) is not None]


def fetch(client: redis.Redis, token: str) -> None:
    """Fetch the mail, as who is there does."""
    assert client.rpop(box(token)) == token.encode()


def row_of(client: redis.Redis, token: str) -> list[str]:
    """Return ALIVE-UNTIL, ASKS-AGAIN-AT, RANK, LENGTH, and MAILBOX with RECORD."""
    return (text(client.hget("{lock:a}:waiting", token)) or "").split(" ", 4)


def let_lapse(client: redis.Redis, token: str) -> None:
    """Have a waiter be one who should have asked again long ago."""
    client.hset("{lock:a}:waiting", token, " ".join(["1", *row_of(client, token)[1:]]))
