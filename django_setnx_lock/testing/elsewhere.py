"""What another process does to locks, done here."""

from __future__ import annotations

import os
import threading
from asyncio import _get_running_loop
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import flow, watchdog
from ..core.aio import loops
from ..core.calling import call
from ..core.errors import LockError, LockLost
from ..core.grant import Grant
from ..core.holder import Holder
from ..core.inspection import Inspector, LockInfo, State
from ..core.keys import name_for
from ..core.lock import RedisLock
from ..core.protocol import read_kept
from ..locks import inspector, key_prefix, lock

if TYPE_CHECKING:
    from ..core.held import Held
    from ..core.turn import Turn

_Result = TypeVar("_Result")
HOST = "elsewhere.invalid"
_FREE = frozenset({State.FREE, State.OVER})


def aside(func: Callable[[], _Result]) -> _Result:
    """``func()``, which blocks: in another thread where an event loop runs in this one."""
    if _get_running_loop() is None:
        return func()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(func())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="setnx-lock-testing")
    thread.start()
    thread.join()
    for error in errors:
        raise error
    return results[0]


def take_elsewhere(key: str, options: dict[str, Any]) -> Held:
    """Take ``key`` as another process would. Raises as :func:`lock` and LockBusy."""
    one = lock(key, **{**options, "reentrant": False})
    if not isinstance(one, RedisLock):
        raise TypeError(f"held_elsewhere() takes one key, not {key!r}")
    about = {name: options.get(name, "") for name in ("label", "user", "note")}
    record = Holder(**about, host=HOST, pid=os.getpid() + 1, thread="MainThread").to_json()
    make_turn = one.turn

    def turn() -> Turn:
        made = make_turn()
        made.record = record
        return made

    one.turn = turn  # type: ignore[method-assign]  # of this one lock
    held = one.take(0)
    # Neither this thread nor this task is the holder.
    held.handover()
    return held


def leave_elsewhere(held: Held) -> None:
    """Let it go, unless it was lost meanwhile, as to a force-release that is being tested."""
    with suppress(LockError):
        held.release()


def info_of(key: str, using: str | None) -> LockInfo:
    """What there is to know of the lock ``key`` in the cache ``using``."""
    return aside(lambda: inspector(using).get(name_for(key_prefix(), key)))


def is_free(info: LockInfo) -> bool:
    """Whether anybody may take it now."""
    return info.state in _FREE


def lose(held: Grant, by: str, reason: str) -> None:
    """Have ``held`` lost now. Raises LookupError where it is no longer held."""
    error = aside(lambda: _taken_away(held, by, reason))
    held.root.lose(error or held.ran_out())


def _taken_away(held: Grant, by: str, reason: str) -> LockLost | None:
    """Take it away on the server. Gives what its holder is told then, if somebody did it."""
    target = held.target
    looking = Inspector(target.client, target.keys.name.removesuffix(target.key))
    seen = looking.get(held.name)
    mine = [one for one in seen.shares if one.token == held.token.encode()]
    fingerprint = mine[0].fingerprint if mine else seen.fingerprint
    if held.released or not fingerprint:
        raise LookupError(f"the lock {held.key!r} is not held, and so cannot be lost")
    looking.force_release(held.name, fingerprint, by=by, reason=reason)
    if not by and not reason:
        return None
    try:
        read_kept(call(target.client, held.checking(), held.key), held.key)
    except LockLost as error:
        return error
    raise AssertionError(f"the lock {held.key!r} could not be taken away")


def held_here(key: str) -> list[Grant]:
    """What this process holds of ``key``: what it renews, and what this thread or task took."""
    name = name_for(key_prefix(), key)
    dogs = [watchdog.WATCHDOG, *(room.watchdog for room in list(loops._ROOMS.values()))]
    noted = [one for dog in dogs for one, _, _ in list(dog._held.values())]
    noted += flow.current().holds.get(name, [])
    found = {id(one): one for one in (ref() for ref in noted) if one is not None}
    return [one for one in found.values() if one.name == name and not one.lost]
