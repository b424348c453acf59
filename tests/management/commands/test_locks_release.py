"""``manage.py locks show`` and ``locks release``."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import modify_settings, override_settings

from django_setnx_lock import LockLost, inspector, lock, rwlock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import Inspector, Outcome, State
from tests.admin.pages import refuse_entries
from tests.management.commands.conftest import Locks
from tests.management.conftest import SECONDS, Program
from tests.servers import FakeServer

LOCKS = (sys.executable, "-m", "django", "locks")
HERE = f"{socket.gethostname()}:{os.getpid()}"


def state_of(key: str) -> State:
    return inspector().get(f"lock:{key}").state


def fingerprint_of(key: str) -> str:
    return inspector().get(f"lock:{key}").fingerprint


def test_show_tells_all_of_a_lock_and_its_holder(locks: Locks) -> None:
    with lock("k", user="ann", label="import", note="nightly"):
        ended = locks("show", "k")
        fingerprint = fingerprint_of("k")

    facts = dict(re.split(r": +", line, maxsplit=1) for line in ended.out.splitlines())
    assert (ended.status, ended.err) == (0, "")
    assert facts["Name in Redis"] == "lock:k"
    assert facts["State"].startswith("held: Somebody holds it")
    assert (facts["User"], facts["Label"], facts["Note"]) == ("ann", "import", "nightly")
    assert facts["Fingerprint of the holder"] == fingerprint


def test_show_tells_all_who_hold_it_together(locks: Locks) -> None:
    readers = [rwlock("k", note=f"reader {number}").read() for number in range(5)]
    with contextlib.ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader)
        ended = locks("show", "k")
        shares = inspector().get("lock:k").shares

    for number, share in enumerate(shares, 1):
        assert f"Holder {number} of 5" in ended.out
        assert share.fingerprint in ended.out
        assert f"reader {number - 1}\n" in ended.out


def test_show_has_a_json_form(locks: Locks) -> None:
    with lock("k"):
        ended = locks("show", "k", "--json")

    assert [one["key"] for one in ended.document["locks"]] == ["k"]


def test_show_of_a_free_lock_is_status_1(locks: Locks) -> None:
    ended = locks("show", "k")

    assert ended.status == 1
    assert "Nobody holds it." in ended.out
    assert ended.err == "locks: nobody holds 'k'\n"


def test_release_names_the_holder_and_takes_it_from_him(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    held = lock("k", user="ann", label="import").take()
    with caplog.at_level(logging.INFO, "django_setnx_lock.force_release"):
        ended = locks("release", "k", "--yes", "--reason", "stuck since noon")
    with pytest.raises(LockLost) as lost:
        held.check()

    assert (ended.status, ended.err) == (0, "")
    assert f"'k' in the cache 'default' is held by ann@{HERE} (import), for" in ended.out
    assert f"Released 'k' in the cache 'default' from ann@{HERE} (import)." in ended.out
    assert lost.value.reason == "stuck since noon"
    assert lost.value.forced_by.endswith(f"@{socket.gethostname()}")
    (record,) = caplog.records
    assert "force-released the lock 'k'" in record.getMessage()
    assert "stuck since noon" in record.getMessage()


def test_a_dry_run_names_the_holder_and_releases_nothing(locks: Locks) -> None:
    with lock("k", label="import") as held:
        ended = locks("release", "k", "--dry-run")
        held.check()
        fingerprint = fingerprint_of("k")

    assert (ended.status, ended.err) == (0, "")
    assert f"'k' in the cache 'default' is held by {HERE} (import)" in ended.out
    assert ended.out.endswith(f"Dry run: it would be released with --fingerprint {fingerprint}\n")


@override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True})
def test_a_dry_run_needs_no_reason_where_a_release_does(locks: Locks) -> None:
    with lock("k"):
        assert locks("release", "k", "--dry-run").status == 0
        assert locks("release", "k", "--yes").status == 64


def test_a_dry_run_of_a_free_lock_is_status_1(locks: Locks) -> None:
    ended = locks("release", "k", "--dry-run")

    assert (ended.status, ended.out) == (1, "")
    assert "nothing was released" in ended.err


def test_what_a_dry_run_showed_is_not_taken_from_the_next_holder(locks: Locks) -> None:
    with lock("k"):
        seen = locks("release", "k", "--dry-run").out.split()[-1]
    with lock("k") as held:
        ended = locks("release", "k", "--yes", "--fingerprint", seen)
        held.check()

    assert (ended.status, "changed hands" in ended.err) == (1, True)


def test_release_of_a_free_lock_is_status_1(locks: Locks) -> None:
    ended = locks("release", "k", "--yes")

    assert ended == (1, "", "locks: 'k' is held by nobody: nothing was released\n")


def test_release_without_a_terminal_needs_yes(locks: Locks) -> None:
    with lock("k"):
        ended = locks("release", "k")
        state = state_of("k")

    assert ended.status == 64
    assert "give --yes" in ended.err
    assert state is State.HELD


def test_release_takes_it_from_the_holder_of_the_fingerprint(locks: Locks) -> None:
    with contextlib.suppress(LockLost), lock("k"):
        ended = locks("release", "k", "--yes", "--fingerprint", fingerprint_of("k"))

    assert ended.status == 0
    assert state_of("k") is State.FREE


@pytest.mark.django_db
def test_release_for_a_user_that_there_is_not_releases_nothing() -> None:
    with lock("k"):
        with pytest.raises(CommandError, match="there is no user 'rita'") as refused:
            call_command("locks", "release", "k", "--yes", "--user", "rita")
        state = state_of("k")

    assert refused.value.returncode == 64
    assert state is State.HELD


@modify_settings(INSTALLED_APPS={"remove": "django.contrib.admin"})
def test_release_for_a_user_without_the_admin_releases_nothing(locks: Locks) -> None:
    with lock("k"):
        ended = locks("release", "k", "--yes", "--user", "rita")
        state = state_of("k")

    assert ended.status == 64
    assert "--user writes to the admin's log, and django.contrib.admin is not in" in ended.err
    assert state is State.HELD


@pytest.mark.django_db
def test_release_for_a_user_whom_no_database_tells_releases_nothing() -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("it is away")

    with lock("k"):
        with connection.execute_wrapper(refuse), pytest.raises(CommandError) as refused:
            call_command("locks", "release", "k", "--yes", "--user", "rita")
        state = state_of("k")

    assert str(refused.value) == "the user 'rita' cannot be looked up: it is away"
    assert refused.value.returncode == 69
    assert state is State.HELD


@pytest.mark.django_db
def test_a_release_that_the_log_does_not_take_is_a_release(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    User.objects.create_user("rita")
    get_client().set("lock:k", "theirs")
    refuse_entries("k")

    call_command("locks", "release", "k", "--yes", "--user", "rita", "--reason", "stuck")

    told = capsys.readouterr().out.splitlines()
    assert told[1].startswith("Released 'k' in the cache 'default' from another program.")
    assert told[2].startswith("The admin's log did not take it")
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.getMessage().startswith("the admin's log did not take what 'rita' did to 'k': F")
    assert record.getMessage().endswith("Reason: stuck")


def test_release_with_another_fingerprint_releases_nothing(locks: Locks) -> None:
    with lock("k"):
        seen = fingerprint_of("k")
    with lock("k", user="bob"):
        ended = locks("release", "k", "--yes", "--fingerprint", seen)
        state = state_of("k")

    assert ended.status == 1
    assert ended.out == ""
    assert re.match(rf"locks: changed hands: 'k' .* is held by bob@{HERE}", ended.err)
    assert state is State.HELD


def test_of_several_who_hold_it_one_alone_can_be_released(locks: Locks) -> None:
    with rwlock("k", note="first").read(), contextlib.ExitStack() as stack:
        second = stack.enter_context(rwlock("k", note="second").read())
        shares = inspector().get("lock:k").shares
        (share,) = [one for one in shares if one.holder and one.holder.note == "second"]
        ended = locks("release", "k", "--yes", "--fingerprint", share.fingerprint)
        stack.pop_all()
        left = inspector().get("lock:k").shares
        lost = not second.owned()

    assert ended.status == 0
    assert "first" not in ended.out
    assert [one.holder.note for one in left if one.holder] == ["first"]
    assert lost


def test_without_a_fingerprint_all_who_hold_it_together_are_named_and_released(
    locks: Locks,
) -> None:
    with contextlib.suppress(LockLost), contextlib.ExitStack() as stack:
        for number in range(5):
            stack.enter_context(rwlock("k", note=f"reader {number}").read())
        ended = locks("release", "k", "--yes")

    assert ended.status == 0
    assert [f"reader {number}" in ended.out.splitlines()[0] for number in range(5)] == [True] * 5
    assert state_of("k") is State.FREE


def test_a_lock_that_changes_hands_meanwhile_is_left_alone(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    release: Callable[..., Outcome] = Inspector.force_release

    def late(self: Inspector, name: str, *args: Any, **options: Any) -> Outcome:
        get_client().set(name, "another")
        return release(self, name, *args, **options)

    monkeypatch.setattr(Inspector, "force_release", late)

    with contextlib.suppress(LockLost), lock("k"):
        ended = locks("release", "k", "--yes")

    assert ended.status == 1
    assert "changed hands: nothing was released" in ended.out
    assert get_client().get("lock:k") == b"another"


def test_a_release_whose_answer_is_lost_is_said_to_be_unknown(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, fake_server: FakeServer
) -> None:
    release: Callable[..., Outcome] = Inspector.force_release

    def cut(self: Inspector, *args: Any, **options: Any) -> Outcome:
        fake_server.connected = False
        return release(self, *args, **options)

    monkeypatch.setattr(Inspector, "force_release", cut)

    get_client().set("lock:k", "theirs")
    ended = locks("release", "k", "--yes")

    assert ended.status == 69
    assert "It is not known whether 'k' in the cache 'default' was released" in ended.out


def test_an_unreachable_redis_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    assert [locks("show", "k").status, locks("release", "k", "-y").status] == [69, 69]


def test_on_several_caches_it_is_released_wherever_it_is_held(locks: Locks) -> None:
    caches = {**settings.CACHES, "other": {**settings.CACHES["default"]}}
    caches["other"]["LOCATION"] = "redis://fake.invalid:6379/3"
    with override_settings(CACHES=caches):
        get_client("default").set("lock:k", "theirs")
        get_client("other").set("lock:k", "theirs")
        ended = locks("release", "k", "--yes", "--using", "default,other")
        left = [get_client(alias).exists("lock:k") for alias in ("default", "other")]
        with lock("n", using="other"):
            locks("release", "n", "--yes", "--using", "default")
            assert get_client("other").exists("lock:n")

    assert ended.status == 0
    assert ended.out.count("Released") == 2
    assert left == [0, 0]


def typed(
    start: Callable[..., Program],
    *arguments: str,
    when: str,
    then: Callable[[int, Program], object],
) -> tuple[int, str]:
    """Run the command at a terminal and do ``then`` when it writes ``when``.

    Return its status and all it wrote.
    """
    ours, theirs = pty.openpty()
    program = start(*arguments, command=LOCKS, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, deadline, done = "", time.monotonic() + SECONDS, False
    # Linux says EIO when the other side is closed.
    with contextlib.suppress(OSError):
        while select.select([ours], [], [], max(deadline - time.monotonic(), 0))[0]:
            seen += os.read(ours, 4096).decode()
            if not done and when in seen:
                done = True
                then(ours, program)
    os.close(ours)
    return program.wait(timeout=SECONDS), seen


def test_at_a_terminal_it_asks(start: Callable[..., Program]) -> None:
    lock("k").take()

    ended, seen = typed(
        start, "release", "k", when="[y/N]", then=lambda ours, _: os.write(ours, b"y\n")
    )

    assert (ended, state_of("k")) == (0, State.FREE)
    assert f"is held by {HERE}" in seen
    assert seen.index("is held by") < seen.index("[y/N]")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give a function that sits down at a terminal and types an answer."""

    def type_in(text: str) -> None:
        stdin = io.StringIO(text)
        monkeypatch.setattr("sys.stdin", stdin)
        for stream in (stdin, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)

    return type_in


