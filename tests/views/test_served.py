"""All shapes of views under the servers that run them: gunicorn, uvicorn, and runserver."""

from __future__ import annotations

import http.client
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import RedisLock
from tests.processes import eventually
from tests.servers import free_port
from tests.views.shapes import SHAPES
from tests.web_servers import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RealServer

MODULE = "tests.served"
PYTHON = [sys.executable, "-m"]
SERVERS = {
    "gunicorn": [*PYTHON, "gunicorn", f"{MODULE}:application", "-b", "127.0.0.1:{port}"],
    "uvicorn": [*PYTHON, "uvicorn", f"{MODULE}:asgi", "--port", "{port}"],
    "runserver": [*PYTHON, MODULE, "runserver", "127.0.0.1:{port}", "--noreload"],
}


class Shapes(WebServer):
    """A server of the shapes."""

    def post(self, path: str) -> tuple[int, str | None]:
        """Return the status and the ``Retry-After`` of the answer, which is read to its end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=45)
        try:
            connection.request("POST", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status, response.headers["Retry-After"]
        finally:
            connection.close()


@pytest.fixture(params=SERVERS)
def served(
    request: pytest.FixtureRequest, real_server: RealServer, tmp_path: Path
) -> Iterator[tuple[Shapes, Path]]:
    """Give a server of the shapes, and the file with what it says."""
    if request.param not in ("runserver", *filter(find_spec, SERVERS)):
        pytest.skip(f"{request.param} is not installed")
    shapes, said = Shapes(free_port()), tmp_path / "said"
    command = [part.format(port=shapes.port) for part in SERVERS[request.param]]
    environment = {
        "TEST_SERVER_URL": real_server.url,
        "DATABASE": str(tmp_path / "shapes.sqlite3"),
    }
    with said.open("w") as output, shapes.started(command, output, **environment):
        yield shapes, said


@pytest.mark.matrix
@pytest.mark.timeout(120)
def test_every_shape_answers_under_every_server_as_in_the_table(
    served: tuple[Shapes, Path], real_server: RealServer
) -> None:
    shapes, said = served
    free, lost, busy, service = {}, {}, {}, {}

    for name in SHAPES:
        free[name] = shapes.post(f"/{name}/7/")
        lost[name] = shapes.post(f"/{name}/9/?then=lose")
    with RedisLock(real_server.client(), "lock:order:7"), real_server.client() as client:
        for name in SHAPES:
            busy[name] = shapes.post(f"/{name}/7/")
        with RedisLock(client, "lock:stock"):
            for name in SHAPES:
                service[name] = shapes.post(f"/{name}/8/?then=service")

    assert free == {name: (shape.status, None) for name, shape in SHAPES.items()}
    assert lost == {
        name: (503 if shape.status < 403 else shape.status, None) for name, shape in SHAPES.items()
    }
    assert busy == dict.fromkeys(SHAPES, (409, "2"))
    assert service == dict.fromkeys(SHAPES, (409, "2"))
    keys = [f"lock:order:{pk}" for pk in (7, 8, 9)]
    # A client may have read a response before the server closes it.
    assert eventually(lambda: not real_server.client().exists(*keys))
    for trouble in ("Traceback", "Subject: "):
        assert trouble not in said.read_text()
