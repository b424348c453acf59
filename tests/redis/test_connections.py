"""Ways to a server: with a password, over TLS, over a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockUnavailable
from example_project.server import ServerError
from tests.servers import ONCE, RealServer, free_port
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.locks import INDEX, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REAL = pytest.mark.real
drivers = pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
# A certificate for localhost and 127.0.0.1 from a CA of its own, valid until 2120. It guards
# nothing but these tests.
TLS = Path(__file__).parent / "tls"


def use(client: redis.Redis, driver: Driver) -> None:
    """Take, renew and hand on a lock, to one who sleeps meanwhile."""

    def lock() -> Face:
        return Face(listed(client, "a"), driver)

    async def wait() -> None:
        async with lock().block():
            pass

    async def work() -> None:
        async with lock().block() as held:
            await held.reacquire()
            assert await lock().locked()
            assert not await lock().acquire(blocking=False)
            waiting = driver.spawn(wait())
            await driver.eventually(lambda: listening(client))
        await waiting.result()

    driver.run(work())
    assert not client.exists("lock:a", INDEX)


def listening(client: redis.Redis) -> bool:
    clients: Any = client.client_list()
    return any("b" in str(one["flags"]) for one in clients)


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.transport.abort()


@contextlib.contextmanager
def tls_before(port: int) -> Iterator[int]:
    """Speak TLS on a port of its own for a server that was built without it.

    In one thread: OpenSSL garbles what one thread reads while another writes.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    serving: Future[tuple[int, Callable[[], object]]] = Future()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, requests), pump(answers, writer))

    async def serve() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        name = server.sockets[0].getsockname()
        serving.set_result((name[1], lambda: loop.call_soon_threadsafe(end.set)))
        await end.wait()
        server.close()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, serve())
        its_port, end = serving.result(10)
        yield its_port
        end()
        running.result(10)


@pytest.fixture
def tls_port(server: RealServer, nobody_looks: None) -> Iterator[int]:
    """Give the TLS port of a server of the kind: its own, if it was built with TLS.

    Nobody connects while it ends: CPython leaves a socket open that is reset before its handshake.
    """
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    for what, file in (("cert", "server.pem"), ("key", "server.key")):
        options += [f"--tls-{what}-file", str(TLS / file)]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(RealServer(server.binary, *options))
        except ServerError as error:
            if "tls" not in str(error).lower():
                raise
            port = stack.enter_context(tls_before(server.port))
        yield port


def secure(port: int, **options: Any) -> redis.Redis:
    return redis.Redis(port=port, ssl=True, retry=ONCE, **options)


@drivers
@REAL
def test_a_lock_works_over_tls(tls_port: int, driver: Driver) -> None:
    with secure(tls_port, ssl_ca_certs=str(TLS / "ca.pem")) as client:
        use(client, driver)


@drivers
@REAL
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda port, _: secure(port), id="no certificate"),
        pytest.param(lambda port, _: redis.Redis(port=port, retry=ONCE), id="no TLS"),
        pytest.param(
            lambda _, server: redis.Redis(
                unix_socket_path=str(server.directory / "nobody.sock"), retry=ONCE
            ),
            id="no socket",
        ),
    ],
)
def test_without_what_leads_to_the_server_there_is_no_lock(
    tls_port: int, server: RealServer, driver: Driver, make: Callable[[int, RealServer], Any]
) -> None:
    with make(tls_port, server) as client, pytest.raises(LockUnavailable) as caught:
        use(client, driver)

    assert caught.value.cause == "unreachable"


@drivers
@REAL
def test_a_lock_works_over_a_unix_socket(server: RealServer, driver: Driver) -> None:
    with redis.Redis.from_url(server.unix_url) as client:
        use(client, driver)


@drivers
@REAL
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lock_works_with_a_password(server: RealServer, protocol: int, driver: Driver) -> None:
    with RealServer(server.binary, "--requirepass", "s3cret") as guarded:
        use(guarded.client(password="s3cret", protocol=protocol), driver)
        with pytest.raises(LockUnavailable) as caught:
            use(guarded.client(password="wrong", retry=ONCE), driver)

    assert caught.value.cause == "denied"


@drivers
@REAL
@pytest.mark.parametrize(
    "options",
    [
        {"protocol": 2, "decode_responses": True},
        {"protocol": 3, "decode_responses": True},
        {"db": 3, "client_name": "mine"},
        {"socket_timeout": 20, "socket_connect_timeout": 10, "health_check_interval": 1},
        {"socket_keepalive": True, "single_connection_client": True},
        {"retry": ONCE, "retry_on_error": [redis.exceptions.ConnectionError]},
    ],
    ids=lambda options: " ".join([*options, str(options.get("protocol", ""))]),
)
def test_a_lock_works_with_the_options_of_the_client(
    server: RealServer, options: dict[str, Any], driver: Driver
) -> None:
    use(server.client(**options), driver)
