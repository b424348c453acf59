"""``manage.py locks graph``, and who waits in ``locks show``."""

from __future__ import annotations

from typing import Any

import pytest

from django_setnx_lock import lock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.core.helpers import ask, listed
from tests.core.nesting import waiting
from tests.hostile import KEYS, RECORDS, SHOWN, unsound
from tests.management.commands.conftest import Locks


def test_without_waiters_it_says_so(locks: Locks) -> None:
    lock("a").take(0)

    assert locks("graph").out == "Nobody waits for a lock.\n"


def test_what_blocks_others_stands_above_them(locks: Locks) -> None:
    with waiting(get_client(), ("a",), ("b", "a"), ("c", "b"), ("", "c")):
        lines = locks("graph").out.splitlines()

    heads = [line.split(":")[0] for line in lines[::2]]
    assert heads == ["a", "└─ b", "   └─ c"]
    assert lines[1].startswith("   1 waiting, 3 with those behind them, the first for ")
    assert ", who has waited for " in lines[2]
    assert lines[5].endswith(" (for c)")


def test_no_line_is_wider_than_the_terminal(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with waiting(get_client(), ("a",), ("b", "a")):
        lines = locks("graph").out.splitlines()

    assert max(map(len, lines)) == 40


def test_json_has_locks_and_edges(locks: Locks) -> None:
    with waiting(get_client(), ("a",), ("b", "a")):
        (found,) = locks("graph", "--json").document["caches"]

    assert found["blockers"] == ["a"]
    assert [(one["holds"], one["waits_for"]) for one in found["waits"]] == [("b", "a")]
    assert {one["key"]: one["behind"] for one in found["locks"]} == {"a": 1, "b": 0}
    assert found["waits"][0]["holder"]["label"] == "for b"


def test_a_limit_that_cuts_it_is_told(locks: Locks) -> None:
    for key in "abc":
        listed(get_client(), key).take(0)

    assert locks("graph", "--limit", "2").out.endswith("Looked at 2 locks; there are more.\n")


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_limit_that_is_no_number_above_0_is_refused(locks: Locks, limit: str) -> None:
    assert locks("graph", "--limit", limit).status == 64


@pytest.mark.parametrize("what", SHOWN)
@pytest.mark.parametrize("how", [["graph"], ["show", "a"]], ids=str)
def test_no_record_of_a_waiter_breaks_a_line(locks: Locks, what: str, how: list[str]) -> None:
    one = waits_for("a")
    get_client().hset(lock_keys("lock:a").alive, f"who:{one}", RECORDS[what])

    shown = locks(*how).out

    assert not any(unsound(line, longest=5000, is_line=True) for line in shown.splitlines())


@pytest.mark.parametrize("key", KEYS)
def test_no_key_breaks_a_line(locks: Locks, key: str) -> None:
    waits_for(key)

    lines = locks("graph").out.split("\n")

    assert len(lines) == 3
    assert not any(unsound(line, longest=1000, is_line=True) for line in lines)


def test_show_names_those_who_wait(locks: Locks) -> None:
    for _ in range(2):
        waits_for("a", label="view pay")

    said = locks("show", "a").out

    assert "\nWaiting:\n" in said
    assert said.count("(view pay)") == 2
    assert "  2.  " in said


def test_show_counts_those_beyond_the_first_fifty(locks: Locks) -> None:
    for _ in range(52):
        waits_for("a")

    assert locks("show", "a").out.endswith("  and 2 more\n")


def test_show_says_what_the_holder_itself_waits_for(locks: Locks) -> None:
    with waiting(get_client(), ("a",), ("b", "a")):
        said = locks("show", "b").out
        (found,) = locks("show", "b", "--json").document["locks"]
        (awaited,) = locks("show", "a", "--json").document["locks"]

    assert "The holder itself waits:\n  " in said
    assert " has waited for 'a' for " in said
    assert found["waits_for"]["key"] == "a"
    assert awaited["waiters"][0]["holder"]["label"] == "for a"


def waits_for(key: str, **options: Any) -> str:
    """Have a caller wait for ``key``, which is held; return its token."""
    if not get_client().exists(f"lock:{key}"):
        listed(get_client(), key, timeout=60).take(0)
    turn = listed(get_client(), key, **options).attempt()
    ask(turn, waits=True)
    return turn.token
