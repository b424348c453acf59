"""The options of a lock: decided, and checked, once."""

from __future__ import annotations

import functools
from inspect import iscoroutinefunction
from typing import Any, Protocol

from ..errors import LockUnsupported
from ..protocol.commands import SETNX, CommandSet, command_set
from ..values import DEFAULT_TIMEOUT, least_hold, milliseconds, waiting_time


class ReleasePolicy(Protocol):
    """Asked by each release of a lock that is not awaited.

    It may defer the release, as until the end of a transaction: the lock is held and renewed as
    before, until the policy releases it. What it is given is Any here: the classes of
    handles, grants and targets build on this file.
    """

    def defers(self, held: Any) -> bool:
        """Return whether ``held`` is to be let go later; then keep it alive and let it go."""
        ...

    def kept(self, target: Any) -> Any:
        """Return the grant of ``target`` that the caller let go by deferred releases, or None."""
        ...


class CoreOptions:
    """The options of a lock that no server is needed for. See :class:`RedisLock`.

    ``lease_ms``: the lease that is asked for when the lock is taken. ``min_hold_ms``: 0 for none.
    ``is_noted``: whether it matters who holds the lock. ``commands``: the command set.

    Raises ValueError and TypeError as :class:`RedisLock`.
    """

    __slots__ = (
        "blocking_timeout",
        "commands",
        "deadlock_timeout",
        "ending",
        "is_noted",
        "lease_ms",
        "max_hold",
        "min_hold_ms",
        "on_lost",
        "reentrant",
        "renew",
        "timeout",
        "wait_warning",
    )

    def __init__(
        self,
        *,
        timeout: float | None = None,
        sleep: float | None = None,
        blocking_timeout: float | None = None,
        renew: bool = False,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: Any = None,
        reentrant: bool = False,
        ending: ReleasePolicy | None = None,
        wait_warning: float | None = None,
        deadlock_timeout: float | None = None,
        **kind: Any,
    ) -> None:
        if not isinstance(renew, bool):
            raise TypeError(f"renew is True or False, not {renew!r}")
        if not isinstance(reentrant, bool):
            raise TypeError(f"reentrant is True or False, not {reentrant!r}")
        longest = None if max_hold is None else milliseconds(max_hold, "max_hold")
        if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
            raise TypeError(f"on_lost is a callable (held), and not async; not {on_lost!r}")
        self.min_hold_ms = least_hold(min_hold, max_hold)
        if timeout is None:
            timeout = DEFAULT_TIMEOUT
        lease_ms = milliseconds(timeout, "timeout")
        waiting_time(sleep, "sleep")
        self.blocking_timeout = waiting_time(blocking_timeout)
        if wait_warning is not None:
            milliseconds(wait_warning, "wait_warning")
        self.wait_warning = wait_warning
        if deadlock_timeout is not None:
            milliseconds(deadlock_timeout, "deadlock_timeout")
        self.deadlock_timeout = deadlock_timeout
        self.renew = renew
        self.max_hold = max_hold
        self.on_lost = on_lost
        self.reentrant = reentrant
        self.ending = ending
        self.timeout = float(timeout)
        self.lease_ms = lease_ms if longest is None else min(lease_ms, longest)
        self.is_noted = reentrant or renew or deadlock_timeout is not None
        self.commands: CommandSet = SETNX
        if kind:
            self.commands = command_set(**kind, min_hold=min_hold, reentrant=reentrant)
        if self.min_hold_ms and not self.commands.supports_min_hold:
            raise LockUnsupported(
                f"min_hold is not to be had with {self.commands}: hold the lock for that time"
            )


# Most locks of a program have the same options. Typed: True is not 1 here.
_known = functools.lru_cache(maxsize=128, typed=True)(CoreOptions)


def core_options(on_lost: Any, **options: Any) -> CoreOptions:
    """Return the :class:`CoreOptions` of these values. Raises as that."""
    # A callback is not to be kept alive.
    if on_lost is None:
        try:
            return _known(**options)
        except TypeError:
            # One of them has no hash, or is refused: the class says which.
            pass
    return CoreOptions(on_lost=on_lost, **options)
