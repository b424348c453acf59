"""``manage.py locks dismiss``."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import State
from tests.management.commands.conftest import Locks
from tests.processes import eventually


def state() -> State:
    return inspector().get("lock:k").state


@pytest.fixture
def _over() -> None:
    """Have a lease run out."""
    lock("k", timeout=0.2, user="ann", renew=False).take(0)
    eventually(lambda: state() is State.OVER)


@pytest.mark.usefixtures("_over")
def test_the_last_holder_is_named_and_forgotten(locks: Locks) -> None:
    before = locks("list")
    ended = locks("dismiss", "k")
    after = locks("list")

    assert "lease over" in before.out
    assert "ann@" in before.out
    assert (ended.status, ended.err) == (0, "")
    assert "'k' in the cache 'default' was held by ann@" in ended.out
    assert "Dismissed 'k' in the cache 'default', whose last holder was ann@" in ended.out
    assert after.out == "No locks.\n"
    assert state() is State.FREE


@pytest.mark.usefixtures("_over")
def test_a_release_tells_of_it(locks: Locks) -> None:
    ended = locks("release", "k", "--yes")

    assert ended.status == 1
    assert "'k' is held by nobody (its lease is over: locks dismiss)" in ended.err
    assert state() is State.OVER


@pytest.mark.usefixtures("_over")
def test_another_fingerprint_is_not_dismissed(locks: Locks) -> None:
    assert locks("dismiss", "k", "--fingerprint", "0" * 32).status == 1
    assert state() is State.OVER


def test_a_lock_that_is_held_is_status_1(locks: Locks) -> None:
    with lock("k"):
        ended = locks("dismiss", "k")
        assert state() is State.HELD

    assert ended.status == 1
    assert "'k' has no lease that is over: nothing was dismissed" in ended.err


@pytest.mark.django_db
@pytest.mark.usefixtures("_over")
def test_with_a_user_it_is_in_the_history_of_the_lock() -> None:
    User.objects.create_user("joe")
    call_command("locks", "dismiss", "k", user="joe")

    assert LogEntry.objects.get().change_message.startswith("Dismissed: the lease of ann@")
