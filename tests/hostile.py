"""What others may have written into Redis, and whether what is shown of it is sound."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches

from django_setnx_lock import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import LockHandle

FIELDS = ("host", "pid", "thread", "label", "user", "note", "since")
TEXTS = {
    "not UTF-8": "Aufr\udce4umen",
    "surrogate": "\ud83d",
    "NUL": "a\0b",
    "lines": "a\nERROR forged\r\nb\x0b\x0cc\x85d",
    "terminal": "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\b",
    "direction": "\u202ecod\u2066",
    "invisible": "\u200ea\u200f1\u061c",
    "separators": "a\u2028b\u2029c",
    "HTML": "<script>alert(1)</script>",
    "1 MB": "x" * 150_000,
    "1 MB of NUL": "\0" * 25_000,
}
# JSON that is no text.
TYPES = ["7", "null", "true", "NaN", "1e999", "-1", "9" * 20, "9" * 5000, "[1]", '{"a":[{}]}']
_WHOLE = {
    "empty": b"",
    "open": b"{",
    "cut": b'{"host":"web1","no',
    "null": b"null",
    "list": b"[]",
    "text": b'"x"',
    "number": b"NaN",
    "deep": b"[" * 100_000,
    "NUL": b"\0",
    "not UTF-8": b"\xff\xfe",
    "Latin-1": '{"note":"Aufräumen"}'.encode("latin-1"),
    "1 MB": b"x" * 1_000_000,
}
# Each in every field: together some 1 MB.
#: Holder records, each as bytes by what is wrong with it.
RECORDS: dict[str, bytes] = {
    **{
        f"text: {what}": json.dumps(dict.fromkeys(FIELDS, text)).encode()
        for what, text in TEXTS.items()
    },
    **{
        f"type: {value[:9]}... of {len(value)}": "{{{}}}".format(
            ",".join(f'"{name}":{value}' for name in FIELDS)
        ).encode()
        for value in TYPES
    },
    **{f"whole: {what}": record for what, record in _WHOLE.items()},
}
#: What may stand beside a lock instead of fence, token and record; ``TOKEN`` is the holder's.
METAS: dict[str, bytes] = {
    "empty": b"",
    "no fence": b"x TOKEN {}",
    "fence 0": b"0 TOKEN {}",
    "huge fence": b"9" * 20 + b" TOKEN {}",
    "endless fence": b"9" * 5000 + b" TOKEN {}",
    "huge length": b"1 " + b"9" * 400 + b" TOKEN {}",
    "NUL": b"\0" * 100,
    "not UTF-8": b"\xff\xfe\xfd",
    "1 MB": b"x" * 1_000_000,
}
#: Keys that a program may choose.
KEYS = [
    "nul\0key",
    "two\nlines",
    "\x1b[2J",
    "\u202ecod",
    "a\u200eb",
    "a\u2028b",
    "<script >",
    "x" * 300,
    " ",
    "é",
]

_TRICKS = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@pytest.fixture(autouse=True)
def sound_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hold each message that is logged to being one line, where this is imported."""
    with caplog.at_level(logging.DEBUG, "django_setnx_lock"):
        yield
    own = [one for one in caplog.records if one.name.startswith("django_setnx_lock")]
    assert unsound_lines([one.getMessage() for one in own]) == []


def hold(key: str, record: bytes = b"{}", meta: bytes = b"") -> LockHandle:
    """Have ``key`` held by one who left that record, or all of that ``meta``."""
    held = lock(key, timeout=60).take(0)
    token = held.token.encode()
    own = meta.replace(b"TOKEN", token) or b"%d %s %s" % (held.fence, token, record)
    cache: Any = caches["default"]
    cache.client.get_client().set(f"{{{held.name}}}:meta", own, px=60_000)
    return held


def unsound(text: str, *, longest: int, is_line: bool = False) -> str:
    """Say what is wrong with a ``text`` that is shown; nothing if it is sound."""
    found = _TRICKS.search(text)
    if found:
        return f"{found[0]!a} in {text[max(found.start() - 40, 0) : found.end() + 20]!a}"
    if len(text) > longest:
        return f"{len(text)} characters: {text[:40]!a}..."
    if is_line and len(text.splitlines()) > 1:
        return f"several lines: {text[:200]!a}"
    return "<script> is not escaped" if "<script>alert" in text and not is_line else ""


def unsound_lines(texts: list[Any], longest: int = 6000) -> list[str]:
    """Return what is wrong with each of these messages."""
    return [wrong for text in texts if (wrong := unsound(str(text), longest=longest, is_line=True))]
