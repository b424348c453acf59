"""Twenty POSTs at once to one order, on a threaded server and a real Redis."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from django_setnx_lock import redis_lock

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from tests.servers import RealServer

POSTS = 20
DEADLINE = 30

pytestmark = [
    pytest.mark.urls(__name__),
    # The server's threads have connections of their own.
    pytest.mark.django_db(transaction=True),
]


class Race:
    """Keeps every view that was let in until each of the requests is either in or answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._settled = 0
        self.together = threading.Barrier(POSTS)

    def settle(self) -> None:
        with self._changed:
            self._settled += 1
            self._changed.notify_all()

    def stay(self) -> None:
        self.settle()
        with self._changed:
            assert self._changed.wait_for(lambda: self._settled == POSTS, DEADLINE)


race = Race()


@csrf_exempt
def unlocked(request: HttpRequest, pk: int) -> HttpResponse:
    race.stay()
    return HttpResponse("paid")


urlpatterns = [
    path("locked/<int:pk>/", csrf_exempt(redis_lock("order:<pk>")(unlocked))),
    path("unlocked/<int:pk>/", unlocked),
]


def post(server: LiveServer, where: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=DEADLINE)
    try:
        connection.connect()
        race.together.wait(DEADLINE)
        connection.request("POST", where)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        race.settle()
    return status


def post_all(server: LiveServer, where: str) -> Counter[int]:
    global race
    race = Race()
    with ThreadPoolExecutor(POSTS) as threads:
        return Counter(threads.map(lambda _: post(server, where), range(POSTS)))


def test_of_twenty_simultaneous_posts_one_is_let_in(
    real_cache: RealServer, live_server: LiveServer
) -> None:
    answers = post_all(live_server, "/locked/42/")

    assert answers == {200: 1, 409: POSTS - 1}
    assert real_cache.client().exists("lock:order:42") == 0


def test_without_the_lock_all_of_them_are(real_cache: RealServer, live_server: LiveServer) -> None:
    answers = post_all(live_server, "/unlocked/42/")

    assert answers == {200: POSTS}
