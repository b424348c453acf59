"""``manage.py locks show``, ``release`` and ``ask-to-stop``: one lock, and what is done to it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_setnx_lock import LockLost, inspector, lock, rwlock
from django_setnx_lock.core import LockHandle, State
from tests.management.commands.conftest import Locks
from tests.management.holders import age_sharer, client_of, kill_holder, revive_holder
from tests.past import note
from tests.servers import FakeServer
from tests.support.seams import any_lock

LOCKS = (sys.executable, "-m", "django", "locks")
HERE = f"{socket.gethostname()}:{os.getpid()}"


def state_of(key: str) -> State:
    return inspector().get(f"lock:{key}").state


def fingerprint_of(key: str) -> str:
    return inspector().get(f"lock:{key}").fingerprint


@pytest.fixture
def readers() -> Iterator[list[LockHandle]]:
    """Hold ``k`` by three readers, the first of which was killed a minute ago."""
    readers = [rwlock("k", timeout=300, note=f"reader {n}").read().take(0) for n in range(3)]
    age_sharer("k", readers[0].token, 60, is_killed=True)
    yield readers
    for reader in readers:
        with contextlib.suppress(LockLost):
            reader.release()


def readers_left() -> list[str]:
    return sorted(one.holder.note for one in inspector().get("lock:k").shares if one.holder)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that sits down at a terminal and types answers.

    ``before``: what happens between a question and its answer.
    """

    def type_in(text: str, before: Callable[[], object] = lambda: None) -> None:
        stdin = io.StringIO(text)
        read = stdin.readline

        def readline() -> str:
            before()
            return read()

        monkeypatch.setattr(stdin, "readline", readline)
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return type_in


def test_show_tells_all_of_a_lock_and_its_holder(locks: Locks) -> None:
    note("k", held_for=120.0)
    with any_lock("k", user="ann", label="import", note="nightly"):
        ended, document = locks("show", "k"), locks("show", "k", "--json").document
        fingerprint = fingerprint_of("k")

    facts = dict(re.split(r": +", line, maxsplit=1) for line in ended.out.splitlines())
    assert (ended.status, ended.err) == (0, "")
    assert facts["Name in Redis"] == "lock:k"
    assert facts["State"].startswith("held: ")
    assert (facts["User"], facts["Label"], facts["Note"]) == ("ann", "import", "nightly")
    assert facts["Fingerprint of the holder"] == fingerprint
    assert facts["Usually held for"].startswith("2 min ")
    assert [one["key"] for one in document["locks"]] == ["k"]


def test_show_tells_each_who_holds_it_with_others(locks: Locks, readers: list[LockHandle]) -> None:
    shown = locks("show", "k").out

    for number, share in enumerate(inspector().get("lock:k").shares, 1):
        assert f"Holder {number} of 3: {share.state.value}\n" in shown
        assert share.fingerprint in shown
        assert share.holder is not None
        assert f"{share.holder.note}\n" in shown


@pytest.mark.parametrize("command", [["show"], ["release", "--yes"], ["ask-to-stop"]])
def test_of_a_free_lock_is_said_that_it_is_and_the_status_is_1(
    locks: Locks, command: list[str]
) -> None:
    ended = locks(*command, "k")
    with pytest.raises(CommandError) as caught:
        call_command("locks", *command, "k")

    assert (ended.status, caught.value.returncode) == (1, 1)
    assert re.fullmatch("locks: .*(nobody holds 'k'|'k' is held by nobody).*\n", ended.err)


