"""The masters that a Redlock is taken on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from redis import exceptions as redis_exceptions

from .. import blocking, protocol
from ..calling import unavailable
from ..errors import LockUnavailable, subject
from ..line import Command
from ..place import place_of
from .exchange import Exchange
from .wire import wires

DEFAULT_TIMEOUT = 0.1
# Of two, none may fail.
FEWEST = 3


class Masters:
    """Independent servers that are asked together.

    ``clients``: a redis-py client of each. ``names``: what messages call them. ``timeout``: the
    seconds that each of them has to be connected to and to answer; all have the same ones.
    """

    def __init__(self, clients: Sequence[Any], names: Sequence[str], timeout: float) -> None:
        self.clients = tuple(clients)
        self.names = tuple(names)
        self.timeout = timeout
        self.places = tuple(map(place_of, clients))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.names)}>"

    @property
    def connection_pool(self) -> Masters:
        """What the renewal knows a server by: equal locks are renewed together."""
        return self

    def ask(
        self,
        request: protocol.Request,
        *,
        to: Iterable[int] | None = None,
        awaited: Iterable[int] | None = None,
        insists: bool = False,
        repeated: Callable[[], None] | None = None,
    ) -> list[Any]:
        """The replies to ``request``, or exceptions, of the masters with the numbers ``to``.

        Takes no longer than the timeout. Of those that are not ``awaited`` it takes what comes in
        time. ``insists``: whether it is sent also to a master that was connected to only when
        the time was over. ``repeated`` is called if a copy may be still under way.
        """
        blocking.check()
        replies = self._ask(
            ("EVALSHA", request.script.sha, *request.arguments),
            to=to,
            awaited=awaited,
            in_full=("EVAL", request.script.source, *request.arguments),
            insists=insists,
            repeated=repeated,
        )
        if repeated and any(isinstance(reply, Exception) for reply in replies):
            repeated()
        return replies

    def exist(self, name: str) -> list[Any]:
        """Whether anything stands at ``name``, or exceptions."""
        blocking.check()
        return self._ask(("EXISTS", name))

    def _ask(
        self,
        command: Command,
        *,
        to: Iterable[int] | None = None,
        awaited: Iterable[int] | None = None,
        **options: Any,
    ) -> list[Any]:
        numbers = range(len(self.clients)) if to is None else list(to)
        clients = [self.clients[number] for number in numbers]
        wanted = None if awaited is None else set(awaited)
        with Exchange(clients, [command], wires(self.timeout), **options) as exchange:
            calls = zip(numbers, exchange.calls, strict=True)
            exchange.wait(
                self.timeout,
                [call for number, call in calls if wanted is None or number in wanted],
            )
            return [
                call.replies[0] if call.replies else call.error or no_answer()
                for call in exchange.calls
            ]

    def unavailable(self, replies: Sequence[Any], key: str) -> LockUnavailable:
        """The error for ``replies`` of which too few are answers."""
        causes = {
            name: unavailable(reply, key).cause
            for name, reply in zip(self.names, replies, strict=True)
            if isinstance(reply, Exception)
        }
        asked = len(self.names) - len(causes)
        why = ", ".join(f"{name}: {cause}" for name, cause in causes.items())
        counted = Counter(causes.values()).most_common(1)
        return LockUnavailable(
            f"{subject(key)} unavailable: {asked} of {len(self.names)} masters answered, which "
            f"makes no majority that agrees" + (f" ({why})" if why else ""),
            key=key,
            cause=counted[0][0] if counted else "server",
        )

    def pipeline(self, **options: Any) -> NoReturn:
        """Refuse what asks for several locks in one round trip."""
        raise LockUnavailable(
            f"several locks at once, as admin actions take them, are not taken on several masters "
            f"({', '.join(self.names)}): give one cache alias with using"
        )


def no_answer() -> Exception:
    """What stands for a master that has not answered in time."""
    return redis_exceptions.TimeoutError("no answer in time")


# Those that are in use: to make one, and to look whether it may be, takes longer than to ask.
_known: WeakValueDictionary[tuple[object, ...], Masters] = WeakValueDictionary()


def masters_of(
    clients: Sequence[Any], names: Sequence[str] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> Masters:
    """The masters behind ``clients``; the same object for the same connection pools.

    Raises ValueError for fewer than three, for two on one server and for a ``timeout`` that is no
    time; TypeError for clients that are not of one server each, or of asyncio.
    """
    pools = [getattr(client, "connection_pool", None) for client in clients]
    names = None if names is None else tuple(names)
    # A timeout that cannot be hashed is refused below.
    known_by = (*map(id, pools), names, str(timeout))
    known = _known.get(known_by)
    if known is not None:
        return known
    protocol.milliseconds(timeout, "master_timeout")
    for client in clients:
        _refuse_unfit(client)
    found = Masters(clients, names or [place_of(client) for client in clients], timeout)
    _refuse_few_servers(found)
    _known[known_by] = found
    return found


def _refuse_unfit(client: Any) -> None:
    if any(kind.__module__.startswith("redis.asyncio") for kind in type(client).__mro__):
        raise TypeError("a Redlock has no asyncio: give clients of redis.Redis")
    if getattr(client, "connection_pool", None) is None:
        raise TypeError(
            f"each master of a Redlock is one server, which {type(client).__name__} is not"
        )


def _refuse_few_servers(masters: Masters) -> None:
    if len(masters.clients) < FEWEST:
        raise ValueError(
            f"a Redlock needs {FEWEST} masters at least, better 5, not {len(masters.clients)}: "
            "with fewer none of them may fail, so take the ordinary lock on one"
        )
    seen: dict[str, str] = {}
    for name, place in zip(masters.names, masters.places, strict=True):
        # Without the database: two of one server fail together.
        server = place.rpartition("/")[0] or place
        other = seen.setdefault(server, name)
        if other is not name or list(masters.names).count(name) > 1:
            raise ValueError(
                f"the masters {other!r} and {name!r} of a Redlock are one server, {server}: "
                "they would fail together"
            )
