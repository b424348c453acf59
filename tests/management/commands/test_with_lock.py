"""The command as its users meet it: statuses, messages, what the child sees."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import State
from django_setnx_lock.signals import lock_acquired
from tests.management.conftest import COMMAND, Program
from tests.processes import eventually
from tests.servers import RealServer
from tests.support.seams import any_lock

Start = Callable[..., Program]
Run = Callable[..., tuple[int, str, str]]

WITH_ATEXIT = (
    sys.executable,
    "-c",
    "import atexit, sys; atexit.register(print, 'at exit')\n"
    "from django.core.management import execute_from_command_line\n"
    "execute_from_command_line()",
    "with_lock",
)
SHOW_LOCK = (
    "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if 'SETNX' in k}))"
)


def state_of(key: str) -> State:
    return inspector().get(f"lock:{key}").state


def program(*arguments: str) -> int:
    """Run the command in this process as a program; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        load_command_class("django_setnx_lock", "with_lock").run_from_argv(
            ["manage.py", "with_lock", *arguments]
        )
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("status", [0, 75, 130, 255])
def test_it_exits_as_its_command_does_and_says_nothing(run: Run, status: int) -> None:
    ended = run("k", "sh", "-c", f"exit {status}")

    assert ended == (status, "", "")
    assert state_of("k") is State.FREE


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "PIPE"])
def test_a_signal_that_ended_the_command_is_128_plus_its_number(run: Run, name: str) -> None:
    ended = run("k", "sh", "-c", f"ulimit -c 0; kill -{name} $$")

    assert ended == (128 + signal.Signals[f"SIG{name}"], "", "")
    assert state_of("k") is State.FREE


@pytest.mark.matrix
@pytest.mark.parametrize("command", [COMMAND, WITH_ATEXIT], ids=["django", "atexit"])
def test_with_lock_ends_by_int_where_that_has_ended_its_command(
    run: Run, command: tuple[str, ...]
) -> None:
    status, out, err = run("k", "sh", "-c", "kill -INT $$", command=command)

    assert (status, err) == (-signal.SIGINT, "")
    assert out == ("at exit\n" if command is WITH_ATEXIT else "")


