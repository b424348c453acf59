"""What is written of a holder, what is read of what others wrote, and how it is shown."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_setnx_lock.core import Holder
from django_setnx_lock.core.holder import LONGEST, plain
from django_setnx_lock.core.process import holder_here
from django_setnx_lock.core.protocol import replies

TEXTS = st.text(max_size=20)
HOLDERS = st.builds(
    Holder,
    host=TEXTS,
    pid=st.integers(0, 2**31),
    thread=TEXTS,
    label=TEXTS,
    user=TEXTS,
    note=TEXTS,
)


@given(HOLDERS)
def test_a_record_is_read_back_as_it_was_written(holder: Holder) -> None:
    assert Holder.from_json(holder.to_json()) == holder


def test_a_record_says_host_process_and_thread_of_its_maker() -> None:
    found: list[Holder] = []
    thread = threading.Thread(target=lambda: found.append(holder_here(label="x")), name="worker-3")

    thread.start()
    thread.join(5)

    assert found == [
        Holder(host=socket.gethostname(), pid=os.getpid(), thread="worker-3", label="x")
    ]


def test_a_record_is_made_anew_for_another_process_and_a_renamed_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = holder_here(label="x").to_json()

    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(threading.current_thread(), "name", "renamed")
    after = holder_here(label="x").to_json()

    assert json.loads(after) == {**json.loads(before), "pid": 7, "thread": "renamed"}


def test_empty_fields_are_not_written() -> None:
    assert json.loads(Holder(host="web1", pid=7).to_json()) == {"host": "web1", "pid": 7}


def test_a_record_of_a_later_version_is_read_without_what_it_adds() -> None:
    assert Holder.from_json('{"host":"web1","container":"c1"}') == Holder(host="web1")


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", '"x"', "{", "\x00", "1", "[" * 100_000],
    ids=lambda t: repr(t)[:8],
)
def test_a_record_that_cannot_be_read_is_none(text: str) -> None:
    assert Holder.from_json(text) is None


def test_what_is_no_text_is_written_as_one() -> None:
    number: Any = 42
    nothing: Any = None

    record = Holder(label=nothing, note=number).to_json()

    assert json.loads(record) == {"note": "42"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "?:?"),
        ({"host": "web1", "pid": 7}, "web1:7"),
        ({"host": "web1", "pid": 7, "user": "joe"}, "joe@web1:7"),
        ({"pid": 7, "label": "view pay"}, "?:7 (view pay)"),
        ({"pid": 7, "label": "view pay", "note": "by hand"}, "?:7 (view pay; by hand)"),
    ],
)
def test_a_holder_is_told_in_one_line(given: dict[str, Any], text: str) -> None:
    assert str(Holder(**given)) == text


@pytest.mark.parametrize("name", ["host", "thread", "label", "user", "note"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\0\udce4\u202e", r"a\n\x00\udce4\u202e"),
        ("x" * 1_000_000, "x" * (LONGEST - 1) + "…"),
    ],
    ids=["plain", "cut"],
)
def test_a_text_is_made_fit_to_be_shown_where_it_is_written_and_where_it_is_read(
    name: str, text: str, shown: str
) -> None:
    given: dict[str, Any] = {name: text}

    assert getattr(Holder.from_json(json.dumps(given)), name) == shown
    assert json.loads(Holder(**given).to_json()) == {name: shown}


NOT_SO = {
    "pid": ['"x"', "null", "[]", "1e999", "1.5", "NaN", "true", "-1", "4294967296", "9" * 4000],
    "note": ["7", "null", "[]", '{"a":1}', "NaN", "true"],
    "lease": ["true", "-1", "1e99", "NaN", '"30"'],
    "max_hold": ["[]"],
    "renewed": ["1", '"yes"'],
    "process": ['"a:b"', '"x\\n"', '"é"', f'"{"x" * 33}"', "7"],
    "since": ["-1", "1.5", str(2**53), "true"],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in NOT_SO.items() for value in values]
)
def test_what_cannot_be_so_in_a_record_counts_as_missing(field: str, value: str) -> None:
    assert Holder.from_json(f'{{"host":"web1","{field}":{value}}}') == Holder(host="web1")


# Text that others wrote, made fit to be shown


# Surrogates as well, which hypothesis leaves out unless it is asked for them.
ANY = st.text(st.characters(exclude_categories=()), max_size=2 * LONGEST)


OTHER_SCRIPTS = "Aufräumen 夜間バッチ\u3000👩\u200d💻 \u05e2"
SHOWN = {
    "ascii": ("nightly import", "nightly import"),
    "other scripts": (OTHER_SCRIPTS, OTHER_SCRIPTS),
    "surrogate": ("Aufr\udce4umen", r"Aufr\udce4umen"),
    "line feed": ("a\nb\r\tc", r"a\nb\r\tc"),
    "nul": ("\0", r"\x00"),
    "escape": ("\x1b[2J\x7f\x9b2J", r"\x1b[2J\x7f\x9b2J"),
    "separators": ("a\u2028b\u2029c\x85", r"a\u2028b\u2029c\x85"),
    "direction": ("\u202ecod\u2066", r"\u202ecod\u2066"),
    "marks of direction": ("\u05e2\u200f1\u200e\u061c", "\u05e2" + r"\u200f1\u200e\u061c"),
    "longest": ("x" * LONGEST, "x" * LONGEST),
    "too long": ("x" * (LONGEST + 1), "x" * (LONGEST - 1) + "…"),
    "too long escaped": ("\0" * 1_000_000, (r"\x00" * LONGEST)[: LONGEST - 1] + "…"),
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_could_do_more_than_be_read_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(ANY)
def test_a_plain_text_is_one_short_line_that_can_be_encoded(text: str) -> None:
    shown = plain(text)

    assert len(shown) <= LONGEST
    assert shown.encode().decode() == shown
    assert len(shown.splitlines()) <= 1
    assert plain(shown) == shown


# What a loss is called


BY_NOBODY_KNOWN = [b'{"by":7,"reason":null}', b'{"by":["x"]}', b"{}"]


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "mark",
    [None, b"", b"left", b"\xff\xfe", b"[]", b"{", b"7", b"[" * 100_000],
    ids=lambda mark: repr(mark)[:9],
)
def test_a_lock_that_nobody_known_took_is_one_whose_lease_ran_out(mark: bytes | None) -> None:
    lost = replies.lost("a", mark)

    assert "its lease ran out or its key was removed" in str(lost)
    assert (lost.key, lost.forced_by, lost.reason) == ("a", "", "")


@pytest.mark.parametrize("mark", BY_NOBODY_KNOWN, ids=repr)
def test_who_forced_it_without_a_name_is_an_operator(mark: bytes) -> None:
    assert str(replies.lost("a", mark)) == "the lock 'a' was force-released by an operator"


def test_what_others_wrote_of_it_is_one_short_line() -> None:
    mark = json.dumps({"by": "joe\n\udce4", "reason": "x\nERROR forged\x1b[2J" + "x" * 9999})
    lost = replies.lost("a", mark.encode())

    assert str(lost).startswith(r"the lock 'a' was force-released by joe\n\udce4: x\nERROR forged")
    assert len(str(lost)) < 600
    assert lost.forced_by == r"joe\n\udce4"