def test_a_release_tells_who_had_it_and_the_holder_who_took_it(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    held = any_lock("k", user="ann", label="import").take()
    with caplog.at_level(logging.INFO, "django_setnx_lock.force_release"):
        ended = locks("release", "k", "--yes", "--reason", "stuck since noon")
    with pytest.raises(LockLost) as lost:
        held.check()

    holder = f"ann@{HERE} (import)"
    assert (ended.status, ended.err) == (0, "")
    assert f"'k' in the cache 'default' is held by {holder}: held, for" in ended.out
    assert f"Released, but not stopped: 'k' in the cache 'default', {holder}." in ended.out
    assert lost.value.reason == "stuck since noon"
    assert lost.value.forced_by.endswith(f"@{socket.gethostname()}")
    (record,) = caplog.records
    assert held.token not in ended.out + record.getMessage()


def test_a_request_to_stop_tells_the_holder_who_asks_and_why(locks: Locks) -> None:
    with any_lock("k", user="ann", label="import") as held:
        ended = locks("ask-to-stop", "k", "--reason", "a deploy")
        held.check()
        again = locks("ask-to-stop", "k")
        shown = locks("show", "k").out

    assert (ended.status, ended.err) == (0, "")
    assert f"Asked to stop: 'k' in the cache 'default', ann@{HERE}" in ended.out
    assert held.stop_requested is not None
    assert held.stop_requested.by.endswith(f"@{socket.gethostname()}")
    assert held.stop_requested.reason == "a deploy"
    assert re.search("Asked to stop: .*: a deploy\n", shown)
    assert (again.status, "Asked to stop before: " in again.out) == (1, True)


def test_what_another_program_holds_can_be_shown_and_released_and_not_asked_to_stop(
    locks: Locks,
) -> None:
    # Its key is taken as it is, also where it looks like a template.
    client_of().set("lock:<b>", "readers:5", ex=60)

    asked = locks("ask-to-stop", "<b>")
    shown, released = locks("show", "<b>"), locks("release", "--yes", "<b>")

    assert asked.status == 1
    assert "cannot ask the holder of the lock '<b>' to stop: it is 'foreign'" in asked.out
    assert (shown.status, released.status) == (0, 0)
    assert not client_of().exists("lock:<b>")


@pytest.mark.parametrize("command", [["release", "--yes"], ["ask-to-stop"]])
def test_the_holder_of_another_fingerprint_is_left_alone(locks: Locks, command: list[str]) -> None:
    with lock("k"):
        seen = fingerprint_of("k")
    with any_lock("k", user="bob") as held:
        ended = locks(*command, "k", "--fingerprint", seen)
        held.check()

    assert (ended.status, ended.out) == (1, "")
    assert re.match(rf"locks: changed hands: 'k' .* is held by bob@{HERE}", ended.err)
    assert held.stop_requested is None


def test_of_several_holders_those_that_are_gone_alone_are_released(
    locks: Locks, readers: list[LockHandle]
) -> None:
    ended = locks("release", "k", "--yes", "--state", "holder-gone")

    assert (ended.status, ended.out.count("Released")) == (0, 1)
    assert f"is held by {HERE} (reader 0): holder gone, for" in ended.out
    assert readers_left() == ["reader 1", "reader 2"]
    for reader in readers[1:]:
        reader.check()


def test_of_several_holders_one_alone_can_be_named(locks: Locks, readers: list[LockHandle]) -> None:
    shares = inspector().get("lock:k").shares
    (share,) = [one for one in shares if one.holder and one.holder.note == "reader 1"]

    asked = locks("ask-to-stop", "k", "--fingerprint", share.fingerprint)
    released = locks("release", "k", "--yes", "--fingerprint", share.fingerprint)

    for ended in (asked, released):
        assert ended.status == 0
        assert "reader 1" in ended.out
        assert "reader 0" not in ended.out
    assert readers_left() == ["reader 0", "reader 2"]


def test_several_holders_are_not_released_unless_it_is_said_which(
    locks: Locks, readers: list[LockHandle]
) -> None:
    ended = locks("release", "k", "--yes")

    assert (ended.status, ended.out) == (64, "")
    assert ended.err.count(": holder gone, ") == 1
    assert ended.err.count(": held, ") == 2
    assert all(one.fingerprint in ended.err for one in inspector().get("lock:k").shares)
    assert len(readers_left()) == 3


def test_at_a_terminal_it_asks_of_each_holder_with_its_state(
    locks: Locks, readers: list[LockHandle], answer: Callable[..., None]
) -> None:
    notes = [one.holder.note for one in inspector().get("lock:k").shares if one.holder]
    answer("".join("y\n" if note == "reader 0" else "n\n" for note in notes))

    ended = locks("release", "k")

    assert ended.status == 0
    assert f"{HERE} (reader 0): holder gone, for" in ended.err
    assert f"{HERE} (reader 1): held, for" in ended.err
    assert ended.err.count("[y/N]") == 3
    assert readers_left() == ["reader 1", "reader 2"]


class Meanwhile(NamedTuple):
    """What happens between the question about a lock and the answer yes, and what is said then."""

    what: Callable[[FakeServer], object]
    status: int
    said: str


MEANWHILE = {
    "it lives again": Meanwhile(
        lambda _: revive_holder("k"), 1, "Renewed after you looked, so nothing was done: 'k'"
    ),
    "it changes hands": Meanwhile(
        lambda _: client_of().set("lock:k", "another"),
        1,
        "Changed hands after you looked, so nothing was done: 'k'",
    ),
    "Redis goes away": Meanwhile(
        lambda server: setattr(server, "connected", False),
        69,
        "It is not known whether this was done: 'k'",
    ),
}


@pytest.mark.parametrize("case", MEANWHILE.values(), ids=MEANWHILE)
def test_what_has_changed_before_the_answer_is_left_alone(
    locks: Locks, answer: Callable[..., None], fake_server: FakeServer, case: Meanwhile
) -> None:
    held = lock("k", timeout=300).take(0)
    kill_holder("k")
    answer("y\n", before=lambda: case.what(fake_server))

    ended = locks("release", "k")

    assert ": holder gone, " in ended.err
    assert ended.status == case.status
    assert f"{case.said} in the cache 'default'" in ended.out
    fake_server.connected = True
    assert client_of().get("lock:k") in (held.token.encode(), b"another")


@pytest.mark.parametrize(
    ("text", "blind", "setting", "status", "said"),
    [
        *((text, "", {}, 1, "[y/N] locks: nothing was released\n") for text in ("\n", "n\n", "")),
        ("yesterday\n", "", {}, 1, "[y/N] locks: nothing was released\n"),
        ("y\n", "stdin", {}, 64, "give --yes"),
        ("y\n", "stderr", {}, 64, "give --yes"),
        ("y\n", "", {"REQUIRE_REASON": True}, 64, "give a --reason"),
    ],
)
def test_without_a_yes_at_a_terminal_and_a_reason_where_one_is_required_nothing_is_released(
    locks: Locks,
    answer: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    blind: str,
    setting: dict[str, bool],
    status: int,
    said: str,
) -> None:
    answer(text)
    if blind:
        monkeypatch.setattr(getattr(sys, blind), "isatty", lambda: False)

    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, **setting}), lock("k") as held:
        ended = locks("release", "k")
        held.check()

    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err


@pytest.mark.parametrize(
    "command", [["show", "k"], ["release", "-y", "k"], ["ask-to-stop", "k"], ["history"]]
)
def test_an_unreachable_redis_is_status_69(
    locks: Locks, fake_server: FakeServer, command: list[str]
) -> None:
    fake_server.connected = False

    ended = locks(*command)

    assert ended.status == 69
    assert "Redis cannot be reached" in ended.out + ended.err


def test_on_several_caches_it_is_released_wherever_it_is_held(locks: Locks) -> None:
    caches = {**settings.CACHES, "other": {**settings.CACHES["default"]}}
    caches["other"]["LOCATION"] = "redis://fake.invalid:6379/3"
    with override_settings(CACHES=caches):
        for alias in caches:
            client_of(alias).set("lock:k", "theirs")
        ended = locks("release", "k", "--yes", "--using", "default,other")
        left = [client_of(alias).exists("lock:k") for alias in caches]

    assert (ended.status, ended.out.count("Released"), left) == (0, 2, [0, 0])
