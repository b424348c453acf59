"""The handle of several locks that are held together, and what is called when one is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn
from weakref import WeakSet

from .. import clock
from ..connections.backends import Backend
from ..errors import LockError, LockLost, LockUnavailable, LockUnsupported
from ..protocol import commands
from ..renewal.lease import Lease
from ..stop_request import StopRequest
from .batch import ask_each, release_all
from .handle import LockHandle
from .operations import Handle, Scope
from .options import CoreOptions

logger = logging.getLogger("django_setnx_lock.lock")


class MultiLockHandle(Handle, Mapping[str, LockHandle]):
    """Several locks that are held together; what ``with lock("a", "b") as held`` gives.

    ``held["a"]`` is the handle of one of them. It may be passed to other threads and tasks, but
    belongs to the process that took it. On one server, each method is one round trip for all.
    """

    def __init__(self, parts: Sequence[LockHandle]) -> None:
        self._parts = {part.key: part for part in parts}

    def __getitem__(self, key: str) -> LockHandle:
        return self._parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    # Two are never the same, whatever they hold.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key} {state}>"

    @property
    def parts(self) -> list[LockHandle]:
        """The handle of each lock, in the order in which the keys were given."""
        return list(self._parts.values())

    @property
    def key(self) -> str:
        """The name in messages: all keys."""
        return names_of(self)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing number of each lock, by key."""
        return {key: held.fence for key, held in self.items()}

    @property
    def fence(self) -> NoReturn:
        """Refused. Raises LockUnsupported."""
        raise LockUnsupported(
            f"the locks {self.key} have a fencing number each, and none in common: use fences, "
            "which has them by key",
            key=self.key,
        )

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return min(held.timeout for held in self.parts)

    @property
    def released(self) -> bool:
        """Return whether all were let go."""
        # No generator: an interrupt as it is thrown away would be lost.
        return not [held for held in self.parts if not held.released]

    @property
    def is_let_go(self) -> bool:
        """Return whether all were let go, even if that has effect later only."""
        return not [held for held in self.parts if not held.is_let_go]

    @property
    def is_here(self) -> bool:
        """Return whether this process took them: after a fork, the child owns nothing."""
        return self.parts[0].is_here

    @property
    def lost(self) -> bool:
        """Return whether any is known to be ours no longer, or its lease is over. Asks nobody."""
        return bool([held for held in self.parts if held.lost])

    @property
    def loss(self) -> LockLost | None:
        """Why one is lost, once that was found. Asks nobody."""
        return next((held.loss for held in self.parts if held.loss is not None), None)

    @property
    def stop_requested(self) -> StopRequest | None:
        """The first of what operators ask the holder of one of them for. Asks nobody.

        See :attr:`LockHandle.stop_requested`, of which each part has its own.
        """
        asked = [held.stop_requested for held in self.parts]
        return next((one for one in asked if one is not None), None)

    def remaining(self) -> float:
        """Return the seconds left of the lease that ends first; 0.0 when one is lost or let go."""
        return min(held.remaining() for held in self.parts)

    def handover(self) -> None:
        """Let the locks outlive what took them. See :meth:`LockHandle.handover`."""
        for held in self.parts:
            held.handover()

    async def _check(self, io: Backend) -> None:
        for held in self.parts:
            held.refuse_if_over("check")
        await self._ask(io, [held.grant.checking() for held in self.parts])

    async def _owned(self, io: Backend) -> bool:
        return not any(held.released for held in self.parts) and await super()._owned(io)

    async def _extend(self, io: Backend, seconds: float, replace_ttl: bool) -> Literal[True]:
        return await self._ask(io, [held.extending(seconds, replace_ttl) for held in self.parts])

    async def _reacquire(self, io: Backend) -> Literal[True]:
        return await self._ask(io, [held.reacquiring() for held in self.parts])

    async def _ask(self, io: Backend, requests: Sequence[commands.Request]) -> Literal[True]:
        """Send the request of each, whose replies tell what is left of the leases.

        Raises LockLost too.
        """
        sent = clock.now()
        replies = await ask_each(io, [held.target for held in self.parts], requests)
        errors: list[LockError] = []
        for held, reply in zip(self.parts, replies, strict=True):
            try:
                if isinstance(reply, LockUnavailable):
                    raise reply
                held.kept(reply)
                held.lease.confirm(sent, int(reply[1]) / 1000)
            except LockError as error:
                errors.append(error)
        raise_first(errors)
        return True

    async def _release(self, io: Backend) -> None:
        self.began_release = True
        if self.is_let_go:
            raise LockError(f"the locks {self.key} were released already", key=self.key)
        if not self.is_here:
            raise LockError(
                f"the locks {self.key} belong to another process, this one's parent", key=self.key
            )
        raise_first(await release_all(io, [held for held in self.parts if not held.is_let_go]))

    async def _give_back(self, io: Backend) -> None:
        """Let go of all that was taken when nobody will be told of it. Raises no LockError."""
        for held in self.parts:
            held.waive_min_hold()
        with suppress(LockError):
            await release_all(io, self.parts, now=True)

    def count_out(self) -> None:
        """Count out each handle that could not be released."""
        for held in self.parts:
            if not held.is_let_go:
                held.count_out()

    # For the cancel scope.

    @property
    def wants_renewal(self) -> bool:
        """Return whether all are renewed for as long as they are held."""
        return all(held.wants_renewal for held in self.parts)

    @property
    def lease(self) -> Lease:
        """The lease that ends first."""
        return self._first_to_end.lease

    @property
    def _first_to_end(self) -> LockHandle:
        parts = [held for held in self.parts if not held.released] or self.parts
        return min(parts, key=lambda held: held.lease.end)

    def declare_over(self) -> None:
        """Take note that the lease that ended first is over, and its lock lost."""
        self._first_to_end.declare_over()

    def enter(self, scope: Scope) -> None:
        """Cancel ``scope``, which a task has entered, when one of the locks is lost."""
        for held in self.parts:
            held.enter(scope)

    def leave(self, scope: Scope) -> None:
        """Take note that the task is in ``scope`` no longer."""
        for held in self.parts:
            held.leave(scope)


class LossRelay:
    """Calls ``on_lost`` with the handle of all the locks, once, when the first of them is lost.

    In the place of the ``on_lost`` of each of them. Raises TypeError as :class:`CoreOptions`.
    """

    def __init__(self, on_lost: Callable[[MultiLockHandle], object]) -> None:
        CoreOptions(on_lost=on_lost)
        self._on_lost = on_lost
        self._untold: WeakSet[MultiLockHandle] = WeakSet()

    def watch(self, held: MultiLockHandle) -> None:
        """Call ``on_lost`` if ``held`` is lost from now on."""
        self._untold.add(held)

    def __call__(self, lost: LockHandle) -> None:
        for held in list(self._untold):
            if any(part is lost for part in held.parts):
                try:
                    self._untold.remove(held)
                except KeyError:
                    # Another thread tells of it.
                    continue
                self._on_lost(held)


def names_of(keys: Sequence[str] | Mapping[str, Any]) -> str:
    """Return ``keys`` as messages name them."""
    return ", ".join(map(repr, keys))


def raise_first(errors: Sequence[LockError]) -> None:
    """Raise the gravest of ``errors``, if there are any: a loss, else the first; log the others."""
    losses = [error for error in errors if isinstance(error, LockLost)]
    for error in (losses or errors)[:1]:
        for other in errors:
            if other is not error:
                logger.warning("%s", other)
        raise error
