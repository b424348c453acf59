"""Renews what is held at one server, until it is let go or lost."""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import clock, events
from ..connections.backend import BLOCKING, Backend, run
from ..connections.pipe import ASYNCIO, at_end_of_loop, of_loop, task_of
from ..errors import LockLost, LockUnavailable
from ..events import apart
from ..process import here
from ..protocol.replies import Reply, lost
from .grant import LISTED_AFTER
from .heartbeat import Heartbeat

if TYPE_CHECKING:
    from ..connections.session import Session
    from ..options import Target
    from .grant import Grant

logger = logging.getLogger("django_setnx_lock.renewal")

# So much later than due is soon enough, and wakes nobody.
_SLACK = 0.1
_LEAST, _END_WITHIN = 0.05, 0.5
# How soon a renewal that failed is tried again, at the latest.
_PAUSE = 0.25


class Renewal:
    """Renews the locks that threads hold at one server, in a thread of its own.

    One write has all that is due. The first renewal of a lock also lists it, for operators, so that
    short holds cost nothing; of a lock that is not renewed it does that alone. The references are
    weak: what nobody can let go is renewed no longer.
    """

    io: Backend = BLOCKING
    # The thread or task ends when nothing was held for so many seconds.
    _lingers = 5.0

    def __init__(self, session: Session) -> None:
        self._session: Any = ref(session)
        self._grants: dict[ref[Grant], Target] = {}
        self._heartbeat = Heartbeat()
        self._worker: Any = None
        self._wakes_at = -math.inf
        self._alarm: Any = threading.Event()

    def register(self, grant: Grant) -> None:
        """Renew ``grant`` from now on, and find out when it is lost."""
        grant.renewal = self
        self._grants[ref(grant)] = grant.target
        if self._worker is None:
            self._start()
        elif grant.due + _SLACK < self._wakes_at:
            self.wake()

    def unregister(self, grant: Grant) -> None:
        """Renew it no longer."""
        self._grants.pop(ref(grant), None)

    def wake(self) -> None:
        """Have what is due by now done now."""
        self._alarm.set()

    def _start(self) -> None:
        with here().mutex:
            if self._worker is not None:
                return
            worker = threading.Thread(target=self._work, name="setnx-lock-renewal", daemon=True)
            self._worker = worker
        here().renewing.add(self)
        try:
            worker.start()
        except BaseException as error:
            # The next lock tries again, for all of them.
            self._worker = None
            if not isinstance(error, RuntimeError):
                raise
            if isinstance(error.__context__, KeyboardInterrupt):
                # It came as the thread began, and this is what threading has made of it.
                raise error.__context__ from None
            logger.warning("no thread can be had that renews locks: %s", error)

    def _work(self) -> None:
        try:
            run(self._run())
        finally:
            # Whatever has ended it.
            self._has_ended()

    def _has_ended(self) -> None:
        self._worker = None
        here().renewing.discard(self)
        if self._grants:
            # One came just now, and has perhaps seen a worker that goes on; or somebody has
            # cancelled whatever tasks there are.
            self._start()

    def end(self) -> None:
        """Renew no longer, and wait for the end of the thread, but not for a server that hangs."""
        worker, self._lingers = self._worker, -math.inf
        self._grants.clear()
        self.wake()
        if worker is not None:
            worker.join(_END_WITHIN)

    async def _run(self) -> None:
        """Renew until nothing has been held for a while."""
        needed_at = clock.now()
        while self._grants or clock.now() < max(needed_at, self._heartbeat.until) + self._lingers:
            if self._grants:
                needed_at = clock.now()
            await self._run_once()
            await self._sleep(max(self._wakes_at - clock.now(), 0))
            self._alarm.clear()

    async def _sleep(self, seconds: float) -> None:
        self._alarm.wait(seconds)

    async def _run_once(self) -> None:
        """Do what is due, and plan when to look again."""
        try:
            now = clock.now()
            due, beats = self._look(now), self._heartbeat.due(self._held(), now)
            if due or beats:
                await self._renew(due, beats, now)
            nexts = [min(grant.due, grant.end) for grant in self._held()]
            # Never later than a lock is due that is taken from now on: that wakes nobody.
            self._wakes_at = min([clock.now() + LISTED_AFTER, *nexts])
        except Exception:
            logger.exception("the renewal of locks stumbled, and goes on")
            self._wakes_at = clock.now() + LISTED_AFTER

    def _held(self) -> list[Grant]:
        found = [reference() for reference in list(self._grants)]
        return [grant for grant in found if grant is not None]

    def _look(self, now: float) -> list[Grant]:
        """Return what is to be renewed; what was not renewed in time is lost."""
        due: list[Grant] = []
        for reference, target in list(self._grants.items()):
            grant = reference()
            if grant is None:
                self._grants.pop(reference, None)
                self._heartbeat.leave(target, now)
                if target.options.renew:
                    text = (
                        "nobody refers to the lock %r any more, which was not released: it is no "
                        "longer renewed and ends with its lease; give renew=False if that is meant"
                    )
                    logger.warning(text, target.key)
            elif now >= grant.end:
                self._lose(grant, grant.ran_out())
            elif grant.due - grant.lease / 6 <= now:
                # It is due, or soon enough to go along with another.
                if grant.is_renewed and grant.ended_owner:
                    self._grants.pop(reference, None)
                    text = (
                        "the %s that took the lock %r has ended without letting it go: it is no "
                        "longer renewed and ends with its lease; handover() is for locks that "
                        "outlive what took them"
                    )
                    logger.warning(text, grant.ended_owner, target.key)
                elif grant.due <= now or due:
                    due.append(grant)
        return due

    async def _renew(self, due: list[Grant], beats: list[Any], now: float) -> None:
        # Not kept: a session that nobody uses, for no lock left on purpose, is closed at once.
        # That of a lock knows where its slot is by now.
        session, asked = due[0].session if due else self._session(), []
        for grant in due:
            # The index may be written though no answer comes.
            grant.is_listed = True
            asked.append((grant.renew_request(None if grant.is_renewed else 0), grant.key))
        # Others become due meanwhile, and are not to end before the next round.
        first_end = min([grant.end for grant in (*due, *self._held())], default=math.inf)
        within = max(min(session.limit, (first_end - now) / 2), _LEAST)
        answers = await session.call_many(self.io, asked + beats, within)
        self._heartbeat.read(answers[len(due) :])
        for grant, answer in zip(due, answers, strict=False):
            # It may have been let go meanwhile.
            if ref(grant) in self._grants:
                with apart(logger, "a callback of the lock %r failed", grant.key):
                    self._read(grant, answer)

    def _read(self, grant: Grant, answer: Reply | LockUnavailable) -> None:
        if isinstance(answer, LockUnavailable):
            grant.due = clock.now() + min(_PAUSE, grant.lease / 10)
            if grant.trouble is None:
                grant.trouble = answer
                if not any(handle.on_trouble for handle in grant.held_by()):
                    text = "cannot renew the lock %r at %s yet: %s"
                    logger.warning(text, grant.key, grant.session.where, answer)
            grant.notify_of_trouble()
            return
        if answer.value[0] != b"OK":
            self._lose(grant, lost(grant.key, answer.value[1]))
            return
        if not grant.is_renewed:
            grant.due = math.inf
            return
        # For how long a third of the lease had been over.
        late = clock.now() - grant.end + grant.lease * 2 / 3
        grant.confirm(answer)
        grant.due = answer.sent + grant.lease / 3
        if grant.trouble is not None:
            grant.trouble = None
            logger.info("the lock %r is renewed again", grant.key)
        if late > grant.lease / 3:
            events.RENEWED_LATE.tell(key=grant.key, fence=grant.fence, late=late)

    def _lose(self, grant: Grant, error: LockLost) -> None:
        with apart(logger, "a callback of the lock %r failed", grant.key):
            if not any(handle.on_trouble for handle in grant.held_by()):
                logger.warning("%s", error)
            grant.lose(error)


