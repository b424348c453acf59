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

from ..core.errors import LockError, LockLost
from ..core.holder import Holder
from ..core.inspection.inspector import Inspector
from ..core.inspection.lock_info import LockInfo, State
from ..core.protocol.keys import name_for
from ..locks import inspector, key_prefix, make_one
from ..options import LockOptions
from . import inside
from .server import Clocks, MemoryServers

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
_FREE = frozenset({State.FREE})


class LockHelpers:
    """The helpers of the ``TestCase`` mixin and of the pytest fixture; see :doc:`testing`."""

    _started: Clocks | None = None

    def _start_locks(self) -> ExitStack:
        """Begin with empty servers, and return what is to be closed at the end."""
        started = ExitStack()
        memory = started.enter_context(MemoryServers())
        self._started = started.enter_context(Clocks(memory))
        return started

    def _report_leftovers(self, leftovers: Leftovers) -> None:
        """Tell which locks are still held. Raises AssertionError with ``fail``."""
        known = get_args(Leftovers)
        if leftovers not in known:
            raise ValueError(f"for leftover locks give one of {known}, not {leftovers!r}")
        if leftovers != "ignore" and (left := _aside(self._clocks.servers.left_held)):
            text = "locks are held at the end of the test: " + "; ".join(map(_described, left))
            if leftovers == "fail":
                raise AssertionError(text)
            warnings.warn(text, stacklevel=2)

    @property
    def _clocks(self) -> Clocks:
        if self._started is None:
            raise RuntimeError("there is no server in memory yet: call super().setUp() in setUp()")
        return self._started

    def _info(self, key: str, using: str | None) -> LockInfo:
        self._clocks  # noqa: B018 - says what is missing
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
        self._clocks  # noqa: B018 - says what is missing
        given = replace(LockOptions(**options), reentrant=False)
        held = _aside(lambda: _take_elsewhere(key, user, given))
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
        if isinstance(held, str):
            found: list[Any] = inside.held_here(name_for(key_prefix(), held))
        else:
            found = [held.grant]
        if not found:
            raise LookupError(f"the lock {held!r} is not held by this process")
        for one in dict.fromkeys(found):
            error = _aside(partial(_taken_away, one, by, reason))
            one.lose(error or one.ran_out())

    def unreachable(self) -> AbstractContextManager[None]:
        """Let nobody reach Redis for the time of the block: LockUnavailable."""
        return self._clocks.servers.unreachable()

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass at once, for leases, renewals, and threads that wait.

        Not in asyncio: there is :meth:`aadvance`. Raises ValueError for a negative time.
        """
        self._clocks.advance(seconds)

    async def aadvance(self, seconds: float) -> None:
        """Do the same for what was taken in this event loop. Tasks that wait sleep on, though."""
        await self._clocks.aadvance(seconds)

    def assert_locked(self, key: str, *, using: str | None = None) -> LockInfo:
        """Assert that ``key`` is held in the cache ``using``; return by whom, and what is known."""
        info = self._info(key, using)
        if info.state in _FREE:
            raise AssertionError(f"nobody holds the lock {key!r}")
        return info

    def assert_not_locked(self, key: str, *, using: str | None = None) -> None:
        """Assert that anybody may take ``key`` now."""
        info = self._info(key, using)
        if info.state not in _FREE:
            raise AssertionError(f"the lock is not free: {_described(info)}")

    def assert_released(self, key: str, *, using: str | None = None) -> None:
        """Assert that nobody holds ``key`` any more; ``min_hold`` may still keep it from others."""
        info = self._info(key, using)
        if info.state not in {*_FREE, State.KEPT}:
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
        memory = MemoryServers()
        memory.__enter__()
        cls.addClassCleanup(memory.close)
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


def _take_elsewhere(key: str, user: str, options: LockOptions) -> LockHandle:
    """Take ``key`` as another process would. Raises LockBusy."""
    one = make_one(key, options)
    record = Holder(
        label=options.label,
        user=user,
        note=options.note,
        host="elsewhere.invalid",
        pid=os.getpid() + 1,
        thread="MainThread",
    ).to_json()
    return inside.take_as(one, record)  # type: ignore[no-any-return]  # it is one


def _taken_away(grant: Any, by: str, reason: str) -> LockLost | None:
    """Take it away on the server; return what its holder is told, if by somebody."""
    name = inside.name_of(grant)
    looking = Inspector(grant.target.client, name.removesuffix(grant.key))
    seen = looking.get(name)
    mine = [one for one in seen.holders if one.token == grant.token]
    if not grant.handles or not seen.is_held:
        raise LookupError(f"the lock {grant.key!r} is not held, and so cannot be lost")
    fingerprint = mine[0].fingerprint if mine else seen.fingerprint
    looking.force_release(name, fingerprint, by=by, reason=reason)
    error = inside.loss_of(grant)
    if error is None:
        raise AssertionError(f"the lock {grant.key!r} could not be taken away")
    return error if by or reason else None
