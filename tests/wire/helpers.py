"""What the tests of requests and replies share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django_setnx_lock.core.connections.backends import BLOCKING, run
from django_setnx_lock.core.protocol import replies
from django_setnx_lock.core.protocol.keys import lock_keys

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from django_setnx_lock.core.connections.endpoints import Target
    from django_setnx_lock.core.locks.attempt import AcquireAttempt
    from django_setnx_lock.core.protocol.commands import Request


def send(client: Any, request: Request) -> Any:
    """Run ``request`` in full text on a redis-py client and return the raw reply."""
    return client.eval(request.script.source, *request.arguments)


def called(target: Target, request: Request) -> Any:
    """Run ``request`` about ``target`` as the package does."""
    return run(target.call(BLOCKING, request))


def send_sha(client: Any, request: Request) -> Any:
    """Run ``request`` by the SHA of its script, which the server must know."""
    return client.evalsha(request.script.sha, *request.arguments)


class Meta(NamedTuple):
    """What is written beside a lock."""

    fence: int
    token: str
    record: str


def meta_of(client: Any, name: str = "lock:a") -> Meta:
    """Read ``FENCE LENGTH-OF-TOKEN TOKEN RECORD`` beside the lock."""
    fence, length, rest = (replies.text(client.get(lock_keys(name).meta)) or "").split(" ", 2)
    return Meta(int(fence), rest[: int(length)], rest[int(length) + 1 :])


def write_meta(client: Any, meta: Meta, name: str = "lock:a") -> None:
    """Have ``meta`` stand beside the lock, for a minute."""
    written = f"{meta.fence} {len(meta.token)} {meta.token} {meta.record}"
    client.set(lock_keys(name).meta, written, px=60_000)


def let_lapse(client: Any, token: str, name: str = "lock:a") -> None:
    """Have the waiter ``token`` be one who should have asked again long ago."""
    alive = lock_keys(name).alive
    _, rank, asks_again = (replies.text(client.hget(alive, token)) or "").split()
    client.hset(alive, token, f"1 {rank} {asks_again}")


class FakeTime:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def ask(attempt: AcquireAttempt, *, waits: bool) -> LockHandle | replies.Busy:
    """Ask once for the lock of ``attempt``, in the calling thread."""
    return run(attempt.ask(BLOCKING, waits=waits))


def cancel(attempt: AcquireAttempt) -> None:
    """Cancel ``attempt``, in the calling thread."""
    run(attempt.cancel(BLOCKING))