class LoopRenewal(Renewal):
    """The same for the locks that the tasks of an event loop hold, in a task of its own."""

    io: Backend = ASYNCIO

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session)
        self._loop = loop
        self._alarm = asyncio.Event()
        self._is_closed = at_end_of_loop(self)

    def _start(self) -> None:
        if not self._is_closed:
            self._worker = task_of(self._loop, self._run())
            self._worker.set_name("setnx-lock-renewal")
            # Nobody else asks for what it raised.
            self._worker.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._worker.add_done_callback(lambda _: self._has_ended())

    async def _sleep(self, seconds: float) -> None:
        timer = self._loop.call_later(seconds, self._alarm.set)
        try:
            await self._alarm.wait()
        finally:
            timer.cancel()

    def wake(self) -> None:
        # The loop may end at any time.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._alarm.set)

    def end(self) -> None:
        """End with the loop."""
        self._is_closed = True
        for target in self._grants.values():
            logger.warning(
                "the event loop in which the lock %r was taken has ended: the lock is no longer "
                "renewed and ends with its lease",
                target.key,
            )
        self._grants.clear()
        if self._worker is not None:
            self._worker.cancel()


def renewal_of(grant: Grant, io: Backend) -> Renewal:
    """Return what renews ``grant``, of a thread of the process or of the running event loop."""
    session = grant.session.at(grant.target.keys[0])
    if io.is_asyncio:
        found: Renewal = of_loop(session.renewals, partial(LoopRenewal, session))
    else:
        # Another thread may be first.
        found = session.renewal or vars(session).setdefault("renewal", Renewal(session))
    return found


@atexit.register
def _end_all() -> None:
    """End the threads: a sub-interpreter that ends with one running takes the process with it."""
    for renewal in list(here().renewing):
        renewal.end()
