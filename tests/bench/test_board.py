"""The number that tells whether two were in at once."""

from __future__ import annotations

from pathlib import Path

from bench.board import Board


def test_turns_one_after_another_add_up(tmp_path: Path) -> None:
    Board.make(tmp_path / "board")
    one, other = Board(tmp_path / "board"), Board(tmp_path / "board")

    one.write(one.read() + 1)
    other.write(other.read() + 1)

    assert one.read() == 2


def test_turns_at_once_lose_an_update(tmp_path: Path) -> None:
    Board.make(tmp_path / "board")
    one, other = Board(tmp_path / "board"), Board(tmp_path / "board")

    seen, seen_too = one.read(), other.read()
    one.write(seen + 1)
    other.write(seen_too + 1)

    assert one.read() == 1
