"""The web site, on threads of this process."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

from example_project.wsgi import application

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
TRIES = 20


class Site:
    """Serves the site on ``port``, or else the next free one, until the with block ends.

    Port 0 stands for any free one. Raises OSError when there is none within 20.
    """

    def __init__(self, port: int) -> None:
        self._server = _listen(port)
        self._server.daemon_threads = True
        self._server.set_app(StaticFilesHandler(application))
        # A daemon, so that an interrupt while it is being ended cannot keep the process.
        self._thread = threading.Thread(target=self._server.serve_forever, name="site", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _listen(first: int) -> ThreadedWSGIServer:
    for port in range(first, first + TRIES):
        try:
            return ThreadedWSGIServer((HOST, port), WSGIRequestHandler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(
        errno.EADDRINUSE, f"ports {first} to {first + TRIES - 1} are all taken: try --port"
    )