@pytest.mark.parametrize("text", ["\n", "n\n", "yesterday\n", ""])
def test_any_other_answer_than_yes_is_a_no(
    locks: Locks, answer: Callable[[str], None], text: str
) -> None:
    answer(text)

    with lock("k"):
        ended = locks("release", "k")
        state = state_of("k")

    assert ended.status == 1
    assert ended.err.endswith("[y/N] locks: nothing was released\n")
    assert state is State.HELD


def test_it_asks_on_stderr_whom_it_is_taken_from(
    locks: Locks, answer: Callable[[str], None]
) -> None:
    get_client().set("lock:k", "theirs")
    answer("y\n")

    ended = locks("release", "k")

    assert ended.out == "Released 'k' in the cache 'default' from another program.\n"
    assert re.match("'k' in the cache .* is held by another program.*\nRelease it?", ended.err)


def test_it_does_not_ask_where_nobody_would_see_the_question(
    locks: Locks, answer: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer("y\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)

    with lock("k"):
        ended = locks("release", "k")

    assert ended.status == 64
    assert "give --yes" in ended.err


def test_who_reads_no_further_is_told_nothing_more(start: Callable[..., Program]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)

    program = start("list", command=LOCKS, stdout=theirs)
    os.close(theirs)

    assert program.end()[::2] == (141, "")


def test_watching_at_a_terminal_ends_with_ctrl_c(start: Callable[..., Program]) -> None:
    lock("k").take()

    ended, seen = typed(
        start,
        *("list", "--watch", "0.1"),
        when=HERE,
        then=lambda _, program: program.send_signal(signal.SIGINT),
    )

    assert ended == 0
    assert "\x1b[H\x1b[J" + str(datetime.now().astimezone().year) in seen
    assert "Traceback" not in seen
