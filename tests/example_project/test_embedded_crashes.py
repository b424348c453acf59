"""What becomes of the embedded server when something ends at the worst moment."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from example_project import embedded
from example_project.server import launch
from tests.processes import eventually, is_running, parent_of

if TYPE_CHECKING:
    from tests.example_project.conftest import Checkout, User

# The server of the example, which none but the demo has.
pytestmark = pytest.mark.storm

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def waits_for_a_flock(user: User) -> bool:
    pid = f" {user.process.pid} "
    return any(
        "-> FLOCK" in line and pid in line for line in Path("/proc/locks").read_text().splitlines()
    )


def begin_while_another_ends(checkout: Checkout) -> User:
    """Return a new user which began while a supervisor had the lock to clean up."""
    users = embedded.open_locked("users", fcntl.LOCK_EX)
    user = checkout.user()
    eventually(lambda: waits_for_a_flock(user))
    embedded.remove_everything()
    os.close(users)
    return user


@only_linux
def test_a_user_that_comes_while_the_last_server_ends_gets_a_new_one(checkout: Checkout) -> None:
    user = begin_while_another_ends(checkout).ready()

    other = checkout.user().ready()

    assert other.url == user.url
    assert checkout.starts == 1
    other.end()
    assert redis.Redis.from_url(user.url).ping()


@only_linux
def test_without_the_look_at_the_lock_file_that_user_is_not_counted(checkout: Checkout) -> None:
    checkout.change("return os.path.samestat(", "return True or os.path.samestat(")
    user = begin_while_another_ends(checkout)

    said, _ = user.process.communicate("", timeout=10)
    shutil.rmtree(embedded.runtime_directory())

    assert "FileNotFoundError" in said


def test_users_that_come_and_go_always_find_a_server(checkout: Checkout) -> None:
    ended = []

    for _ in range(5):
        user = checkout.user().ready()
        ended.append(redis.Redis.from_url(user.url).ping())
        user.process.stdin.close()  # type: ignore[union-attr] # it is a pipe

    assert all(ended)
    eventually(checkout.is_gone)


@only_linux
def test_a_starter_that_is_killed_leaves_one_server_to_the_next(checkout: Checkout) -> None:
    checkout.hold.touch()
    starter = checkout.user()
    eventually(lambda: checkout.starts)
    starter.kill()

    user = checkout.user()
    eventually(lambda: waits_for_a_flock(user))
    checkout.hold.unlink()
    user.ready()

    assert checkout.starts == 1
    user.end()
    eventually(checkout.is_gone)


@only_linux
def test_a_starter_that_is_killed_alone_leaves_nothing(checkout: Checkout) -> None:
    checkout.hold.touch()
    starter = checkout.user()
    eventually(lambda: checkout.starts)

    starter.kill()
    checkout.hold.unlink()

    eventually(checkout.is_gone)


@only_linux
def test_a_killed_supervisor_takes_its_server_along_and_the_next_user_gets_another(
    checkout: Checkout,
) -> None:
    first = checkout.user().ready()
    server = checkout.server_pid()
    os.kill(parent_of(server), signal.SIGKILL)
    eventually(lambda: not is_running(server))

    second = checkout.user().ready()

    assert checkout.starts == 2
    assert second.url == first.url
    first.end()
    assert redis.Redis.from_url(second.url).ping()
    second.end()
    eventually(checkout.is_gone)


def test_a_killed_server_is_started_again_for_the_next_user(checkout: Checkout) -> None:
    first = checkout.user().ready()
    os.kill(checkout.server_pid(), signal.SIGKILL)

    second = checkout.user().ready()
    pid = checkout.server_pid()

    assert checkout.starts == 2
    first.end()
    assert redis.Redis.from_url(second.url).ping()
    second.end()
    eventually(checkout.is_gone)
    eventually(lambda: not is_running(pid))


def test_what_a_crashed_machine_left_is_not_believed(checkout: Checkout) -> None:
    embedded.make_directory()
    left = launch(str(checkout.server), embedded.runtime_directory())
    left.kill()
    left.wait(timeout=10)
    (embedded.runtime_directory() / "users").touch()
    (embedded.runtime_directory() / "starting").touch()
    assert embedded.socket_path().exists()

    user = checkout.user().ready()

    assert checkout.starts == 2
    user.end()
    eventually(checkout.is_gone)


def test_a_server_that_nobody_would_end_is_ended_and_replaced(checkout: Checkout) -> None:
    embedded.make_directory()
    orphan = launch(str(checkout.server), embedded.runtime_directory())

    user = checkout.user().ready()

    assert orphan.wait(timeout=10) == 0
    assert checkout.starts == 2
    assert redis.Redis.from_url(user.url).ping()


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
