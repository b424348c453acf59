"""The web site, on threads of this process."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

HOST = "127.0.0.1"
TRIES = 20


@contextmanager
def serving(port: int) -> Iterator[int]:
    """Serve the site on ``port``, or else the next free one; give which, until the block ends.

    Port 0 stands for any free one. Raises OSError when there is none within 20.
    """
    server = _listen(port)
    server.daemon_threads = True
    server.set_app(StaticFilesHandler(WSGIHandler()))
    # A daemon, so that an interrupt while it is being ended cannot keep the process.
    thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
