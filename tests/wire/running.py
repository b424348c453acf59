"""Runs the scripts as callers do that ask when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import Inspector
from django_setnx_lock.core.protocol.requests import Script
from tests.support.locks import PREFIX, text

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockInfo

INDEX = "lock:index"
RECORD = '{"pid":1,"label":"Grüße, \\"a\\" b\\n"}'
# The keys of a lock that stand beside its name.
BESIDE = ("meta", "waiters", "waiting", "shares", "holders", "gone", "forced")
# A token of each sort of lock.
TOKENS = ("w1", "read:w1", "permit:2:w1")
# The longest sleep of a waiter, and how long the lock waits for one that it was given to, in ms.
SLICE, CLAIM = 25_000, 500
LEASE = 30_000


def keys(name: str = "lock:a") -> tuple[str, str, str]:
    return name, f"{{{name}}}:meta", INDEX


def box(token: str, name: str = "lock:a") -> str:
    return f"{{{name}}}:wake:{token}"


def tokens_in(reply: bytes | None) -> list[str]:
    return (text(reply) or "").split()


class Wire:
    """Asks for the lock ``name`` at the server of ``client``."""

    def __init__(self, client: redis.Redis, name: str = "lock:a") -> None:
        self.client = client
        self.name = name

    def run(self, script: str, *args: str, at: tuple[str, ...] = ()) -> Any:
        """Return the reply in full: a number is the short one of what is mostly asked."""
        at = at or keys(self.name)
        reply = self.client.eval(Script(script).source, len(at), *at, *args)
        if script == "acquire" and isinstance(reply, int):
            return [b"OK", reply] if reply > 0 else [b"OK", -reply, b"listed", None]
        return [b"OK"] if script == "release" and reply == 1 else reply

    def ask(self, token: str, lease: int = LEASE) -> Any:
        """Ask for the lock, and do not wait."""
        return self.run("acquire", token, str(lease), RECORD, "0", "")

    def take(self, who: str = "holder", lease: int = LEASE) -> int:
        """Take the lock; return the fence."""
        word, fence, *_ = self.ask(who, lease)
        assert word == b"OK"
        return int(fence)

    def queue(self, *tokens: str, lease: int = LEASE, is_asleep: bool = True) -> list[Any]:
        """Have each ask and wait; return the answers."""
        replies = []
        for token in tokens:
            mail = box(token, self.name)
            replies.append(self.run("acquire", token, str(lease), RECORD, str(SLICE), mail))
            if is_asleep:
                self.run("listen", at=(mail, f"{mail}:awake"))
        return replies

    def let_go(self, who: str = "holder", how: str = "") -> list[str]:
        """Release, cancel or force; return those it was given to, or who were roused."""
        force = ("force", who, '{"by":"ann"}')
        reply = self.run(*force) if how == "force" else self.run("release", who, how)
        return tokens_in(reply[-1] if len(reply) > 1 else None)

    def look(self, *tokens: str) -> list[str]:
        """Look after those; return who is to be looked at next."""
        return tokens_in(self.run("look", " ".join(tokens)))

    def woken(self, *tokens: str) -> list[str]:
        """Return those of ``tokens`` for whom mail lies at their mailboxes."""
        return [token for token in tokens if self.client.lpos(box(token), token) is not None]

    def fetch(self, token: str) -> None:
        """Fetch the mail, as who is there does."""
        assert self.client.rpop(box(token)) == token.encode()

    def row_of(self, token: str) -> list[str]:
        """Return ALIVE-UNTIL, ASKS-AGAIN-AT, RANK, LENGTH, and MAILBOX with RECORD."""
        return (text(self.client.hget("{lock:a}:waiting", token)) or "").split(" ", 4)

    def info(self, waiters: int = 1) -> LockInfo:
        return Inspector(self.client, PREFIX).get(self.name, waiters=waiters)

    def let_lapse(self, token: str) -> None:
        """Have a waiter be one who should have asked again long ago."""
        row = " ".join(["1", *self.row_of(token)[1:]])
        self.client.hset("{lock:a}:waiting", token, row)
