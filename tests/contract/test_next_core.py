"""What the table of the coming core names is there."""

from __future__ import annotations

from pathlib import Path

from tests.support.kinds import KINDS
from tests.support.next_core import FILES, ITS_OWN, NOT_YET
from tests.support.next_core import KINDS as KINDS_OF_NEXT

HERE = Path(__file__).parent


def test_what_is_left_out_or_marked_is_in_the_suite() -> None:
    suite = "".join(file.read_text() for file in HERE.glob("test_*.py"))

    assert {words for words in NOT_YET if f"def {words.split()[0]}" not in suite} == set()
    assert {
        name for name in {*FILES, *ITS_OWN} if not HERE.joinpath(f"{name}.py").is_file()
    } == set()
    assert set(KINDS) >= KINDS_OF_NEXT
