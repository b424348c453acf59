"""A command under with_lock that takes the same key goes on with its parent's lock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.management.conftest import COMMAND, Program

if TYPE_CHECKING:
    from tests.servers import RealServer

PREPARE = """
import django
django.setup()
from django_setnx_lock import LockBusy, lock
"""
TAKES = f"""{PREPARE}
with lock("k", blocking_timeout=0, reentrant=True) as held:
    held.check()
    print(held.fence)
"""
TRIES = f"""{PREPARE}
print(lock("k", reentrant=True).acquire(blocking=False))
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    """Give what makes a command of Python code."""

    def script(code: str) -> tuple[str, ...]:
        file = tmp_path / "script.py"
        file.write_text(code)
        return (sys.executable, str(file))

    return script


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    # The script's own directory, not the checkout, comes first on its path.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("TEST_REENTRANT", "1")


def test_it_goes_on_with_the_lock(
    run: Callable[..., tuple[int, str, str]],
    script: Callable[[str], tuple[str, ...]],
    real_server: RealServer,
) -> None:
    status, out, err = run("k", "--", *script(TAKES))

    assert (status, err) == (0, "")
    assert int(out) > 0
    assert not real_server.client().exists("lock:k")


def test_without_the_environment_it_finds_it_busy(
    run: Callable[..., tuple[int, str, str]], script: Callable[[str], tuple[str, ...]]
) -> None:
    _, out, _ = run("k", "--", "env", "-u", "SETNX_LOCK_HELD_TOKENS", *script(TRIES))

    assert out == "False\n"


def test_a_with_lock_inside_a_with_lock_carries_both(
    run: Callable[..., tuple[int, str, str]], script: Callable[[str], tuple[str, ...]]
) -> None:
    status, out, err = run("k", "--", *COMMAND, "other", "--", *script(TAKES))

    assert (status, err) == (0, "")
    assert int(out) > 0


def test_a_with_lock_of_the_same_key_inside_does_not_wait(
    run: Callable[..., tuple[int, str, str]], real_server: RealServer
) -> None:
    status, out, err = run("k", "--", *COMMAND, "-n", "k", "sh", "-c", "echo $SETNX_LOCK_FENCE")

    assert (status, err) == (0, "")
    assert int(out) > 0
    assert not real_server.client().exists("lock:k")


def test_the_lock_stays_when_the_inner_one_has_ended(
    start: Callable[..., Program], real_server: RealServer
) -> None:
    inner = " ".join([*COMMAND, "-n", "k", "true"])
    with_lock = start("k", "--", "sh", "-c", f"{inner}; echo done; read wait", stdin=-1)

    said = with_lock.line()

    assert said == "done"
    assert real_server.client().exists("lock:k")
    with_lock.communicate("\n", timeout=20)


def test_what_is_no_json_is_told_and_ignored(
    run: Callable[..., tuple[int, str, str]], script: Callable[[str], tuple[str, ...]]
) -> None:
    status, out, err = run("k", "--", "env", "SETNX_LOCK_HELD_TOKENS={secret", *script(TRIES))

    assert (status, out) == (0, "False\n")
    assert "SETNX_LOCK_HELD_TOKENS" in err
    assert "secret" not in err
