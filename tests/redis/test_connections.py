"""Ways to a server: with a password, over TLS, over a unix socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from example_project.server import ServerError
from tests.processes import eventually
from tests.servers import RealServer, free_port
from tests.support.locks import INDEX, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = pytest.mark.real
# A certificate for localhost and 127.0.0.1 from a CA of its own, valid until 2120. It guards
# nothing but these tests.
TLS = Path(__file__).parent / "tls"
ONCE = Retry(NoBackoff(), 0)


def use(client: redis.Redis) -> None:
    """Take, renew and hand on a lock, to one who sleeps meanwhile."""
    lock = listed(client, "a")

    def wait() -> None:
        with listed(client, "a"):
            pass

    with ThreadPoolExecutor(1) as pool:
        with lock as held:
            held.reacquire()
            assert lock.locked()
            assert not listed(client, "a").acquire(blocking=False)
            waiting = pool.submit(wait)
            eventually(lambda: listening(client))
        waiting.result(10)
    assert not client.exists("lock:a", INDEX)


def listening(client: redis.Redis) -> bool:
    clients: Any = client.client_list()
    return any("b" in str(one["flags"]) for one in clients)


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tls_before(port: int) -> Iterator[int]:
    """Speak TLS on a port of its own for a server that was built without it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))
    pairs: list[socket.socket] = []

    def serve() -> None:
        while True:
            plain, _ = listener.accept()
            plain.settimeout(5)
            try:
                client = context.wrap_socket(plain, server_side=True)
            except OSError:
                plain.close()
                continue
            client.settimeout(None)
            server = socket.create_connection(("127.0.0.1", port))
            pairs.extend([client, server])
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    def serve_until_closed() -> None:
        with contextlib.suppress(OSError):
            serve()

    serving = threading.Thread(target=serve_until_closed, daemon=True)
    serving.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    # Whoever has just come is let in first.
    serving.join(10)
    for end in pairs:
        end.close()


@pytest.fixture
def tls_port(server: RealServer, nobody_looks: None) -> Iterator[int]:
    """Give the TLS port of a server of the kind: its own, if it was built with TLS.

    Nobody connects while it ends: CPython leaves a socket open that is reset before its handshake.
    """
    port = free_port()
    options = {
        "--tls-port": str(port),
        "--tls-cert-file": str(TLS / "server.pem"),
        "--tls-key-file": str(TLS / "server.key"),
        "--tls-auth-clients": "no",
    }
    flat = [word for option in options.items() for word in option]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(RealServer(server.binary, *flat))
        except ServerError as error:
            if "tls" not in str(error).lower():
                raise
            port = stack.enter_context(tls_before(server.port))
        yield port


def secure(port: int, **options: Any) -> redis.Redis:
    return redis.Redis(port=port, ssl=True, retry=ONCE, **options)


@REAL
def test_a_lock_works_over_tls(tls_port: int) -> None:
    with secure(tls_port, ssl_ca_certs=str(TLS / "ca.pem")) as client:
        use(client)


@REAL
def test_a_certificate_nobody_vouches_for_gives_no_lock(tls_port: int) -> None:
    with secure(tls_port) as client, pytest.raises(LockUnavailable) as caught:
        use(client)

    assert caught.value.cause == "unreachable"


@REAL
def test_a_client_that_speaks_no_tls_gets_no_lock(tls_port: int) -> None:
    with redis.Redis(port=tls_port, retry=ONCE) as client, pytest.raises(LockUnavailable) as caught:
        use(client)

    assert caught.value.cause == "unreachable"


@REAL
def test_a_lock_works_over_a_unix_socket(server: RealServer) -> None:
    with redis.Redis.from_url(server.unix_url) as client:
        use(client)


@REAL
def test_a_unix_socket_that_is_not_there_gives_no_lock(server: RealServer) -> None:
    path = str(server.directory / "nobody.sock")
    client = redis.Redis(unix_socket_path=path, retry=ONCE)
    with client, pytest.raises(LockUnavailable) as caught:
        use(client)

    assert caught.value.cause == "unreachable"


@REAL
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lock_works_with_a_password(server: RealServer, protocol: int) -> None:
    with RealServer(server.binary, "--requirepass", "s3cret") as guarded:
        use(guarded.client(password="s3cret", protocol=protocol))


@REAL
def test_a_lock_works_in_another_database(server: RealServer) -> None:
    use(server.client(db=3))


@REAL
@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lock_works_whatever_the_protocol(
    server: RealServer, protocol: int, decode: bool
) -> None:
    # Longer than a machine that is busy may need for an answer.
    use(server.client(protocol=protocol, decode_responses=decode, socket_timeout=20))
