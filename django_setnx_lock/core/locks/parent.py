"""A lock that this process was started under, as ``manage.py with_lock`` does.

The environment tells of it. The parent process renews and releases it; this one only asks whether
it is still held.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..errors import LockError
from ..options import milliseconds
from ..protocol.requests import Request
from .grant import Grant
from .handle import PlainHandle
from .renewal import renewal_of

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..connections.session import Session
    from ..options import Target
    from ..process import Owner
    from ..protocol.replies import Reply

logger = logging.getLogger("django_setnx_lock.lock")

#: A JSON list of the locks that are held around a process.
VARIABLE = "SETNX_LOCK_HELD_TOKENS"


@dataclass(frozen=True)
class Around:
    """A lock that is held around this process. ``place``: the server, without credentials."""

    place: str
    name: str
    token: str = field(repr=False)
    fence: int
    timeout: float

    def __post_init__(self) -> None:
        milliseconds(self.timeout, "timeout")
        types = [type(each) for each in (self.place, self.name, self.token, self.fence)]
        if types != [str, str, str, int]:
            raise TypeError("not all text, and a number")


class Environment:
    """The locks that a parent such as with_lock holds for this process, read at first use.

    A fork has none of them.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.names_any = VARIABLE in os.environ
        # What was had again, by place and name. One thread or task has it at a time.
        self._had: dict[tuple[str, str], ref[Grant]] = {}

    @cached_property
    def _all(self) -> dict[tuple[str, str], Around]:
        return _read(os.environ.get(VARIABLE, ""))

    def find(self, target: Target, session: Session) -> Around | None:
        """Return the lock if it is held around this process, and nobody here has it again."""
        place = session.where, target.keys[0]
        had = self._had.get(place)
        grant = None if had is None else had()
        is_had = grant is not None and not grant.is_over and grant.held_by()
        return None if is_had or self._pid != os.getpid() else self._all.get(place)

    def held_at(self, session: Session) -> list[tuple[str, str]]:
        """Return name and token of what is held there until the caller has ended.

        That is so of the main thread, which the process cannot end before.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not (self.names_any and is_main and self._pid == os.getpid()):
            return []
        return [(one.name, one.token) for one in self._all.values() if one.place == session.where]

    async def enter(
        self, io: Backend, around: Around, target: Target, session: Session, by: Owner
    ) -> Any:
        """Return a handle of ``around`` for ``by``, if Redis says that it is still held."""
        request = Request(target.scripts.renew, target.keys[:2], (around.token, "-1"))
        reply = await session.call(io, request, target.key)
        if reply.value[0] != b"OK":
            return None
        grant = _BorrowedGrant(target, session, around, reply, by)
        with session.deciding:
            if grant.is_over or self.find(target, session) is None:
                return None
            self._had[around.place, around.name] = ref(grant)
            held = target.handle(grant)
        renewal_of(grant, io).register(grant)
        return held


environment = Environment()


def described(grant: Grant, variables: Mapping[str, str]) -> str:
    """Return the value of ``VARIABLE`` for a process that is started while ``grant`` is held.

    The locks that ``variables``, its other environment, names stay in it.
    """
    place = grant.session.where, grant.target.keys[0]
    found = _read(variables.get(VARIABLE, ""))
    # On several masters there is no fence, and no one server to ask.
    if isinstance(grant.fence, int):
        found[place] = Around(*place, grant.token, grant.fence, grant.lease)
    return json.dumps([asdict(around) for around in found.values()], separators=(",", ":"))


def _read(text: str) -> dict[tuple[str, str], Around]:
    try:
        found = [Around(**each) for each in json.loads(text or "[]")]
    except (TypeError, ValueError, RecursionError):
        # Without its text: there are tokens in it.
        logger.warning(
            "%s in the environment cannot be understood: locks that are held around this process "
            "are not had again",
            VARIABLE,
        )
        return {}
    return {(around.place, around.name): around for around in found}


class _BorrowedGrant(Grant):
    """A lock that is held around this process: a renewal only asks, a release does nothing."""

    def __init__(
        self, target: Target, session: Session, around: Around, reply: Reply, by: Owner
    ) -> None:
        super().__init__(target, session, around.token, around.fence, reply.sent, by)
        self._timeout, left = around.timeout, int(reply.value[1]) / 1000
        self.end = reply.sent + (left if left >= 0 else around.timeout)
        self.due = reply.sent + around.timeout / 3
        self.hold_until = math.inf

    # The parent's, whatever is asked for here.
    lease = property(lambda self: self._timeout, lambda self, seconds: None)

    @property
    def is_renewed(self) -> bool:
        return True

    def renew_request(self, ms: int | None) -> Request:
        return super().renew_request(-1)

    def release_request(self) -> None:
        if self.loss is not None:
            raise self.loss.again()
        for handle in self.held_by():
            handle.released = True


class Borrower(PlainHandle):
    """A handle that may be of a lock which is held around this process."""

    def _renew_request(self, what: str, ms: int | None, *, to_add: bool = False) -> Request:
        if ms not in (None, -1) and isinstance(self.grant, _BorrowedGrant):
            raise LockError(
                f"cannot {what} the lock {self.key!r}: with_lock, under which this process runs, "
                "holds it and keeps its lease",
                key=self.key,
            )
        return super()._renew_request(what, ms, to_add=to_add)