def test_code_that_calls_it_with_a_line_of_its_own_gets_a_keyboard_interrupt(
    real_cache: RealServer,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        program("k", "sh", "-c", "kill -INT $$")
    with pytest.raises(CommandError, match="sh ended with status 130"):
        call_command("with_lock", "k", "sh", "-c", "kill -INT $$")


def test_stdin_stdout_and_stderr_are_the_commands(start: Start) -> None:
    with_lock = start("k", "sh", "-c", "cat; echo problem >&2", stdin=-1)

    out, err = with_lock.communicate("some\nlines\n", timeout=20)

    assert (out, err) == ("some\nlines\n", "problem\n")


def test_words_reach_the_program_as_they_are(run: Run, tmp_path: Path) -> None:
    words = ["-c", "", "", "a  b", "$HOME", ";", "*", "\udcff", "--", "é", "x" * 10_000, ""]
    script = executable(tmp_path / "script", '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')

    out = run("k", script, *words, errors="surrogateescape")[1]

    assert out.split("\n")[:-1] == [script, *words]


def test_the_command_sees_key_token_and_fence_of_the_lock(
    start: Start, real_server: RealServer
) -> None:
    with_lock = start(
        "order:42", "sh", "-c", f'"{sys.executable}" -c "{SHOW_LOCK}"; read wait', stdin=-1
    )

    seen = json.loads(with_lock.line())

    client = real_server.client(decode_responses=True)
    (held,) = json.loads(seen.pop("SETNX_LOCK_HELD_TOKENS"))
    assert (held["name"], held["token"]) == ("lock:order:42", seen["SETNX_LOCK_TOKEN"])
    assert seen == {
        "SETNX_LOCK_KEY": "order:42",
        "SETNX_LOCK_TOKEN": client.get("lock:order:42"),
        "SETNX_LOCK_FENCE": str(inspector().get("lock:order:42").fence),
    }
    with_lock.communicate("\n", timeout=20)


LABELS = [
    ("backup.sh --password secret", "backup.sh"),
    ("{bin}/backup.sh secret", "backup.sh"),
    ("sh -c secret", "sh"),
    ("python", "python"),
    ("python script.py secret", "python script.py"),
    ("{bin}/python3.12 /srv/script.py secret", "python3.12 script.py"),
    ("python -c secret", "python"),
    ("python -m module secret", "python"),
    ("python manage.py import --token secret", "python manage.py import"),
    ("manage.py import secret", "manage.py import"),
    ("manage.py --settings=secret import", "manage.py"),
    ("pythonic secret", "pythonic"),
]


@pytest.mark.parametrize(("command", "label"), LABELS)
def test_a_label_names_the_program_and_never_its_arguments(
    real_cache: RealServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    label: str,
) -> None:
    for name in ("backup.sh", "manage.py", "pythonic", "python", "python3.12", "sh"):
        executable(tmp_path / name, "#!/bin/true\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    labels = []

    def note(sender: object, **_: object) -> None:
        holder = inspector().get("lock:k").holder
        assert holder is not None
        labels.append(holder.label)

    lock_acquired.connect(note)
    try:
        call_command("with_lock", "k", *command.format(bin=tmp_path).split(" "))
    finally:
        lock_acquired.disconnect(note)

    assert labels == [f"with_lock {label}"]


@pytest.mark.parametrize("error", [KeyError, OSError, ImportError])
def test_a_user_without_a_name_is_a_number(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    users = []
    lock_acquired.connect(
        note := lambda **_: users.append(str(inspector().get("lock:k").holder)), weak=False
    )
    try:
        call_command("with_lock", "k", "true")
    finally:
        lock_acquired.disconnect(note)

    assert users[0].startswith(f"uid {os.getuid()}@")


def test_the_holder_record_names_the_program_its_user_and_the_note(start: Start) -> None:
    with_lock = start(
        "--note", "nightly", "k", "sh", "-c", "echo on; read wait", "secret", stdin=-1
    )
    with_lock.line()

    info = inspector().get("lock:k")

    assert info.holder is not None
    assert (info.holder.label, info.holder.note) == ("with_lock sh", "nightly")
    assert (info.holder.host, info.holder.pid) == (socket.gethostname(), with_lock.pid)
    assert info.holder.user
    with_lock.communicate("\n", timeout=20)


@pytest.mark.parametrize("option", [["-n"], ["--nonblock"], ["-w", "0.2"], ["--wait=0"]])
def test_busy_is_status_75_and_one_line_that_says_who_holds_it(
    real_cache: RealServer, capfd: pytest.CaptureFixture[str], option: list[str]
) -> None:
    with any_lock("k", timeout=20, label="import", user="ann", note="nightly"):
        status = program(*option, "k", "echo", "started")

    out, err = capfd.readouterr()
    assert (status, out) == (75, "")
    assert re.fullmatch(
        rf"with_lock: the lock 'k' is held by ann@{socket.gethostname()}:{os.getpid()} "
        r"\(import; nightly\); the lease has (1\d\.\d|20\.0) s left\n",
        err,
    )


@pytest.mark.parametrize(("expiry", "lease"), [(59_000, "has 5"), (None, "never expires")])
def test_a_foreign_holder_is_named_as_such(
    real_cache: RealServer, capfd: pytest.CaptureFixture[str], expiry: int | None, lease: str
) -> None:
    real_cache.client().set("lock:k", "theirs", px=expiry)

    status = program("-n", "k", "true")

    err = capfd.readouterr().err
    assert status == 75
    assert "held by somebody else" in err
    assert f"the lease {lease}" in err


def test_without_an_option_it_waits_and_says_once_for_whom(start: Start) -> None:
    with override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0.1}), lock("k", label="import") as held:
        with_lock = start("k", "echo", "started")
        said = with_lock.message()
        eventually(lambda: inspector().get("lock:k").waiting)
        held.extend(20)

    assert with_lock.end() == (0, "started\n", "")
    assert re.match(r"with_lock: waiting: the lock 'k' is held by \S+ \(import\); the lease", said)


def test_an_unreachable_redis_is_status_69_and_the_command_is_not_started(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVER_URL", "redis://127.0.0.1:1/0")

    status, out, err = run("k", "echo", "started")

    assert (status, out) == (69, "")
    assert re.fullmatch(r"with_lock: the lock 'k' is unavailable: Redis cannot be reached.*\n", err)


def test_too_few_replicas_are_status_69_and_the_command_is_not_started(
    real_cache: RealServer, capfd: pytest.CaptureFixture[str]
) -> None:
    status = program("--replicas", "1", "--timeout", "2", "k", "echo", "started")

    out, err = capfd.readouterr()
    assert (status, out) == (69, "")
    assert "0 of the 1 replicas asked for acknowledged it" in err
    assert state_of("k") is State.FREE


def executable(path: Path, content: str) -> str:
    path.write_text(content)
    path.chmod(0o755)
    return str(path)


def test_a_command_that_cannot_be_executed_is_status_126(
    real_cache: RealServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    broken = executable(tmp_path / "broken", "#!/no/such/interpreter\n")
    unknown = executable(tmp_path / "unknown", "\0no program\n")

    statuses = [program("k", str(path)) for path in (plain, broken, unknown, tmp_path)]

    reasons = capfd.readouterr().err.splitlines()
    assert statuses == [126] * 4
    assert [reason.partition(str(tmp_path))[2] for reason in reasons] == [
        "/plain is not executable",
        "/broken cannot be executed: No such file or directory",
        "/unknown cannot be executed: Exec format error",
        " is not executable",
    ]
    assert state_of("k") is State.FREE


def test_a_command_that_is_not_found_is_status_127_even_if_the_lock_is_busy(
    run: Run, real_server: RealServer
) -> None:
    real_server.client().set("lock:k", "theirs")

    assert run("k", "no-such-program") == (127, "", "with_lock: no-such-program is not found\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--timeout", "0", "k", "true"], "--timeout is a number of seconds from 0.001"),
        (["--timeout=-1", "k", "true"], "--timeout is a number of seconds from 0.001"),
        (["--timeout", "nan", "k", "true"], "--timeout is a number"),
        (["--replicas", "-1", "k", "true"], "replicas is None or a number of replicas"),
        (["--timeout", "inf", "k", "true"], "--timeout is a number"),
        (["--wait", "-1", "k", "true"], "--wait is None or"),
        (["--wait", "nan", "k", "true"], "--wait is None or"),
        (["", "true"], "key must not be empty"),
        (["a}b", "true"], "braces"),
        (["a\udcffb", "true"], "not UTF-8"),
        (["k", "tr\0ue"], "NUL"),
    ],
)
def test_a_bad_value_is_status_64(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = program(*arguments)

    err = capsys.readouterr().err
    assert status == 64
    assert complaint in err
    assert (err.count("\n"), err[:11]) == (1, "with_lock: ")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"CACHE": "nope"}, "no cache 'nope'"),
        ([], "must be a dict"),
        ({"TIMEOUT": 0}, "SETNX_LOCK['TIMEOUT'] is a number"),
    ],
)
def test_a_misconfigured_project_is_status_78(
    setting: object, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with override_settings(SETNX_LOCK=setting):
        status = program("k", "true")

    err = capsys.readouterr().err
    assert (status, err.count("\n")) == (78, 1)
    assert complaint in err


def test_a_traceback_comes_only_when_asked_for_and_the_status_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program("--traceback", "--using", "nope", "k", "true") == 78
    assert "ImproperlyConfigured" in capsys.readouterr().err


def test_a_broken_stderr_changes_nothing(start: Start) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    with lock("k"):
        with_lock = start("k", "echo", "started", stderr=writer)
        eventually(lambda: inspector().get("lock:k").waiting)
    os.close(writer)

    out, _ = with_lock.communicate(timeout=20)
    assert (with_lock.returncode, out) == (0, "started\n")


def test_closed_standard_streams_change_nothing(run: Run, tmp_path: Path) -> None:
    closing = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND)

    status, _, _ = run("k", "touch", str(tmp_path / "made"), command=closing)

    assert status == 0
    assert (tmp_path / "made").exists()


