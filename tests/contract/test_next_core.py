"""What the table of the coming core names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.kinds import KINDS
from tests.support.next_core import BESIDES, CHOSEN, FILES, ITS_OWN, NOT_YET
from tests.support.next_core import KINDS as KINDS_OF_NEXT

HERE = Path(__file__).parent
# As one that is started with -m, it imports the tests first.
PROGRAM = """
import tests
from django_setnx_lock.core import RedisLock
from tests.support.next_core import core_of
print(core_of(RedisLock))
"""


def test_a_program_of_the_tests_has_the_core_that_is_chosen() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)
    assert done.stdout.split() == [CHOSEN]


def test_what_is_left_out_or_marked_is_in_the_suite() -> None:
    root = HERE.parents[1]
    named = [root.joinpath(name) for name in BESIDES]
    files = [file for one in (HERE, *named) for file in ([one] if one.is_file() else one.glob("*"))]
    suite = "".join(file.read_text() for file in files if file.suffix == ".py")

    assert {words for words in NOT_YET if f"def {words.split()[0]}" not in suite} == set()
    names = {file.stem for file in files} | set(re.findall("def (test_[a-z_]+)", suite))
    assert {*FILES, *ITS_OWN} - names == set()
    assert set(KINDS) >= KINDS_OF_NEXT
