"""Two who find the same deadlock, before the first has left the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.locks import text
from tests.wire.running import LEASE, RECORD, SLICE, Wire, keys

if TYPE_CHECKING:
    pass

LIFE = "5000"


def hold(wire: Wire, token: str, name: str) -> None:
    assert wire.run("acquire", token, str(LEASE), RECORD, "0", "", at=keys(name))[0] == b"OK"


def wait(wire: Wire, token: str, name: str) -> None:
    waits = (token, str(LEASE), RECORD, str(SLICE), f"{{{name}}}:mail")
    assert wire.run("acquire", *waits, at=keys(name))[0] != b"OK"


def search(wire: Wire, token: str, name: str, held: dict[str, str]) -> list[Any]:
    """Say that ``token``, whose caller holds what is ``held``, waits for ``name``; and search."""
    at = (*keys(name)[:2], *held)
    found: list[Any] = wire.run("deadlock", token, LIFE, RECORD, *held.values(), at=at)
    return [text(one) for one in found]


def test_what_one_has_found_nobody_else_finds(wire: Wire) -> None:
    hold(wire, "ann", "lock:a")
    hold(wire, "bob", "lock:b")
    wait(wire, "ann-too", "lock:b")
    wait(wire, "bob-too", "lock:a")

    first = search(wire, "ann-too", "lock:b", {"lock:a": "ann"})
    second = search(wire, "bob-too", "lock:a", {"lock:b": "bob"})
    third = search(wire, "ann-too", "lock:b", {"lock:a": "ann"})

    assert first == []
    assert sorted(second[1::2]) == ["lock:a", "lock:b"]
    assert third == []
