"""What the table of the coming core names is there."""

from __future__ import annotations

from pathlib import Path

from tests.support.kinds import KINDS
from tests.support.next_core import FILES, ITS_OWN, NOT_YET, OF_DJANGO
from tests.support.next_core import KINDS as KINDS_OF_NEXT

HERE = Path(__file__).parent


def test_what_is_left_out_or_marked_is_in_the_suite() -> None:
    root = HERE.parents[1]
    named = [root.joinpath(name) for name in OF_DJANGO]
    files = [file for one in (HERE, *named) for file in ([one] if one.is_file() else one.glob("*"))]
    suite = "".join(file.read_text() for file in files if file.suffix == ".py")

    assert {words for words in NOT_YET if f"def {words.split()[0]}" not in suite} == set()
    assert {
        name for name in {*FILES, *ITS_OWN} if not HERE.joinpath(f"{name}.py").is_file()
    } == set()
    assert set(KINDS) >= KINDS_OF_NEXT
