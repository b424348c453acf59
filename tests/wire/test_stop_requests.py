"""A request to stop, and copies of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_setnx_lock.core.protocol.commands import SETNX
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.support.locks import listed
from tests.wire.helpers import send

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle
    from django_setnx_lock.core.protocol.commands import Request


def request_to(held: LockHandle) -> Request:
    return SETNX.request_stop(lock_keys("lock:a"), None, held.token.encode(), "joe", "")


def test_a_copy_of_a_request_is_as_good_as_the_first(redis_client: redis.Redis) -> None:
    with listed(redis_client, "a") as held:
        request, another = request_to(held), request_to(held)
        answers = [send(redis_client, one) for one in (request, request, another)]

    assert answers == [[b"OK"], [b"OK"], [b"BEFORE"]]
