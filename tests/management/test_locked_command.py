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
from typing import Any, ClassVar

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
    do: Callable[[Import], str | None] = staticmethod(lambda command: "imported")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--shop")

    def handle(self, *args: Any, **options: Any) -> str | None:
        self.options = options
        return type(self).do(self)


def doing(work: Callable[[Import], str | None]) -> Import:
    """Return a command that does ``work``."""

    class Doing(Import):
        do = staticmethod(work)

    return Doing()


def run(command: BaseCommand, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def seen(key: str) -> LockInfo:
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

    out = run(doing(work), "a.csv")

    assert out == "done\n"
    assert found[0].state is State.HELD
    assert seen("import:a.csv").state is State.FREE
    holder = found[0].holder
    assert holder is not None
    assert holder.label == "command test_locked_command"
    assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
    assert holder.user


def test_handle_does_not_see_the_options_of_the_lock() -> None:
    command = Import()

    run(command, "a", "--wait", "3")

    assert not [name for name in command.options if "lock" in name]
    assert command.options["file"] == "a"


def test_it_is_renewed_whatever_the_setting_says() -> None:
    class Long(Import):
        lock_options: ClassVar = {"timeout": 0.6}

        def handle(self, *args: Any, **options: Any) -> None:
            eventually(lambda: self.lock.remaining() < 0.45)
            eventually(lambda: self.lock.remaining() > 0.5)

    with override_settings(SETNX_LOCK={"RENEW": False}):
        run(Long(), "a")


@pytest.mark.parametrize("options", [["--no-wait"], ["--wait", "0"], ["--wait=0.05"]])
def test_a_busy_lock_is_status_75_and_says_who_has_it(options: list[str]) -> None:
    done: list[str] = []

    with any_lock("import:a", user="ann", label="pay"):
        error = failing(doing(lambda _: done.append("it")), "a", *options)

    assert error.returncode == 75
    assert re.match(
        r"the lock 'import:a' is held by ann@\S+ \(pay\); the lease has .* s left", str(error)
    )
    assert done == []


def test_the_class_says_how_long_to_wait_when_no_option_does() -> None:
    class Hasty(Import):
        lock_options: ClassVar = {"blocking_timeout": 0}

    with lock("import:a"):
        error = failing(Hasty(), "a")

    assert error.returncode == 75


def test_without_a_limit_it_says_for_whom_it_waits_and_runs_then() -> None:
    err = StringIO()
    held = lock("import:a", label="pay").take()
    done: list[str] = []

    def work() -> None:
        done.append(run(Import(), "a", stderr=err))

    waiter = threading.Thread(target=work)
    waiter.start()
    eventually(lambda: seen("import:a").waiting)
    held.release()
    waiter.join(20)

    assert done == ["imported\n"]
    assert re.fullmatch(
        r"waiting: the lock 'import:a' is held by \S+ \(pay\); [^\n]+\n", err.getvalue()
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a", "--wait", "soon"], "--wait"),
        (["a", "--no-wait", "--wait", "3"], "not allowed with"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], problem: str) -> None:
    assert problem in str(failing(Import(), *arguments))


def test_a_wait_that_is_no_time_is_status_64() -> None:
    assert failing(Import(), "a", "--wait", "-1").returncode == 64


def test_code_may_give_the_options_by_name() -> None:
    with lock("import:a"):
        assert failing(Import(), "a", no_wait=True).returncode == 75
        assert failing(Import(), "a", wait=0).returncode == 75


def test_an_unreachable_redis_is_status_69_and_nothing_runs(fake_server: FakeServer) -> None:
    done: list[str] = []
    fake_server.connected = False

    error = failing(doing(lambda _: done.append("it")), "a")

    assert (error.returncode, done) == (69, [])


def test_a_lock_that_was_lost_is_status_76() -> None:
    def work(_: Import) -> str:
        name = "lock:import:a"
        inspector().force_release(name, inspector().get(name).fingerprint, reason="stuck")
        return "done"

    error = failing(doing(work), "a")

    assert error.returncode == 76
    assert "stuck" in str(error)


def test_an_error_of_the_command_stays_as_it_is() -> None:
    def work(_: Import) -> str:
        raise CommandError("no such file", returncode=3)

    error = failing(doing(work), "a")

    assert (str(error), error.returncode) == ("no such file", 3)
    assert seen("import:a").state is State.FREE


def test_errors_of_other_locks_are_the_commands_own() -> None:
    def busy(_: Import) -> str:
        lock("other", blocking_timeout=0).take()
        return ""

    def lost(_: Import) -> str:
        raise LockLost("gone", key="other")

    with lock("other"), pytest.raises(LockBusy):
        run(doing(busy), "a")
    with pytest.raises(LockLost):
        run(doing(lost), "a")


def test_it_has_the_lock_again_that_its_thread_holds() -> None:
    with (
        override_settings(SETNX_LOCK={"REENTRANT": True}),
        lock("import:a") as outer,
    ):
        fences: list[int] = []
        run(doing(lambda command: fences.append(command.lock.fence)), "a", "--no-wait")
        still = outer.owned()

    assert fences == [outer.fence]
    assert still


def test_a_key_without_a_value_is_status_64() -> None:
    class ByShop(Import):
        lock_key = "import:<shop>"

    error = failing(ByShop(), "a")

    assert error.returncode == 64
    assert "<shop> is None" in str(error)
    assert run(ByShop(), "a", "--shop", "7") == "imported\n"


def test_a_template_that_names_no_argument_is_status_64_and_says_so() -> None:
    class Misspelt(Import):
        lock_key = "import:<fiel>"

    error = failing(Misspelt(), "a")

    assert error.returncode == 64
    assert str(error).endswith("<fiel>: there is no 'fiel' to take it from")


def test_a_template_that_is_malformed_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ValueError, match="without its partner"):

        class Malformed(Import):
            lock_key = "import:<file"


def test_a_command_without_a_lock_is_status_64_and_says_so() -> None:
    class Without(LockedCommand):
        pass

    error = failing(Without())

    assert (error.returncode, str(error)) == (
        64,
        "there is no key for the lock '' of this command: "
        'write for example lock_key = "import" in its class',
    )


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

    class ByHand(Import):
        lock_key = ""
        do = staticmethod(lambda _: found.append(seen("of-A")))

        def get_lock_key(self, options: Any) -> str:
            return f"of-{options['file'].upper()}"

    run(ByHand(), "a")

    assert found[0].state is State.HELD


def test_the_lock_is_made_with_the_options_of_the_class() -> None:
    found: list[LockInfo] = []

    class Long(Import):
        lock_options: ClassVar = {"timeout": 500, "note": "nightly"}
        do = staticmethod(lambda _: found.append(seen("import:a")))

    run(Long(), "a")

    assert found[0].remaining is not None
    assert found[0].remaining > 400
    assert found[0].holder is not None
    assert found[0].holder.note == "nightly"


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timout": 5}], ids=str)
def test_options_that_no_lock_can_have_are_refused_when_the_class_is_made(
    options: dict[str, Any],
) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        type("Wrong", (Import,), {"lock_options": options})


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
