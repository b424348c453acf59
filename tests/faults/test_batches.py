"""More locks at once than go into one write, through a proxy that buffers nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import redis

from django_setnx_lock.core import RedisLock
from tests.processes import readable
from tests.servers import ONCE
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

MANY = 3000
SMALL = 1 << 14


def narrow(sock: socket.socket) -> socket.socket:
    """Have little room for what was sent and what has come."""
    for which in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, which, SMALL)
    return sock


class NarrowConnection(redis.Connection):
    def _connect(self) -> Any:
        return narrow(super()._connect())  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


@contextlib.contextmanager
def unbuffered(upstream: int) -> Iterator[int]:
    """Give the port of a proxy with one thread, which reads nothing while it cannot write."""
    with narrow(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=_serve, args=[listener, upstream], daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _serve(listener: socket.socket, upstream: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", upstream))
            threading.Thread(target=_relay, args=[client, server], daemon=True).start()


def _relay(client: socket.socket, server: socket.socket) -> None:
    to = {client: server, server: client}
    with client, server, contextlib.suppress(OSError):
        while True:
            for one in readable(client, server):
                data = one.recv(1 << 12)
                if not data:
                    return
                to[one].sendall(data)


def client_of(port: int, limit: float) -> redis.Redis:
    pool = redis.ConnectionPool(NarrowConnection, port=port, socket_timeout=limit, retry=ONCE)
    return redis.Redis.from_pool(pool)


def take_and_release(client: redis.Redis, count: int) -> int:
    """Take so many and release them; return how many there were."""
    taken = take_each([RedisLock(client, f"lock:{number}") for number in range(count)])
    held = [one.held for one in taken if one.held]
    for error in release_each(held):
        raise error
    return len(held)


def test_thousands_of_locks_at_once_choke_on_no_full_buffer(real_server: RealServer) -> None:
    with unbuffered(real_server.port) as port, client_of(port, 5) as client:
        assert take_and_release(client, MANY) == MANY

    assert not real_server.client().keys("lock:*")
