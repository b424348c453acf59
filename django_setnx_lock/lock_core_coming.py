"""What lock_core.py has, of the core that is built beside today's: only tests choose it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import conf, lock_core
from .core import clock
from .core.errors import LockBusy, LockError, LockUnavailable
from .core.locks import batch
from .core.next.connections.backend import ASYNCIO, BLOCKING, run
from .core.next.connections.quorum import masters_of
from .core.next.connections.session import session_of
from .core.next.inspection import inspector
from .core.next.locks import parent, scope, several
from .core.next.locks.layered import LockHandle, RedisLock, RWLock
from .core.next.locks.redlock import Redlock
from .core.next.locks.several import MultiLock
from .core.next.protocol.requests import Command
from .core.protocol.keys import name_for
from .transactions import CommitLock, CommitRedlock

if TYPE_CHECKING:
    from .core.next.locks.grant import Grant
    from .core.next.locks.several import MultiLockHandle

Inspector: Any = inspector.Inspector
Maker = Callable[..., RedisLock]
# What this core does not take: what it does in any case, or not yet.
_NOT_TAKEN = {"ending", "heartbeat_prefix"}
# Left out where they change nothing, as most locks are without.
_PLAIN = {"replicas": 0, "protocol": "setnx"}


class CancelScope:
    """The rest of the running task under ``held``, up to :meth:`leave`, which lets that go."""

    def __init__(self, held: LockHandle | MultiLockHandle) -> None:
        self._held = held
        self._scope = scope.CancelScope(held.grants)

    def end(self) -> None:
        self._scope.leave(None)

    async def leave(self, error: BaseException | None) -> None:
        await self._held.finish(ASYNCIO, self._scope.leave(error))


def kind_of(options: dict[str, Any], *, is_redlock: bool) -> tuple[Maker, dict[str, Any]]:
    given = {
        name: value
        for name, value in options.items()
        if name not in _NOT_TAKEN and (name not in _PLAIN or value != _PLAIN[name])
    }
    if is_redlock:
        return partial(_redlock, Redlock if options["ending"] is None else CommitRedlock), given
    return RedisLock if options["ending"] is None else CommitLock, given


def _redlock(kind: type[Redlock], servers: Any, *args: Any, **options: Any) -> Redlock:
    masters = masters_of(servers.clients, servers.names, servers.timeout)
    return kind(masters, *args, **options)


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


def take_each(locks: Sequence[RedisLock]) -> list[Any]:
    made: Any = batch.Taken
    taken: dict[RedisLock, Any] = {}
    try:
        for one in sorted(locks, key=lambda one: one.name):
            try:
                taken[one] = made(one, one.take(0))
            except LockUnavailable as error:
                if error.cause in {"unreachable", "timeout", "replicas"}:
                    raise
                taken[one] = made(one, error=error)
            except LockBusy as error:
                taken[one] = made(one, error=error)
        return [taken[one] for one in locks]
    except BaseException:
        release_each([one.held for one in taken.values() if one.held is not None])
        raise


def waive_min_hold(held: LockHandle) -> None:
    held.grant.was_in_vain = True


def environment_under(held: LockHandle, variables: Mapping[str, str]) -> dict[str, str]:
    return {parent.VARIABLE: parent.described(held.grant, variables)}


class _Lease:
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


def lease_of(held: LockHandle) -> lock_core.Lease:
    return _Lease(held.grant)


def finish(held: LockHandle | MultiLockHandle, error: BaseException | None) -> None:
    run(held.finish(BLOCKING, error))


def choose() -> None:
    """Have the locks of the app be of this core from now on, in this process."""
    vars(lock_core).update({name: globals()[name] for name in lock_core.__all__})
    conf.known = conf.Known()
