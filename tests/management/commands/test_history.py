"""``manage.py locks history``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import override_settings

from tests.hostile import TEXTS, unsound_lines
from tests.management.commands.conftest import Locks
from tests.past import note

if TYPE_CHECKING:
    pass


def keys(out: str) -> list[str]:
    return [line.split()[3] for line in out.splitlines()[1:]]


def test_the_newest_end_comes_first(locks: Locks) -> None:
    note("a", waited=6.0)
    note("b", "forced", by="joe", reason="it hangs")

    ended = locks("history")

    head, forced, released = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert head.split() == ["ENDED", "KEY", "HOW", "HOLDER", "HELD", "FOR", "WAITED"]
    assert "b " in forced
    assert "forced by joe: it hangs" in forced
    assert "ann@web1:7 (import)" in released
    assert released.endswith("6 s")


def test_only_one_lock_or_only_so_many(locks: Locks) -> None:
    for key in "abc":
        note(key)

    assert keys(locks("history", "a").out) == ["a"]
    assert keys(locks("history", "--limit", "2").out) == ["c", "b"]
    assert locks("history", "d").out == "No entries.\n"
    assert locks("history", "d", "--json").document == {"entries": [], "troubles": []}


def test_several_caches_are_in_one_order(locks: Locks) -> None:
    note("a")
    note("b")
    with override_settings(CACHES={**settings.CACHES, "other": settings.CACHES["default"]}):
        found = locks("history", "--using", "default,other", "--limit", "3").out.splitlines()

    rows = [(line.split()[0], line.split()[4]) for line in found[1:]]
    assert rows == [("default", "b"), ("other", "b"), ("default", "a")]


def test_json_has_all_of_it(locks: Locks) -> None:
    note("a", fence=17)

    found = locks("history", "--json").document

    [entry] = found["entries"]
    assert found["troubles"] == []
    assert (entry["using"], entry["key"], entry["end"]) == ("default", "a", "released")
    assert (entry["fence"], entry["holder"]["user"]) == (17, "ann")
    fields = "using key name end at held_for waited holder fence by reason until"
    assert set(entry) == set(fields.split())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_others_wrote_does_nothing_to_a_terminal(locks: Locks, text: str) -> None:
    holder = json.dumps({"host": text[:4000], "label": text[:4000], "note": "x"})
    note("a", "forced", by=text, reason=text, holder=holder)
    note(f"{text}b", holder=text)

    ended = locks("history")

    assert ended.status == 0
    assert "forced" in ended.out
    assert unsound_lines(ended.out.splitlines()) == []
