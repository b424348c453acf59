"""Twenty POSTs at once to one order, on a threaded server and a real Redis."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from django_setnx_lock import redis_lock
from tests.racing import post_all, stay_inside

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from tests.servers import RealServer

POSTS = 20

pytestmark = [
    pytest.mark.urls(__name__),
    # The server's threads have connections of their own.
    pytest.mark.django_db(transaction=True),
]


@csrf_exempt
def unlocked(request: HttpRequest, pk: int) -> HttpResponse:
    stay_inside()
    return HttpResponse("paid")


urlpatterns = [
    path("locked/<int:pk>/", csrf_exempt(redis_lock("order:<pk>")(unlocked))),
    path("unlocked/<int:pk>/", unlocked),
]


def test_of_twenty_simultaneous_posts_one_is_let_in(
    real_cache: RealServer, live_server: LiveServer
) -> None:
    answers = post_all(live_server, ["/locked/42/"] * POSTS)

    assert Counter(answers) == {200: 1, 409: POSTS - 1}
    assert real_cache.client().exists("lock:order:42") == 0


def test_without_the_lock_all_of_them_are(real_cache: RealServer, live_server: LiveServer) -> None:
    answers = post_all(live_server, ["/unlocked/42/"] * POSTS)

    assert Counter(answers) == {200: POSTS}
