"""What the Django side asks of the core beyond the methods of locks and handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .core import clock
from .core.connections.backend import BLOCKING, run
from .core.connections.pipe import ASYNCIO
from .core.connections.session import session_of
from .core.errors import LockBusy, LockError, LockUnavailable
from .core.inspection import inspector
from .core.locks import parent, scope, several
from .core.locks.layered import LockHandle, RedisLock, RWLock
from .core.locks.several import MultiLock
from .core.protocol.keys import name_for
from .core.protocol.requests import Command

if TYPE_CHECKING:
    from .core.locks.grant import Grant
    from .core.locks.several import MultiLockHandle

Inspector = inspector.Inspector
Maker = Callable[..., RedisLock]


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking one of several locks: ``held``, or ``error`` telling why not."""

    lock: RedisLock
    held: LockHandle | None = None
    error: LockBusy | LockUnavailable | None = None


class CancelScope:
    """The rest of the running task under ``held``, up to :meth:`leave`, which lets that go."""

    def __init__(self, held: LockHandle | MultiLockHandle) -> None:
        self._held = held
        self._scope = scope.CancelScope(held.grants)

    def end(self) -> None:
        self._scope.leave(None)

    async def leave(self, error: BaseException | None) -> None:
        await self._held.finish(ASYNCIO, self._scope.leave(error))


def together(
    keys: Sequence[str], make: Maker, on_lost: Callable[[Any], object] | None
) -> MultiLock:
    return MultiLock.of([make(key) for key in keys], on_lost)


def is_of_app(target: Any, prefix: str) -> bool:
    # Others have no name of their own beside that in Redis.
    return bool(target.keys[0] == name_for(prefix, target.key))


def ask(client: Any, words: tuple[str, ...]) -> Any:
    command = Command.of(*words, keys=words[1:2])
    return run(session_of(client).call(BLOCKING, command, "")).value


def read_and_write(make: Maker) -> RWLock:
    return RWLock.made_by(make)


def check_each(held: Sequence[LockHandle]) -> None:
    run(several.check_each(BLOCKING, held))


def release_each(held: Sequence[LockHandle]) -> Sequence[LockError]:
    return run(several.release_each(BLOCKING, held)) if held else []


# What waits for the end of a transaction is another handle, and released as any.
release_now = release_each


def take_each(locks: Sequence[RedisLock]) -> list[Taken]:
    """Take each of ``locks`` that is free, without waiting; return the results in that order.

    They are asked for in the order of their names, one after the other. Raises LockUnavailable,
    holding nothing, when their server cannot be reached or does not answer; of a cluster, the locks
    of that node are told to be unavailable, and are not asked for.
    """
    taken: dict[RedisLock, Taken] = {}
    down: dict[object, LockUnavailable] = {}
    try:
        for lock in sorted(locks, key=lambda each: each.name):
            session = lock.session_for(BLOCKING)
            node = session.at(lock.name)
            try:
                if node in down:
                    raise down[node]
                taken[lock] = Taken(lock, lock.take(0))
            except LockUnavailable as error:
                if error.cause in {"unreachable", "timeout", "replicas"}:
                    if node is session:
                        raise
                    down[node] = error
                taken[lock] = Taken(lock, error=error)
            except LockBusy as error:
                taken[lock] = Taken(lock, error=error)
        return [taken[lock] for lock in locks]
    except BaseException:
        release_each([one.held for one in taken.values() if one.held is not None])
        raise


def waive_min_hold(held: LockHandle) -> None:
    held.grant.was_in_vain = True


def environment_under(held: LockHandle, variables: Mapping[str, str]) -> dict[str, str]:
    return {parent.VARIABLE: parent.described(held.grant, variables)}


class Lease:
    """How far the lease of a grant is, and its renewal. Times are those of ``clock``."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._since: float | None = None

    @property
    def end(self) -> float:
        return self._grant.end

    @property
    def seconds(self) -> float:
        return self._grant.lease

    @property
    def due(self) -> float:
        return self._grant.due

    @property
    def trouble(self) -> Exception | None:
        return self._grant.trouble

    @property
    def tried_since(self) -> float | None:
        now = clock.now()
        if self._grant.trouble is None and now < self._grant.due:
            self._since = None
        elif self._since is None:
            # This process may have stood still until now.
            self._since = now
        return self._since


def lease_of(held: LockHandle) -> Lease:
    return Lease(held.grant)


def finish(held: LockHandle | MultiLockHandle, error: BaseException | None) -> None:
    run(held.finish(BLOCKING, error))
