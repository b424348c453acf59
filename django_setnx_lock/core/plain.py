"""Text that others wrote, made fit for a page, a log, a terminal and a database."""

from __future__ import annotations

import json
import re
from typing import Any

#: How many characters of a text are kept.
LONGEST = 500

# Control characters, line and paragraph separators, what turns the direction of writing around,
# and surrogates: those stand for bytes that are no UTF-8, and cannot be encoded.
_TRICKS = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` as one line that can be encoded and does nothing but be read.

    What could do more is escaped, as in a string of Python: ``\\n``, ``\\x1b``, ``\\udce4``. Of a
    text of more than ``longest`` characters the beginning is kept, and ``…`` follows it.
    """
    # True of nearly all texts, and quicker than to look for each trick.
    if len(text) <= longest and text.isprintable():
        return text
    escaped = _TRICKS.sub(_escaped, text[: longest + 1])
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def json_object(written: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in what others wrote; None where there is none."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_in(found: dict[str, Any], name: str) -> str:
    """Return the text of that name in a JSON object that others wrote; "" where there is none."""
    value = found.get(name)
    return plain(value) if isinstance(value, str) else ""
