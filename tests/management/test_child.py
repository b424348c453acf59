from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from django_setnx_lock.management.child import Child
from tests.processes import eventually, is_running


@pytest.fixture
def child_of() -> Iterator[Callable[..., Child]]:
    """Give a function that starts a child, which is killed in the end."""
    started: list[Child] = []

    def child_of(*command: str) -> Child:
        started.append(Child(command, os.environ))
        return started[-1]

    yield child_of
    for child in started:
        child.kill()
        child.close()


def test_it_tells_what_stopped_it(child_of: Callable[..., Child]) -> None:
    child = child_of("sleep", "60")

    child.send(signal.SIGSTOP)

    assert eventually(child.look) == signal.SIGSTOP
    assert child.status is None


def test_its_end_is_noted_once(child_of: Callable[..., Child]) -> None:
    child = child_of("sh", "-c", "exit 3")

    eventually(lambda: child.look() is None and child.status is not None)

    assert (child.look(), child.status) == (None, 3)


def test_it_leads_a_process_group_of_its_own(child_of: Callable[..., Child]) -> None:
    assert os.getpgid(child_of("sleep", "60").pid) != os.getpgrp()


def test_killing_it_returns_when_it_is_gone(child_of: Callable[..., Child]) -> None:
    child = child_of("sleep", "60")

    child.kill()

    assert child.status == 137
    assert not is_running(child.pid)


def test_a_signal_to_one_that_is_gone_is_no_error(child_of: Callable[..., Child]) -> None:
    child = child_of("true")
    child.kill()

    assert child.send(signal.SIGTERM) is True
    assert child.is_extinct()


def test_it_says_when_it_may_not_be_signalled(
    child_of: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = child_of("true")

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refused)

        assert child.send(signal.SIGTERM) is False
        assert not child.is_extinct()
