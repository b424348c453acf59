"""``manage.py locks`` where its output is narrow, ends early, or goes nowhere."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_setnx_lock import lock
from tests.management.commands.conftest import Locks
from tests.management.conftest import Program
from tests.management.holders import client_of

LOCKS = (sys.executable, "-m", "django", "locks")
KEY = "漢字キー-é"

Printed = Callable[..., "tuple[int, str]"]


@pytest.fixture
def printed(locks: Locks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Printed:
    """Give a function that runs the command with a stdout of an encoding.

    It returns the status and what was written.
    """

    def run(encoding: str, *arguments: str) -> tuple[int, str]:
        path = tmp_path / "out"
        with path.open("w", encoding=encoding) as stdout, monkeypatch.context() as patched:
            patched.setattr("sys.stdout", stdout)
            status = locks(*arguments).status
        return status, path.read_text(encoding=encoding)

    return run


@pytest.mark.parametrize(("encoding", "e"), [("latin-1", "é"), ("ascii", r"\xe9"), ("utf-8", "é")])
def test_what_stdout_cannot_encode_is_escaped(printed: Printed, encoding: str, e: str) -> None:
    lock(KEY, note="é").take(0)
    with lock("b"):
        listed, shown = printed(encoding, "list"), printed(encoding, "show", KEY)
        released, free = printed(encoding, "release", "-y", KEY), printed(encoding, "show", KEY)

    assert [listed[0], shown[0], released[0], free[0]] == [0, 0, 0, 1]
    kanji = "漢字キー" if encoding == "utf-8" else r"\u6f22\u5b57\u30ad\u30fc"
    assert f"{kanji}-{e}" in listed[1]
    assert f"{kanji}-{e}" in shown[1]
    assert f"({e})" in listed[1]


@pytest.mark.matrix
def test_a_key_can_be_named_in_a_locale_that_does_not_know_its_letters(
    start: Callable[..., Program],
) -> None:
    c_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    # That of tox: empty is as good as none.
    c_locale["PYTHONIOENCODING"] = ""
    with lock(KEY):
        shown = start("show", KEY, command=LOCKS, env={**os.environ, **c_locale}).end()

    assert (shown[0], shown[2]) == (0, "")
    assert r"\u6f22\u5b57" in shown[1]


def test_all_is_written_and_no_row_is_wider_because_another_one_is(locks: Locks) -> None:
    with (
        lock("a" * 200),
        lock("k", note="n" * 300),
        lock("漢" * 50, note="漢" * 300),
        lock("short"),
    ):
        head, *lines = locks("list").out.splitlines()

    assert len(lines) == 6
    assert "a" * 200 in lines[0]
    assert "n" * 300 in lines[1]
    assert "漢" * 300 in lines[3]
    assert max(len(head), len(lines[2])) < 200


def closed() -> Any:
    """Return what stands for a stdout that was closed before the program began."""
    return None


def full() -> Any:
    return open("/dev/full", "w")


def unread() -> Any:
    ours, theirs = os.pipe()
    os.close(ours)
    return open(theirs, "w")


@pytest.mark.parametrize(
    ("stdout", "status"), [(closed, [0, 0, 1]), (full, [74] * 3), (unread, [141] * 3)]
)
def test_what_is_asked_for_and_cannot_be_written_has_a_status_and_a_release_is_done(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, stdout: Callable[[], Any], status: list[int]
) -> None:
    client_of().set("lock:k", "theirs")
    asked = (("list", "--json"), ("show", "k"), ("show", "free"))
    stream = stdout()
    with contextlib.closing(stream or io.StringIO()), monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stream)
        ended = [locks(*arguments) for arguments in asked]
        released = locks("release", "k", "--yes")

    assert [one.status for one in ended] == status
    assert all("Traceback" not in one.err for one in ended)
    assert released.status == 0
    assert not client_of().exists("lock:k")
    # Who reads no further wants to hear no more.
    assert ("No space left" in released.err) == (stdout is full)


def test_a_document_that_is_cut_short_by_its_reader_is_status_141(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.pipe()

    def read_a_little() -> None:
        os.read(ours, 10)
        os.close(ours)

    # It is longer than what a pipe holds.
    client_of().mset({f"lock:{number}": "theirs" for number in range(400)})
    reader = threading.Thread(target=read_a_little)
    # As with PYTHONUNBUFFERED: of a write that is cut short nothing is told.
    stdout = io.TextIOWrapper(io.FileIO(theirs, "w"), write_through=True)
    with contextlib.closing(stdout), monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stdout)
        reader.start()
        ended = locks("list", "--everything", "--json")
    reader.join(10)

    assert ended.status == 141


def test_nothing_is_left_to_be_written_when_the_program_ends(start: Callable[..., Program]) -> None:
    client_of().set("lock:k", "theirs")

    with full() as stdout:
        program = start("release", "k", "-y", command=LOCKS, stdout=stdout)
    status, _, err = program.end()

    assert status == 0
    assert err.splitlines() == ["locks: the output cannot be written: No space left on device"]
    assert not client_of().exists("lock:k")


def test_an_error_keeps_its_status_where_stderr_is_closed(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", None)
        ended = locks("list", "--using", "none")

    assert ended.status == 78
