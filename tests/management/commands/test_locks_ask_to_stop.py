"""``manage.py locks ask-to-stop``."""

from __future__ import annotations

import contextlib
import logging
import socket

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command

from django_setnx_lock import inspector, lock, rwlock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import State
from tests.management.commands.conftest import Locks
from tests.servers import FakeServer


def test_the_holder_hears_who_asks_it_to_stop_and_why(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        lock("k", user="ann", label="import") as held,
        caplog.at_level(logging.INFO, "django_setnx_lock.force_release"),
    ):
        ended = locks("ask-to-stop", "k", "--reason", "a deploy")
        held.check()
        state = inspector().get("lock:k").state

    assert (ended.status, ended.err) == (0, "")
    assert "'k' in the cache 'default' is held by ann@" in ended.out
    assert "Asked the holder of 'k' in the cache 'default' to stop: ann@" in ended.out
    assert state is State.HELD
    assert held.stop_requested is not None
    assert held.stop_requested.by.endswith(f"@{socket.gethostname()}")
    assert held.stop_requested.reason == "a deploy"
    (record,) = caplog.records
    assert "asked to stop the holder of 'k'" in record.getMessage()
    assert held.token not in ended.out + record.getMessage()


def test_show_tells_that_it_was_asked(locks: Locks) -> None:
    with lock("k"):
        before = locks("show", "k")
        locks("ask-to-stop", "k", "--reason", "a deploy")
        after, document = locks("show", "k"), locks("show", "k", "--json").document

    assert "Asked to stop" not in before.out
    assert "Asked to stop:" in after.out
    assert "less than 1 s ago: a deploy" in after.out
    assert document["locks"][0]["stop_requested"]["reason"] == "a deploy"


def test_show_tells_which_of_several_holders_was_asked(locks: Locks) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(rwlock("k").read())
        one = inspector().get("lock:k").shares[0]
        ended = locks("ask-to-stop", "k", "--fingerprint", one.fingerprint)
        told = locks("show", "k").out

    assert ended.status == 0
    assert "1 of 2 holders" in told
    assert told.count("Asked to stop:") == 2


def test_a_holder_that_was_asked_is_not_asked_again(locks: Locks) -> None:
    with lock("k"):
        locks("ask-to-stop", "k")
        ended = locks("ask-to-stop", "k")

    assert ended.status == 1
    assert "was asked before." in ended.out


def test_a_free_lock_is_status_1(locks: Locks) -> None:
    ended = locks("ask-to-stop", "k")

    assert ended == (1, "", "locks: 'k' is held by nobody: nobody was asked to stop\n")


def test_a_holder_of_another_fingerprint_is_not_asked(locks: Locks) -> None:
    with lock("k"):
        seen = inspector().get("lock:k").fingerprint
    with lock("k") as held:
        ended = locks("ask-to-stop", "k", "--fingerprint", seen)
        held.check()

    assert ended.status == 1
    assert ended.err.startswith("locks: changed hands: 'k'")
    assert held.stop_requested is None


def test_another_program_cannot_be_asked(locks: Locks) -> None:
    get_client().set("lock:k", "theirs", ex=60)

    ended = locks("ask-to-stop", "k")

    assert ended.status == 1
    assert "cannot ask the holder of the lock 'k' to stop: it is 'foreign'" in ended.out


def test_an_unreachable_redis_is_status_69(locks: Locks, fake_server: FakeServer) -> None:
    fake_server.connected = False

    assert locks("ask-to-stop", "k").status == 69


@pytest.mark.django_db
def test_with_a_user_it_is_in_the_history_of_the_lock() -> None:
    User.objects.create_user("rita")
    with lock("k"):
        call_command("locks", "ask-to-stop", "k", "--user", "rita", "--reason", "a deploy")

    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_id) == ("rita", "lock:k")
    assert entry.get_change_message().startswith("Asked to stop: ")
    assert "By manage.py locks ask-to-stop, as " in entry.get_change_message()
    assert entry.get_change_message().endswith("Reason: a deploy")
