"""``manage.py locks history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import override_settings

from django_setnx_lock import LockLost, inspector, lock
from tests.hostile import TEXTS, unsound_lines
from tests.management.commands.conftest import Locks
from tests.management.holders import client_of

if TYPE_CHECKING:
    from tests.servers import FakeServer

ALL = override_settings(SETNX_LOCK={"HISTORY": "all"})


def hold(key: str, user: str = "", label: str = "") -> None:
    with lock(key, user=user, label=label):
        pass


def force(key: str, by: str = "", reason: str = "") -> None:
    """Have ``key`` held by somebody, and taken away."""
    held = lock(key, user="ann", label="import").take(0)
    inspector().force_release(
        held.name, inspector().get(held.name).fingerprint, by=by, reason=reason
    )
    with pytest.raises(LockLost):
        held.release()


def keys(out: str) -> list[str]:
    return [line.split()[3] for line in out.splitlines()[1:]]


@ALL
def test_the_newest_end_comes_first(locks: Locks) -> None:
    hold("a", user="ann", label="import")
    force("b", by="joe", reason="it hangs")

    ended = locks("history")

    head, forced, released = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert head.split() == ["ENDED", "KEY", "HOW", "HOLDER", "HELD", "FOR", "WAITED"]
    assert "forced by joe: it hangs" in forced
    assert "b " in forced
    assert "released" in released
    assert "ann@" in released
    assert "(import)" in released


@ALL
def test_only_one_lock(locks: Locks) -> None:
    hold("a")
    hold("b")

    assert keys(locks("history", "a").out) == ["a"]
    assert locks("history", "c").out == "No entries.\n"


@ALL
def test_only_some_ends(locks: Locks) -> None:
    hold("a")
    force("b")

    assert keys(locks("history", "--end", "forced").out) == ["b"]
    assert keys(locks("history", "--end", "released", "--end", "forced").out) == ["b", "a"]


@ALL
def test_only_so_many(locks: Locks) -> None:
    for key in "abc":
        hold(key)

    assert keys(locks("history", "--limit", "2").out) == ["c", "b"]


@ALL
def test_several_caches_are_in_one_order(locks: Locks) -> None:
    hold("a")
    hold("b")
    caches = {**settings.CACHES, "other": settings.CACHES["default"]}
    with override_settings(CACHES=caches):
        found = locks("history", "--using", "default,other", "--limit", "3").out.splitlines()

    rows = [(line.split()[0], line.split()[4]) for line in found[1:]]
    assert rows == [("default", "b"), ("other", "b"), ("default", "a")]


@ALL
def test_json_has_all_but_the_token(locks: Locks) -> None:
    with lock("a", user="ann") as held:
        pass

    ended = locks("history", "--json")

    [entry] = ended.document["entries"]
    assert ended.document["troubles"] == []
    assert held.token not in ended.out
    assert (entry["using"], entry["key"], entry["end"]) == ("default", "a", "released")
    assert (entry["fence"], entry["holder"]["user"]) == (held.fence, "ann")
    assert set(entry) == {
        *("using", "id", "key", "name", "end", "at", "granted_at", "held_for", "waited"),
        *("holder", "fence", "by", "reason", "fingerprint"),
    }


def test_without_entries_it_says_so(locks: Locks) -> None:
    hold("a")

    assert locks("history").out == "No entries.\n"
    assert locks("history", "--json").document == {"entries": [], "troubles": []}


@override_settings(SETNX_LOCK={"HISTORY": None})
def test_with_the_history_off_nothing_is_noted(locks: Locks) -> None:
    force("a")

    assert locks("history").out == "No entries.\n"


def test_a_server_that_is_away_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    ended = locks("history")

    assert ended.status == 69
    assert "Redis cannot be reached" in ended.err


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_others_wrote_does_nothing_to_a_terminal(locks: Locks, text: str) -> None:
    written = text.encode("utf-8", "surrogateescape" if "\udce4" in text else "replace")
    known = b'1700000000000000 1 t {"note":"x","label":"%s"}' % written[:4000]
    for field in (b"name", b"known", b"more"):
        told = {b"name": b"lock:a", b"end": b"forced", b"known": known, b"more": b""}
        told[field] = told[field] + written if field == b"name" else told[field] or written
        words = [word for pair in told.items() for word in pair]
        client_of().execute_command("XADD", "{lock:}:history", "*", *words)

    ended = locks("history")

    assert ended.status == 0
    assert unsound_lines(ended.out.splitlines()) == []
