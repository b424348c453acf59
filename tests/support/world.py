"""What a behaviour has at hand: locks of one kind, servers, and jobs beside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from django_setnx_lock import signals
from django_setnx_lock.core import Inspector, LockInfo, Outcome
from tests.support import seams
from tests.support.drivers import Face, growth
from tests.support.kinds import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import redis

    from tests.servers import Server
    from tests.support.drivers import Driver, Job
    from tests.support.kinds import Kind

T = TypeVar("T")
PREFIX = "lock:"
# When a lease of 30 seconds is renewed: a third of it is over.
DUE = 10.5


class World:
    """Locks of one ``kind``, used as ``driver`` does, on ``servers``.

    ``client``: what the locks ask; ``direct``: what the test looks with, or meddles.
    """

    def __init__(self, kind: Kind, driver: Driver, servers: list[Server]) -> None:
        self.kind = kind
        self.driver = driver
        self.servers = servers
        self.server: Any = servers[0]
        self.clients: list[Any] = [kind.client(server) for server in servers]
        self.direct: redis.Redis = self.server.admin
        self._waits: list[str] = []
        # An operator asks in no event loop.
        self._operator = ThreadPoolExecutor(1, "contract-operator")

    @property
    def client(self) -> Any:
        return self.clients[0]

    def lock(self, name: str = "", **options: Any) -> Face:
        """Make a lock of the kind."""
        return Face(self.kind.make(self.clients, name, **options), self.driver)

    def rival(self, **options: Any) -> Face:
        """Make a lock that cannot be held beside one of the kind."""
        return Face(self.kind.make_rival(self.clients, **options), self.driver)

    def asks_at(self, client: Any) -> None:
        """Have the locks that are made from now on use ``client``."""
        self.clients = [client, *self.clients[1:]]

    # Beside the test

    def spawn(self, body: Coroutine[Any, Any, Any]) -> Job:
        return self.driver.spawn(body)

    async def sleep(self, seconds: float) -> None:
        await self.driver.sleep(seconds)

    async def eventually(self, condition: Callable[[], Any], seconds: float = 20) -> Any:
        return await self.driver.eventually(condition, seconds)

    async def renewed(self, *handles: Any, after: float = 0) -> None:
        """Return when each was renewed; ``after``: have so many seconds pass before."""
        have_grown = growth(*handles, after=after)
        if after:
            seams.pass_time(after)
        await self.eventually(have_grown)

    def pass_time(self, seconds: float) -> None:
        """Have leases be older by so much, here and not in Redis."""
        seams.pass_time(seconds)

    async def waiting(self, count: int) -> None:
        """Return when so many callers wait for the contested name."""
        if self.kind.has_queue:
            await self.eventually(lambda: self.info().waiting == count)
        else:
            await self.eventually(lambda: len(self._waits) >= count)

    def sleepers(self) -> int:
        """Return on how many connections somebody waits to be woken."""
        clients: Any = self.direct.client_list()
        return sum("b" in one["flags"] for one in clients)

    def begins_to_wait(self, key: str, **_: Any) -> None:
        self._waits.append(key)

    def __enter__(self) -> World:
        signals.lock_waiting.connect(self.begins_to_wait)
        return self

    def __exit__(self, *_: object) -> None:
        signals.lock_waiting.disconnect(self.begins_to_wait)
        self._operator.shutdown()

    # What stands in Redis

    def ask(self, question: Callable[[Inspector], T], server: int = 0) -> T:
        """Return what ``question`` returns, asked as an operator does."""
        client, protocol = self._directs()[server], self.kind.options.get("protocol", "setnx")
        inspector = Inspector(client, PREFIX, use_index=False, protocol=protocol)
        return self._operator.submit(question, inspector).result(20)

    def info(self, name: str = "") -> LockInfo:
        """Return what an operator sees of a name, the contested one if it is not given."""
        return self.ask(lambda inspector: inspector.get(name or self.kind.contested))

    def is_free(self) -> bool:
        """Return whether nothing stands at any name of the kind, on any server."""
        if self.kind.name == "timestamp":
            # A time stands there for a second after it is over.
            seconds, micros = self.direct.time()
            return int(self.direct.get(NAME) or 0) <= seconds * 1000 + micros // 1000
        return not any(client.exists(*self.kind.names) for client in self._directs())

    def _directs(self) -> list[redis.Redis]:
        return [self.direct, *(server.admin for server in self.servers[1:])]

    def steal(self) -> None:
        """Write at the contested name what another program does that takes the lock."""
        for client in self._directs():
            client.set(self.kind.contested, self.kind.thief, px=30_000)

    def force(self, by: str = "joe", reason: str = "stuck") -> Outcome:
        """Release by force what is held at the contested name."""
        name = self.kind.contested

        def release(inspector: Inspector) -> Outcome:
            seen = inspector.get(name)
            holder = seen.shares[0] if seen.shares else seen
            return inspector.force_release(name, holder.fingerprint, by=by, reason=reason)

        outcomes = [self.ask(release, server) for server in range(len(self.servers))]
        return outcomes[0]

    def lose(self) -> None:
        """Have the holder lose the lock, which somebody else has from then on or nobody."""
        if self.kind.is_shared:
            self.force()
        else:
            self.steal()

    def fences(self, held: Any) -> tuple[int, ...]:
        """Return the fencing numbers of ``held``: one, or one for each key."""
        if len(self.kind.names) > 1:
            return tuple(held.fences[name] for name in self.kind.names)
        return (held.fence,)
