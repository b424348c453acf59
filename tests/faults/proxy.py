"""A TCP proxy before a server, which makes the network's faults when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

DEADLINE = 10.0
CHUNK = 1 << 16


class _Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.request = b""
        self.number = -1
        self.answered = asyncio.Event()
        self.answered.set()

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()
        self.answered.set()


class Proxy:
    """Relays to 127.0.0.1:``upstream``. Use it in a ``with`` block.

    ``requests`` holds what the clients sent, one item a round trip: a pipeline is one item.
    The set-up of a connection (HELLO, CLIENT SETINFO) is in it like everything else.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.requests: list[bytes] = []
        self.holds = threading.Event()
        self._dropping: tuple[bytes, threading.Event] | None = None
        self._dropping_all: bytes | None = None
        self._garbling: bytes | None = None
        self._holding: bytes | None = None
        self._holds_once = False
        self._halving: bytes | None = None
        self._halves_once = False
        self._gate = asyncio.Event()
        self._held: list[_Link] = []
        self._delay = 0.0
        self._serving: set[asyncio.Task[Any]] = set()
        self._clients: list[redis.Redis] = []
        self._socket = self._bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def round_trips(self) -> int:
        return len(self.requests)

    def client(self, **options: Any) -> redis.Redis:
        """Return a client through the proxy, made with redis-py's ``options``."""
        client = redis.Redis(**{"host": "127.0.0.1", "port": self.port, **options})
        self._clients.append(client)
        return client

    def drop_next_reply(self, match: bytes = b"") -> threading.Event:
        """Cut the connection instead of answering the next request that contains ``match``.

        The server carries the request out. The event returned is set when that has happened.
        """
        dropped = threading.Event()
        self._dropping = (match, dropped)
        return dropped

    def drop_replies(self, match: bytes) -> None:
        """Cut the connection instead of answering whenever a request contains ``match``."""
        self._dropping_all = match

    def garble_next_reply(self, match: bytes) -> None:
        """Say what is no reply of Redis before the reply to the next request with ``match``."""
        self._garbling = match

    def cut_all(self) -> None:
        """Cut every connection; new ones are served."""
        self._call(self._cut_all())

    def refuse(self) -> None:
        """Cut every connection and refuse new ones, as a server that is down does."""
        self._call(self._refuse())

    def accept(self) -> None:
        """Undo refuse(), on the same port."""
        self._call(self._listen())

    def hold(self, match: bytes = b"", *, once: bool = False) -> None:
        """Keep back the requests that contain ``match``; ``holds`` is set when one arrives.

        ``once``: the first only.
        """
        self.holds.clear()
        self._gate = asyncio.Event()
        self._holding = match
        self._holds_once = once

    def halve_replies(self, match: bytes, *, once: bool = False) -> None:
        """Keep back all but the beginning of the answers to the requests that contain ``match``.

        ``holds`` is set when one has begun. ``once``: the first only.
        """
        self.holds.clear()
        self._gate = asyncio.Event()
        self._halving = match
        self._halves_once = once

    def let_go(self) -> None:
        """Send on what was held, also of clients that have gone; return when it is answered."""
        self._call(self._let_go())

    def delay_replies(self, seconds: float) -> None:
        """Let every reply take so much longer."""
        self._delay = seconds

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.close()
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        self._socket.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    @staticmethod
    def _bound(port: int) -> socket.socket:
        """Return a socket that keeps the port and, until it listens, refuses connections."""
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.setblocking(False)
        return bound

    async def _listen(self) -> None:
        # Without asyncio's own server: closed while it accepts, it leaks what it accepted
        # (https://github.com/python/cpython/issues/109564).
        self._socket.listen()
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        # Who asked has gone, sometimes.
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            accepted, _ = self._socket.accept()
            task = self._loop.create_task(self._serve(accepted))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            # Also if the task is cancelled before it begins.
            task.add_done_callback(lambda _: accepted.close())

    async def _refuse(self) -> None:
        if self._loop.remove_reader(self._socket):
            self._socket.close()
            self._socket = self._bound(self.port)
        await self._cut_all()

    async def _end(self) -> None:
        await self._refuse()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        # What was closed is told so in the next turn of the loop.
        await asyncio.sleep(0)

    async def _cut_all(self) -> None:
        tasks = list(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _let_go(self) -> None:
        self._holding = self._halving = None
        self._gate.set()
        await asyncio.gather(*(link.answered.wait() for link in self._held))
        self._held.clear()

    async def _serve(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        try:
            await self._relay(reader, writer)
        finally:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            replies, server = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            return
        link = _Link(writer, server)
        sending = asyncio.create_task(self._send_requests(link, reader))
        try:
            # Until the server hangs up: also when the client has gone, for what it sent before.
            await self._pass_replies(link, replies)
        finally:
            sending.cancel()
            link.cut()

    async def _send_requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if link.answered.is_set():
                    link.answered.clear()
                    link.request = b""
                    link.number = len(self.requests)
                    self.requests.append(b"")
                link.request += data
                self.requests[link.number] = link.request
                if self._holding is not None and self._holding in link.request:
                    self._held.append(link)
                    if self._holds_once:
                        self._holding = None
                    self.holds.set()
                    await self._gate.wait()
                link.server.write(data)
        link.server.write_eof()

    async def _pass_replies(self, link: _Link, replies: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await replies.read(CHUNK):
                if self._dropping and self._dropping[0] in link.request:
                    dropped, self._dropping = self._dropping[1], None
                    link.cut()
                    dropped.set()
                    return
                if self._dropping_all is not None and self._dropping_all in link.request:
                    link.cut()
                    return
                link.answered.set()
                await asyncio.sleep(self._delay)
                if self._halving is not None and self._halving in link.request:
                    link.client.write(data[:2])
                    data = data[2:]
                    if self._halves_once:
                        self._halving = None
                    self.holds.set()
                    await self._gate.wait()
                if self._garbling is not None and self._garbling in link.request:
                    self._garbling, data = None, b"garbage\r\n" + data
                link.client.write(data)
