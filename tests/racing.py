"""Requests that reach a live server at once, and views that are inside together if they can be."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

DEADLINE = 30


class Race:
    """Keeps every view that was let in until each of the requests is either in or answered."""

    def __init__(self, posts: int) -> None:
        self._changed = threading.Condition()
        self._posts = posts
        self._settled = 0
        self.together = threading.Barrier(posts)

    def settle(self) -> None:
        with self._changed:
            self._settled += 1
            self._changed.notify_all()

    def stay(self) -> None:
        self.settle()
        with self._changed:
            assert self._changed.wait_for(lambda: self._settled == self._posts, DEADLINE)


race = Race(1)


def stay_inside() -> None:
    """Stay in a view until each request of the race is either in one or answered."""
    race.stay()


def post_all(server: LiveServer, paths: Sequence[str]) -> list[int]:
    """POST to all of ``paths`` at once, and give the statuses in their order.

    A view under no lock that calls :func:`stay_inside` answers all of them from inside.
    """
    global race
    race = Race(len(paths))
    with ThreadPoolExecutor(len(paths)) as threads:
        return list(threads.map(lambda path: _post(server, path), paths))


def _post(server: LiveServer, path: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=DEADLINE)
    try:
        connection.connect()
        race.together.wait(DEADLINE)
        connection.request("POST", path)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        race.settle()
    return status
