"""The rules of several locks that are held together: what one and all of them say of the whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import protocol
from ..errors import LockError, LockLost, LockUnavailable, LockUnsupported
from ..held import Held

logger = logging.getLogger("django_setnx_lock.lock")


class Renewing(NamedTuple):
    """The request that gives a lease more time, and how often that had been cut by then."""

    request: protocol.Request
    cuts: int


class MultiHandle(Mapping[str, Held]):
    """The handle of each lock, by key, in the order in which the keys were given. Asks nobody.

    ``began_release``: whether it was ever asked for the release.
    """

    began_release = False

    def __init__(self, parts: Sequence[Held]) -> None:
        self._parts = {part.key: part for part in parts}

    def __getitem__(self, key: str) -> Held:
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
    def parts(self) -> list[Held]:
        """The handle of each lock."""
        return list(self._parts.values())

    @property
    def key(self) -> str:
        """What messages call it: all keys."""
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
        """Whether all were let go."""
        # No generator: an interrupt as it is thrown away would be lost.
        return not [held for held in self.parts if not held.released]

    @property
    def is_let_go(self) -> bool:
        """Whether all were let go, or will be as what put that off says."""
        return not [held for held in self.parts if not held.is_let_go]

    @property
    def is_here(self) -> bool:
        """Whether this process took them: after a fork, the child owns nothing."""
        return self.parts[0].is_here

    @property
    def lost(self) -> bool:
        """Whether any is known to be ours no longer, or its lease is over. Asks nobody."""
        return bool([held for held in self.parts if held.lost])

    @property
    def loss(self) -> LockLost | None:
        """Why one is lost, once that was found. Asks nobody."""
        return next((held.loss for held in self.parts if held.loss is not None), None)

    def remaining(self) -> float:
        """Seconds left of the lease that ends first; 0.0 when one is lost or released."""
        return min(held.remaining() for held in self.parts)

    def handover(self) -> None:
        """Let the locks outlive the thread or task that took them. See :meth:`Held.handover`."""
        for held in self.parts:
            held.handover()

    def forgo_min_hold(self) -> None:
        """Be free at once when they are let go: nothing was done under them."""
        for held in self.parts:
            held.forgo_min_hold()

    def to_release(self) -> list[Held]:
        """Those that are to be let go. Raises LockError when none is, or none belongs to us."""
        self.began_release = True
        if self.is_let_go:
            raise LockError(f"the locks {self.key} were released already", key=self.key)
        if not self.is_here:
            raise LockError(
                f"the locks {self.key} belong to another process, this one's parent", key=self.key
            )
        return [held for held in self.parts if not held.is_let_go]

    def to_check(self) -> list[protocol.Request]:
        """What asks for each whether it is still ours. Raises as :meth:`Held.check`."""
        for held in self.parts:
            held.refuse_if_over("check")
        return [held.checking() for held in self.parts]

    def to_renew(self, additional_ms: int | None) -> list[Renewing]:
        """What adds to the lease of each, or with None makes it whole. Raises as Held.extend()."""
        for held in self.parts:
            held.refuse_if_over("extend")
            if additional_ms is not None:
                held.refuse_if_followed()
        return [
            Renewing(
                held.renewing(additional_ms, "add")
                if additional_ms is not None
                else held.renewing(protocol.milliseconds(held.timeout, "timeout"), "least"),
                held.lease.cuts,
            )
            for held in self.parts
        ]

    def read_kept(self, replies: Sequence[Any]) -> None:
        """Take note of the ``replies``. Raises LockLost, LockUnavailable."""
        errors: list[LockError] = []
        for held, reply in zip(self.parts, replies, strict=True):
            try:
                if isinstance(reply, LockUnavailable):
                    raise reply
                held._kept(reply)
            except LockError as error:
                errors.append(error)
        raise_first(errors)

    def read_renewed(
        self, renewing: Sequence[Renewing], replies: Sequence[Any], sent: float
    ) -> None:
        """Take note of the ``replies`` to what was sent then. Raises as :meth:`read_kept`."""
        for held, asked, reply in zip(self.parts, renewing, replies, strict=True):
            if not isinstance(reply, LockUnavailable) and protocol.text(reply[0]) == "OK":
                held.lease.confirm(sent, int(reply[1]) / 1000, asked.cuts)
        self.read_kept(replies)


def names_of(keys: Sequence[str] | Mapping[str, Any]) -> str:
    """``keys`` as messages name them."""
    return ", ".join(map(repr, keys))


def raise_first(errors: Sequence[LockError]) -> None:
    """Raise the gravest of ``errors``, if there are any: a loss, else the first; log the others."""
    losses = [error for error in errors if isinstance(error, LockLost)]
    for error in (losses or errors)[:1]:
        for other in errors:
            if other is not error:
                logger.warning("%s", other)
        raise error
