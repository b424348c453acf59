"""Text for a terminal: tables, and nothing that could play tricks on it."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """``text`` with what is not printable escaped: keys and notes are others' words."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """``rows`` as lines, each column as wide as its widest cell."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def pairs(found: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Labels and what they are of, one a line."""
    return [f"{indent}{line}" for line in table([(f"{label}:", text) for label, text in found])]