def test_it_works_when_called_from_code(real_cache: RealServer, tmp_path: Path) -> None:
    made = tmp_path / "made"

    call_command("with_lock", "k", "touch", str(made), nonblock=True, timeout=5)

    assert made.exists()
    assert state_of("k") is State.FREE


def test_called_from_code_a_failure_is_a_command_error_with_the_status(
    real_cache: RealServer,
) -> None:
    with pytest.raises(CommandError, match="sh ended with status 3") as failed:
        call_command("with_lock", "k", "sh", "-c", "exit 3")
    with lock("k"), pytest.raises(CommandError, match="'k' is held by") as busy:
        call_command("with_lock", "k", "true", wait=0)

    assert (failed.value.returncode, busy.value.returncode) == (3, 75)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "required: KEY"),
        (["k"], "CMD is missing"),
        (["\udcff", "true"], "not UTF-8"),
    ],
)
def test_called_from_code_it_refuses_what_is_no_key_and_command(
    words: list[str], complaint: str
) -> None:
    with pytest.raises(CommandError, match=complaint) as failed:
        call_command("with_lock", *words)

    assert failed.value.returncode == 64


def test_called_in_another_thread_it_says_why_it_cannot_work() -> None:
    raised: list[CommandError] = []

    def called() -> None:
        with pytest.raises(CommandError) as error:
            call_command("with_lock", "k", "true")
        raised.append(error.value)

    thread = threading.Thread(target=called)
    thread.start()
    thread.join(timeout=10)

    assert "main thread only" in str(raised[0])
