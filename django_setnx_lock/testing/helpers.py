"""What a test can do with locks, and what it can say of them."""

from __future__ import annotations

import os
import time
import unittest
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from ..core.errors import LockError
from ..core.holder import Holder
from ..core.inspection.inspector import Inspector
from ..core.inspection.lock_info import LockInfo, State
from ..core.process import current
from ..core.protocol.keys import name_for
from ..locks import inspector, key_prefix, make_one
from ..options import LockOptions
from . import guard, inside  # noqa: F401 - a test without the kit is refused a real Redis
from .memory import Memory

if TYPE_CHECKING:
    from django.test import SimpleTestCase
    from typing_extensions import Unpack

    from ..core.locks.layered import LockHandle
    from ..options import DoorOptions

    _TestCase = SimpleTestCase
else:
    _TestCase = object

Leftovers = Literal["fail", "warn", "ignore"]
_Result = TypeVar("_Result")


class LockHelpers:
    """The helpers of the ``TestCase`` mixin and of the pytest fixture; see :doc:`testing`."""

    _started: Memory | None = None

    def _start_locks(self) -> ExitStack:
        """Begin with empty servers, and return what is to be closed at the end."""
        started = ExitStack()
        self._started = started.enter_context(Memory())
        return started

    def _report_leftovers(self, leftovers: Leftovers) -> None:
        """Tell which locks are still held. Raises AssertionError with ``fail``."""
        known = get_args(Leftovers)
        if leftovers not in known:
            raise ValueError(f"for leftover locks give one of {known}, not {leftovers!r}")
        if leftovers != "ignore" and (left := _aside(self._memory.left_held)):
            text = "locks are held at the end of the test: " + "; ".join(map(_described, left))
            if leftovers == "fail":
                raise AssertionError(text)
            warnings.warn(text, stacklevel=2)

    @property
    def _memory(self) -> Memory:
        if self._started is None:
            raise RuntimeError("there is no server in memory yet: call super().setUp() in setUp()")
        return self._started

    def _info(self, key: str, using: str | None) -> LockInfo:
        self._memory  # noqa: B018 - says what is missing
        return _aside(lambda: inspector(using).get(name_for(key_prefix(), key)))

    @contextmanager
    def held_elsewhere(
        self, key: str, *, user: str = "", **options: Unpack[DoorOptions]
    ) -> Iterator[LockHandle]:
        """Hold ``key`` as another process does, for the time of the block; gives the handle.

        ``options``: those of :class:`LockOptions`, as ``shared``, ``limit``, ``timeout``,
        ``renew``; ``label``, ``note`` and ``user`` are for the record of the holder. Raises
        LockBusy where it is held already.
        """
        self._memory  # noqa: B018 - says what is missing
        given = LockOptions(**options)
        one = make_one(key, replace(given, reentrant=False))
        record = Holder(
            label=given.label,
            user=user,
            note=given.note,
            host="elsewhere.invalid",
            pid=os.getpid() + 1,
            thread="MainThread",
        ).to_json()
        owner = current(_get_running_loop() is not None)
        held: LockHandle = _aside(lambda: inside.take_as(one, record, owner))
        try:
            yield held
        finally:
            # It may be lost meanwhile, as to a force-release that is being tested.
            with suppress(LockError):
                _aside(held.release)

    def lost(self, held: LockHandle | str, *, by: str = "", reason: str = "") -> None:
        """Lose ``held`` now: a handle, or the key of what this process holds.

        It is as if its lease had run out; with ``by`` or ``reason`` it is force-released. Raises
        LookupError where nothing of the kind is held here.
        """
        key = held if isinstance(held, str) else held.key
        if isinstance(held, str):
            grants = inside.held_here(name_for(key_prefix(), key))
        else:
            grants = [held.grant] if held.grant.held_by() else []
        if not grants:
            raise LookupError(f"the lock {key!r} is not held by this process")
        for grant in grants:
            _aside(partial(_take_away, grant, by, reason))
            error = _aside(partial(inside.loss_of, grant)) if by or reason else grant.ran_out()
            grant.lose(error)

    def unreachable(self) -> AbstractContextManager[None]:
        """Let nobody reach Redis for the time of the block: LockUnavailable."""
        return self._memory.unreachable()

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass at once, for leases, renewals, and threads that wait.

        Not in asyncio: there is :meth:`aadvance`. Raises ValueError for a negative time.
        """
        self._memory.advance(seconds)

    async def aadvance(self, seconds: float) -> None:
        """Do the same for what was taken in this event loop. Tasks that wait sleep on, though."""
        await self._memory.aadvance(seconds)

    def assert_locked(self, key: str, *, using: str | None = None) -> LockInfo:
        """Assert that ``key`` is held in the cache ``using``; return by whom, and what is known."""
        info = self._info(key, using)
        if info.state is State.FREE:
            raise AssertionError(f"nobody holds the lock {key!r}")
        return info

    def assert_not_locked(self, key: str, *, using: str | None = None) -> None:
        """Assert that anybody may take ``key`` now."""
        info = self._info(key, using)
        if info.state is not State.FREE:
            raise AssertionError(f"the lock is not free: {_described(info)}")

    def assert_released(self, key: str, *, using: str | None = None) -> None:
        """Assert that nobody holds ``key`` any more; ``min_hold`` may still run."""
        info = self._info(key, using)
        if info.state not in {State.FREE, State.KEPT}:
            raise AssertionError(f"the lock was not released: {_described(info)}")

    def assert_waiting(
        self, key: str, count: int, *, using: str | None = None, within: float = 5.0
    ) -> None:
        """Assert that ``count`` callers wait for ``key``, or will ``within`` so many seconds."""
        give_up_at = time.monotonic() + within
        while (waiting := self._info(key, using).waiting) != count:
            if time.monotonic() >= give_up_at:
                raise AssertionError(f"{waiting} wait for the lock {key!r}, not {count}")
            time.sleep(0.002)


class LockTester(LockHelpers):
    """The helpers as a context manager, with servers in memory for the time of the block.

    ``leftovers``: what becomes of locks that are held at its end: ``fail``, ``warn``, ``ignore``.
    """

    def __init__(self, leftovers: Leftovers = "fail") -> None:
        self._leftovers = leftovers
        self._open = ExitStack()

    def __enter__(self) -> LockTester:
        self._open = self._start_locks()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        with self._open:
            # A test that has failed already need not fail for this, too.
            if kind is None:
                self._report_leftovers(self._leftovers)


class LockTestMixin(LockHelpers, _TestCase):
    """Begin each test with an empty server in memory; write it before the test case.

    ``class PayTests(LockTestMixin, TestCase)``. It suits SimpleTestCase, TestCase,
    TransactionTestCase, and async tests of them. What ``setUpClass()`` and ``setUpTestData()``
    lock is on another server in memory. ``leftover_locks``: what becomes of locks that
    are held at the end of a test: ``fail`` (the default), ``warn`` or ``ignore``.
    """

    leftover_locks: Leftovers = "fail"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases = cls.__mro__
        if unittest.TestCase in bases[: bases.index(LockTestMixin)]:
            raise TypeError(
                f"put LockTestMixin before the test case in the bases of {cls.__name__}: "
                "its tests would lock in the real Redis"
            )

    @classmethod
    def setUpClass(cls) -> None:
        cls.addClassCleanup(Memory().__enter__().close)
        super().setUpClass()

    def setUp(self) -> None:
        started = self._start_locks()
        # Last of all, as the test's own cleanups may let locks go.
        self.addCleanup(started.close)
        self.addCleanup(lambda: self._report_leftovers(self.leftover_locks))
        super().setUp()


def _described(info: LockInfo) -> str:
    return f"{info.key!r} is {info.state.value}, by {info.holder or 'another program'}"


def _aside(func: Callable[[], _Result]) -> _Result:
    """Return ``func()``, which blocks: called in another thread if an event loop runs here."""
    if _get_running_loop() is None:
        return func()
    with ThreadPoolExecutor(1, "setnx-lock-testing") as thread:
        return thread.submit(func).result()


def _take_away(grant: Any, by: str, reason: str) -> None:
    name = grant.target.keys[0]
    looking = Inspector(grant.target.client, name.removesuffix(grant.key))
    seen = looking.get(name)
    mine = [share.fingerprint for share in seen.holders if share.token == grant.token]
    looking.force_release(name, mine[0] if mine else seen.fingerprint, by=by, reason=reason)
