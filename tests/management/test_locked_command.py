"""LockedCommand: commands under a lock of their own."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, inspector, lock
from django_setnx_lock.core import LockInfo, State
from django_setnx_lock.management import LockedCommand
from tests.management.conftest import Program
from tests.management.holders import client_of
from tests.processes import eventually
from tests.servers import FakeServer
from tests.support.seams import any_lock


class Import(LockedCommand):
    """An import of one file; ``do`` stands for the work."""

    lock_key = "import:<file>"
    requires_system_checks = ()
    do: Callable[[Any], str | None] = staticmethod(lambda command: "imported")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--shop")

    def handle(self, *args: Any, **options: Any) -> str | None:
        self.options = options
        return type(self).do(self)


def doing(work: Callable[[Any], Any] = Import.do, **attributes: Any) -> Import:
    """Return a command that does ``work``, with other attributes if given."""
    made: Import = type("Doing", (Import,), {"do": staticmethod(work), **attributes})()
    return made


def run(command: BaseCommand, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def seen(key: str = "import:a") -> LockInfo:
    return inspector().get(f"lock:{key}")


def failing(command: BaseCommand, *arguments: str, **options: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(command, *arguments, **options)
    return caught.value


def test_the_command_runs_under_the_lock_that_its_arguments_name() -> None:
    found: list[LockInfo] = []

    def work(command: Import) -> str:
        found.append(seen("import:a.csv"))
        command.lock.check()
        return "done"

    out = run(doing(work, lock_options={"timeout": 500, "note": "nightly"}), "a.csv")

    assert out == "done\n"
    assert found[0].state is State.HELD
    assert found[0].remaining is not None
    assert found[0].remaining > 400
    assert seen("import:a.csv").state is State.FREE
    holder = found[0].holder
    assert holder is not None
    assert (holder.label, holder.note) == ("command test_locked_command", "nightly")
    assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
    assert holder.user


def test_handle_does_not_see_the_options_of_the_lock() -> None:
    command = Import()

    run(command, "a", "--wait", "3")

    assert not [name for name in command.options if "lock" in name]
    assert command.options["file"] == "a"


def test_it_is_renewed_whatever_the_setting_says() -> None:
    def work(command: Import) -> None:
        eventually(lambda: command.lock.remaining() < 0.45)
        eventually(lambda: command.lock.remaining() > 0.5)

    with override_settings(SETNX_LOCK={"RENEW": False}):
        run(doing(work, lock_options={"timeout": 0.6}), "a")


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (["--no-wait"], {}),
        (["--wait", "0"], {}),
        (["--wait=0.05"], {}),
        ([], {"no_wait": True}),
        ([], {"wait": 0}),
        ([], {"lock_options": {"blocking_timeout": 0}}),
    ],
    ids=str,
)
def test_a_busy_lock_is_status_75_and_says_who_has_it(
    line: list[str], options: dict[str, Any]
) -> None:
    done: list[str] = []
    attributes = {key: options.pop(key) for key in [*options] if key == "lock_options"}

    with any_lock("import:a", user="ann", label="pay"):
        command = doing(lambda _: done.append("it"), **attributes)
        error = failing(command, "a", *line, **options)

    assert error.returncode == 75
    assert re.match(
        r"the lock 'import:a' is held by ann@\S+ \(pay\); the lease has .* s left", str(error)
    )
    assert done == []


def test_without_a_limit_it_says_for_whom_it_waits_and_runs_then() -> None:
    err = StringIO()
    held = lock("import:a", label="pay").take()
    done: list[str] = []

    waiter = threading.Thread(target=lambda: done.append(run(Import(), "a", stderr=err)))
    waiter.start()
    eventually(lambda: seen().waiting)
    held.release()
    waiter.join(20)

    assert done == ["imported\n"]
    assert re.fullmatch(
        r"waiting: the lock 'import:a' is held by \S+ \(pay\); [^\n]+\n", err.getvalue()
    )


def test_an_unreachable_redis_is_status_69_and_nothing_runs(fake_server: FakeServer) -> None:
    done: list[str] = []
    fake_server.connected = False

    error = failing(doing(lambda _: done.append("it")), "a")

    assert (error.returncode, done) == (69, [])


def test_a_lock_that_was_lost_is_status_76() -> None:
    def work(_: Import) -> str:
        inspector().force_release("lock:import:a", seen().fingerprint, reason="stuck")
        return "done"

    error = failing(doing(work), "a")

    assert error.returncode == 76
    assert "stuck" in str(error)


def test_errors_of_the_command_and_of_its_other_locks_stay_as_they_are() -> None:
    def fail(_: Import) -> None:
        raise CommandError("no such file", returncode=3)

    def lost(_: Import) -> None:
        raise LockLost("gone", key="other")

    error = failing(doing(fail), "a")
    with lock("other"), pytest.raises(LockBusy):
        run(doing(lambda _: lock("other", blocking_timeout=0).take()), "a")
    with pytest.raises(LockLost):
        run(doing(lost), "a")

    assert (str(error), error.returncode) == ("no such file", 3)
    assert seen().state is State.FREE


def test_it_has_the_lock_again_that_its_thread_holds() -> None:
    fences: list[int] = []
    command = doing(lambda command: fences.append(command.lock.fence))
    with override_settings(SETNX_LOCK={"REENTRANT": True}), lock("import:a") as outer:
        run(command, "a", "--no-wait")
        still = outer.owned()

    assert fences == [outer.fence]
    assert still


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("import:<shop>", "<shop> is None"),
        ("import:<fiel>", "<fiel>: there is no 'fiel' to take it from"),
        ("", "there is no key for the lock '' of this command"),
    ],
)
def test_a_command_whose_key_cannot_be_made_is_status_64(key: str, problem: str) -> None:
    error = failing(doing(lock_key=key), "a")

    assert error.returncode == 64
    assert problem in str(error)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"lock_key": "import:<file"}, "without its partner"),
        ({"lock_options": {"timeout": 0}}, "timeout"),
        ({"lock_options": {"timout": 5}}, "timout"),
    ],
)
def test_what_no_lock_can_have_is_refused_when_the_class_is_made(
    wrong: dict[str, Any], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        doing(**wrong)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--wait", "soon"], "--wait"),
        (["--no-wait", "--wait", "3"], "not allowed with"),
        (["--wait", "-1"], "--wait"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], problem: str) -> None:
    assert problem in str(failing(Import(), "a", *options))


def test_the_arguments_of_subcommands_can_be_named() -> None:
    class WithSubcommands(Import):
        lock_key = "import:<what>"

        def add_arguments(self, parser: CommandParser) -> None:
            inner = parser.add_subparsers(dest="action", required=True)
            inner.add_parser("one").add_argument("what")
            inner.add_parser("all")

    assert run(WithSubcommands(), "one", "a") == "imported\n"
    assert failing(WithSubcommands(), "all").returncode == 64


def test_a_key_can_be_made_by_hand() -> None:
    found: list[LockInfo] = []

    def get_lock_key(self: Import, options: Any) -> str:
        return f"of-{options['file'].upper()}"

    run(doing(lambda _: found.append(seen("of-A")), lock_key="", get_lock_key=get_lock_key), "a")

    assert found[0].state is State.HELD


def test_a_command_with_options_of_these_names_keeps_its_own() -> None:
    class Waiting(Import):
        lock_arguments = False

        def add_arguments(self, parser: CommandParser) -> None:
            super().add_arguments(parser)
            parser.add_argument("--wait")

    command = Waiting()
    run(command, "a", "--wait", "for it")

    assert command.options["wait"] == "for it"


def test_as_a_program_it_exits_with_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    client_of().set("lock:import:a", "theirs", px=60_000)

    with pytest.raises(SystemExit) as ended:
        Import().run_from_argv(["manage.py", "import", "a", "--no-wait"])

    assert ended.value.code == 75
    said = capsys.readouterr().err
    assert said.startswith("CommandError: the lock 'import:a' is held by somebody else")


PROGRAM = """
import django
django.setup()
from django.core.management.base import BaseCommand
from django_setnx_lock.management import LockedCommand

class Command(LockedCommand):
    lock_key = "import"
    requires_system_checks = ()
    def handle(self, *args, **options):
        self.lock.check()
        return "imported"

Command().run_from_argv(["manage.py", "import", "--no-wait"])
"""


def test_under_with_lock_of_its_key_it_goes_on_with_that(
    start: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("TEST_REENTRANT", "1")
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)

    ended = start("import", "--", sys.executable, str(script)).end()

    assert ended == (0, "imported\n", "")
