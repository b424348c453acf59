"""Two who find the same deadlock, before the first has left the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.locks import text
from tests.wire.running import LEASE, RECORD, SLICE, keys, run

if TYPE_CHECKING:
    import redis

LIFE = "5000"


def hold(client: redis.Redis, token: str, name: str) -> None:
    assert run(client, "acquire", token, str(LEASE), RECORD, "0", "", at=keys(name))[0] == b"OK"


def wait(client: redis.Redis, token: str, name: str) -> None:
    waits = (token, str(LEASE), RECORD, str(SLICE), f"{{{name}}}:mail")
    assert run(client, "acquire", *waits, at=keys(name))[0] != b"OK"


def search(client: redis.Redis, token: str, name: str, held: dict[str, str]) -> list[Any]:
    """Say that ``token``, whose caller holds what is ``held``, waits for ``name``; and search."""
    at = (*keys(name)[:2], *held)
    found: list[Any] = run(client, "deadlock", token, LIFE, RECORD, *held.values(), at=at)
    return [text(one) for one in found]


def test_what_one_has_found_nobody_else_finds(redis_client: redis.Redis) -> None:
    hold(redis_client, "ann", "lock:a")
    hold(redis_client, "bob", "lock:b")
    wait(redis_client, "ann-too", "lock:b")
    wait(redis_client, "bob-too", "lock:a")

    first = search(redis_client, "ann-too", "lock:b", {"lock:a": "ann"})
    second = search(redis_client, "bob-too", "lock:a", {"lock:b": "bob"})
    third = search(redis_client, "ann-too", "lock:b", {"lock:a": "ann"})

    assert first == []
    assert sorted(second[1::2]) == ["lock:a", "lock:b"]
    assert third == []
