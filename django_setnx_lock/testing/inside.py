"""What the kit touches of the core that it works on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .. import lock_core
from ..core.connections import execute
from ..core.connections.backends import BLOCKING, run
from ..core.errors import LockLost
from ..core.locks import owner
from ..core.protocol import scripts
from ..core.protocol.replies import read_kept
from ..core.renewal import watchdog
from ..core.renewal.loop_watchdog import all_watchdogs, running_watchdog
from . import inside_coming

if TYPE_CHECKING:
    from ..core.locks.attempt import AcquireAttempt

_scripts = [one for one in vars(scripts).values() if isinstance(one, scripts.Script)]
# By the names that servers know them by.
SCRIPTS = {one.sha: one.source for one in _scripts}


def take_as(lock: Any, record: str) -> Any:
    """Take ``lock`` for nobody here, with that holder ``record``. Raises LockBusy."""
    make_attempt = lock.attempt

    def attempt() -> AcquireAttempt:
        made: AcquireAttempt = make_attempt()
        made.record = record
        return made

    lock.attempt = attempt
    held = lock.take(0)
    # Neither this thread nor this task is the holder.
    held.handover()
    return held


def held_here(name: str) -> list[Any]:
    """Return the grants of ``name`` that this process holds."""
    noted: list[Any] = [one for dog in all_watchdogs() for one in dog.watched()]
    # A lock that is not renewed was taken by this thread or task.
    noted += filter(None, [ref() for ref in owner.current().holds.get(name, [])])
    return [one for one in noted if one.name == name and not one.is_over]


def loss_of(grant: Any) -> LockLost | None:
    """Return what Redis says to the holder of ``grant``; None where it is held."""
    try:
        call = execute.call(BLOCKING, grant.target.client, grant.checking(), grant.key)
        read_kept(run(call), grant.key)
    except LockLost as error:
        return error
    return None


def name_of(grant: Any) -> str:
    name: str = grant.name
    return name


def renewals(*, of_loop: bool = False) -> list[Any]:
    """Return what renews the locks of threads, and of the running event loop."""
    return [running_watchdog(), watchdog.WATCHDOG] if of_loop else [watchdog.WATCHDOG]


def forget(servers: Collection[int]) -> None:
    """Renew nothing that was taken on the fake's ``servers``, by their id()."""
    watched: list[Any] = watchdog.WATCHDOG.watched()
    for held in watched:
        if id(held.client.connection_pool.connection_kwargs.get("server")) in servers:
            held.close()
            held.end_renewal()


if lock_core.take_each.__module__.endswith("_coming"):
    for _name in inside_coming.__all__:
        globals()[_name] = getattr(inside_coming, _name)
