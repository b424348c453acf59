"""Text that others wrote, made fit to be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_setnx_lock.core.holder import LONGEST, plain

# Surrogates as well, which hypothesis leaves out unless it is asked for them.
ANY = st.text(st.characters(exclude_categories=()), max_size=2 * LONGEST)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nightly import", "nightly import"),
        (
            "Aufräumen 夜間バッチ\u3000👩\u200d💻 \u05e2",
            "Aufräumen 夜間バッチ\u3000👩\u200d💻 \u05e2",
        ),
        ("Aufr\udce4umen", r"Aufr\udce4umen"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\0", r"\x00"),
        ("\x1b[2J\x7f\x9b2J", r"\x1b[2J\x7f\x9b2J"),
        ("a\u2028b\u2029c\x85", r"a\u2028b\u2029c\x85"),
        ("\u202ecod\u2066", r"\u202ecod\u2066"),
        ("\u05e2\u200f1\u200e\u061c", "\u05e2" + r"\u200f1\u200e\u061c"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * (LONGEST - 1) + "…"),
        ("\0" * 1_000_000, (r"\x00" * LONGEST)[: LONGEST - 1] + "…"),
    ],
    ids=[
        "ascii",
        "other scripts",
        "surrogate",
        "line feed",
        "nul",
        "escape",
        "separators",
        "direction",
        "marks of direction",
        "longest",
        "too long",
        "too long escaped",
    ],
)
def test_what_could_do_more_than_be_read_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(ANY)
def test_a_plain_text_is_one_short_line_that_can_be_encoded(text: str) -> None:
    shown = plain(text)

    assert len(shown) <= LONGEST
    assert shown.encode().decode() == shown
    assert len(shown.splitlines()) <= 1
    assert plain(shown) == shown
