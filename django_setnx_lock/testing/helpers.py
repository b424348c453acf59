"""What a test can do with locks, and what it can say of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from ..core.grant import Grant
from ..core.inspection import LockInfo, State
from . import elsewhere, racing
from .server import MemoryServers
from .time import Clocks

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.errors import LockBusy
    from ..core.held import Held
    from ..locks import Options

Leftovers = Literal["fail", "warn", "ignore"]
_LEFTOVERS = ("fail", "warn", "ignore")
_Result = TypeVar("_Result")


class LockHelpers:
    """The helpers of the ``TestCase`` mixin and of the pytest fixture; see docs/testing.md."""

    _memory: MemoryServers | None = None
    _clocks: Clocks

    def _start_locks(self) -> ExitStack:
        """Begin with empty servers. Gives what is to be closed at the end."""
        started = ExitStack()
        memory = started.enter_context(MemoryServers())
        self._clocks = started.enter_context(Clocks(memory))
        self._memory = memory
        return started

    def _report_leftovers(self, leftovers: Leftovers) -> None:
        """Say which locks are still held. Raises AssertionError with ``fail``."""
        if leftovers not in _LEFTOVERS:
            raise ValueError(f"for leftover locks give one of {_LEFTOVERS}, not {leftovers!r}")
        if leftovers == "ignore":
            return
        left = elsewhere.aside(self._servers.left_held)
        if left:
            text = "locks are held at the end of the test: " + "; ".join(map(_described, left))
            if leftovers == "fail":
                raise AssertionError(text)
            warnings.warn(text, stacklevel=2)

    @property
    def _servers(self) -> MemoryServers:
        if self._memory is None:
            raise RuntimeError("there is no server in memory yet: call super().setUp() in setUp()")
        return self._memory

    def _info(self, key: str, using: str | None) -> LockInfo:
        self._servers  # noqa: B018 - says what is missing
        return elsewhere.info_of(key, using)

    @contextmanager
    def held_elsewhere(self, key: str, **options: Unpack[Options]) -> Iterator[Held]:
        """Somebody else holds ``key`` for the time of the block; gives the handle.

        ``options``: those of :func:`lock`, as ``shared``, ``limit``, ``timeout``, ``renew``, and
        ``label``, ``user``, ``note`` for the record of the holder. Raises LockBusy where it is
        held already.
        """
        self._servers  # noqa: B018 - says what is missing
        held = elsewhere.aside(lambda: elsewhere.take_elsewhere(key, dict(options)))
        try:
            yield held
        finally:
            elsewhere.aside(lambda: elsewhere.leave_elsewhere(held))

    def lost(self, held: Held | str, *, by: str = "", reason: str = "") -> None:
        """Have ``held``, a handle or the key of what this process holds, lost now.

        As if its lease had run out; with ``by`` or ``reason`` it is force-released. Raises
        LookupError where nothing of the kind is held here.
        """
        found: list[Grant] = elsewhere.held_here(held) if isinstance(held, str) else [held]
        if not found:
            raise LookupError(f"the lock {held!r} is not held by this process")
        for one in found:
            elsewhere.lose(one, by, reason)

    def drop_next_reply(self, count: int = 1) -> None:
        """Have the next ``count`` requests carried out, but their replies never arrive."""
        self._servers.wire.replies_to_drop += count

    def unreachable(self) -> AbstractContextManager[None]:
        """Have nobody reach Redis for the time of the block: LockUnavailable."""
        return self._servers.unreachable()

    def advance(self, seconds: float) -> None:
        """Have ``seconds`` pass at once, for leases, renewals, and threads that wait.

        Not in asyncio: there is :meth:`aadvance`. Raises ValueError for a negative time.
        """
        self._servers  # noqa: B018 - as above
        self._clocks.advance(seconds)

    async def aadvance(self, seconds: float) -> None:
        """The same for what was taken in this event loop. Tasks that wait sleep on, though."""
        self._servers  # noqa: B018 - as above
        await self._clocks.aadvance(seconds)

    def assert_locked(self, key: str, *, using: str | None = None) -> LockInfo:
        """Somebody holds ``key`` in the cache ``using``. Gives who, and what else is known."""
        info = self._info(key, using)
        if elsewhere.is_free(info):
            raise AssertionError(f"nobody holds the lock {key!r}")
        return info

    def assert_not_locked(self, key: str, *, using: str | None = None) -> None:
        """Anybody may take ``key`` now."""
        info = self._info(key, using)
        if not elsewhere.is_free(info):
            raise AssertionError(f"the lock is not free: {_described(info)}")

    def assert_released(self, key: str, *, using: str | None = None) -> None:
        """Nobody holds ``key`` any more, though ``min_hold`` may still keep it from others."""
        info = self._info(key, using)
        if not elsewhere.is_free(info) and info.state is not State.KEPT:
            raise AssertionError(f"the lock was not released: {_described(info)}")

    def assert_waiting(
        self, key: str, count: int, *, using: str | None = None, within: float = 5.0
    ) -> None:
        """``count`` callers wait for ``key``, or will within so many seconds."""
        give_up_at = time.monotonic() + within
        while (waiting := self._info(key, using).waiting) != count:
            if time.monotonic() >= give_up_at:
                raise AssertionError(f"{waiting} wait for the lock {key!r}, not {count}")
            time.sleep(0.002)

    @contextmanager
    def assertNumLockRoundTrips(self, num: int) -> Iterator[None]:  # noqa: N802 - as assertNumQueries
        """In the block Redis is asked about locks ``num`` times, renewals by the thread apart."""
        requests = self._servers.wire.requests
        before = len(requests)
        yield
        made = requests[before:]
        if len(made) != num:
            listed = "".join(f"\n{number}. {one}" for number, one in enumerate(made, 1))
            raise AssertionError(f"{len(made)} lock round trips, not {num}{listed and ':'}{listed}")

    def assert_exclusive(
        self,
        call: Callable[[], _Result],
        *,
        inside: str,
        threads: int = 8,
        within: float = 10.0,
    ) -> list[_Result | LockBusy]:
        """Call ``call`` in ``threads`` threads at once: no two are ``inside`` at the same time.

        ``inside``: the dotted path of a function that is called under the lock, as ``mock.patch``
        takes it. One thread comes in there before the others ask for a lock, and stays until each
        of them has come in too, waits for a lock that it holds, or has ended: so it fails without
        the lock, and not with it, whatever the timing. It fails, too, where nothing is proven:
        nobody came in, nobody was kept out by a lock that was held in there, or a thread did none
        of all that ``within`` so many seconds.

        Gives what the calls returned, in no order; LockBusy for those that raised it. What else
        they raise is raised here.
        """
        self._servers  # noqa: B018 - as above
        return racing.run(call, inside=inside, threads=threads, within=within)


class LockTester(LockHelpers):
    """The helpers as a context manager, with servers in memory for the time of the block.

    ``leftovers``: what becomes of locks that are held at its end: ``fail``, ``warn``, ``ignore``.
    """

    def __init__(self, leftovers: Leftovers = "fail") -> None:
        self._leftovers = leftovers
        self._started = ExitStack()

    def __enter__(self) -> LockTester:
        self._started = self._start_locks()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        with self._started:
            # What has failed already need not fail for this, too.
            if kind is None:
                self._report_leftovers(self._leftovers)


def _described(info: LockInfo) -> str:
    return f"{info.key!r} is {info.state.value}, by {info.holder or 'another program'}"
