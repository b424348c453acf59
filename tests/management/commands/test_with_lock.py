"""with_lock as its users meet it: statuses, messages, what the command sees, kinds of locks."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import inspector, lock, rwlock, semaphore
from django_setnx_lock.core import State
from django_setnx_lock.signals import lock_acquired
from tests.management.commands.conftest import Locks
from tests.management.conftest import CHECKOUT, COMMAND, Program
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


def executable(path: Path, content: str) -> str:
    path.write_text(content)
    path.chmod(0o755)
    return str(path)


@contextmanager
def holders() -> Iterator[list[str]]:
    """Give a list of who holds ``k`` each time when it is taken: the label, and all of it."""
    seen: list[str] = []

    def note(**_: object) -> None:
        holder = inspector().get("lock:k").holder
        assert holder is not None
        seen.append(f"{holder.label}: {holder}")

    lock_acquired.connect(note)
    try:
        yield seen
    finally:
        lock_acquired.disconnect(note)


# How it ends


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


@pytest.mark.usefixtures("real_cache")
def test_code_that_calls_it_with_a_line_of_its_own_gets_a_keyboard_interrupt(
    with_lock: Locks,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        with_lock("k", "sh", "-c", "kill -INT $$")
    with pytest.raises(CommandError, match="sh ended with status 130"):
        call_command("with_lock", "k", "sh", "-c", "kill -INT $$")


@pytest.mark.usefixtures("real_cache")
def test_called_from_code_a_failure_is_a_command_error_with_the_status(tmp_path: Path) -> None:
    made = tmp_path / "made"

    call_command("with_lock", "k", "touch", str(made), nonblock=True, timeout=5)
    with pytest.raises(CommandError, match="sh ended with status 3") as failed:
        call_command("with_lock", "k", "sh", "-c", "exit 3")
    with lock("k"), pytest.raises(CommandError, match="'k' is held by") as busy:
        call_command("with_lock", "k", "true", wait=0)

    assert made.exists()
    assert (failed.value.returncode, busy.value.returncode) == (3, 75)


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


@pytest.mark.usefixtures("real_cache")
def test_a_command_that_cannot_be_executed_is_status_126(with_lock: Locks, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    broken = executable(tmp_path / "broken", "#!/no/such/interpreter\n")
    unknown = executable(tmp_path / "unknown", "\0no program\n")

    ended = [with_lock("k", str(path)) for path in (plain, broken, unknown, tmp_path)]

    assert [one.status for one in ended] == [126] * 4
    assert [one.err.partition(str(tmp_path))[2] for one in ended] == [
        "/plain is not executable\n",
        "/broken cannot be executed: No such file or directory\n",
        "/unknown cannot be executed: Exec format error\n",
        " is not executable\n",
    ]
    assert state_of("k") is State.FREE


def test_a_command_that_is_not_found_is_status_127_even_if_the_lock_is_busy(
    run: Run, real_server: RealServer
) -> None:
    real_server.client().set("lock:k", "theirs")

    assert run("k", "no-such-program") == (127, "", "with_lock: no-such-program is not found\n")


def test_an_unreachable_redis_is_status_69_and_the_command_is_not_started(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVER_URL", "redis://127.0.0.1:1/0")

    status, out, err = run("k", "echo", "started")

    assert (status, out) == (69, "")
    assert re.fullmatch(r"with_lock: the lock 'k' is unavailable: Redis cannot be reached.*\n", err)


@pytest.mark.usefixtures("real_cache")
def test_too_few_replicas_are_status_69_and_the_command_is_not_started(with_lock: Locks) -> None:
    ended = with_lock("--replicas", "1", "--timeout", "2", "k", "echo", "started")

    assert (ended.status, ended.out) == (69, "")
    assert "0 of the 1 replicas asked for acknowledged it" in ended.err
    assert state_of("k") is State.FREE


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"CACHE": "nope"}, "no cache 'nope'"),
        ([], "must be a dict"),
        ({"TIMEOUT": 0}, "SETNX_LOCK['TIMEOUT'] is a number"),
    ],
)
def test_a_misconfigured_project_is_status_78_and_a_traceback_is_for_who_asks(
    with_lock: Locks, setting: object, complaint: str
) -> None:
    with override_settings(SETNX_LOCK=setting):
        ended, traced = with_lock("k", "true"), with_lock("--traceback", "k", "true")

    assert (ended.status, ended.err.count("\n")) == (78, 1)
    assert complaint in ended.err
    assert traced.status == 78
    assert "ImproperlyConfigured" in traced.err


# Where somebody else has the lock


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("option", [["-n"], ["--nonblock"], ["-w", "0.2"], ["--wait=0"]])
def test_busy_is_status_75_and_one_line_that_says_who_holds_it(
    with_lock: Locks, option: list[str]
) -> None:
    with any_lock("k", timeout=20, label="import", user="ann", note="nightly"):
        ended = with_lock(*option, "k", "echo", "started")
        other_code = with_lock(*option, "-E", "9", "k", "true")

    assert (ended.status, ended.out, other_code.status) == (75, "", 9)
    assert re.fullmatch(
        rf"with_lock: the lock 'k' is held by ann@{socket.gethostname()}:{os.getpid()} "
        r"\(import; nightly\); the lease has (1\d\.\d|20\.0) s left\n",
        ended.err,
    )


@pytest.mark.parametrize(("expiry", "lease"), [(59_000, "has 5"), (None, "never expires")])
def test_a_foreign_holder_is_named_as_such(
    with_lock: Locks, real_cache: RealServer, expiry: int | None, lease: str
) -> None:
    real_cache.client().set("lock:k", "theirs", px=expiry)

    ended = with_lock("-n", "k", "true")

    assert ended.status == 75
    assert re.search(f"held by somebody else.*the lease {lease}", ended.err)


def test_without_an_option_it_waits_and_says_once_for_whom(start: Start) -> None:
    with override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0.1}), lock("k", label="import") as held:
        program = start("k", "echo", "started")
        said = program.message()
        eventually(lambda: inspector().get("lock:k").waiting)
        held.extend(20)

    assert program.end() == (0, "started\n", "")
    assert re.match(r"with_lock: waiting: the lock 'k' is held by \S+ \(import\); the lease", said)


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("silent", [["-q"], ["--quiet"], ["-v0"]])
@pytest.mark.parametrize("wait", [["-n"], ["-w", "0.1"]])
def test_a_busy_lock_is_told_to_nobody_who_does_not_want_to_hear_of_it(
    with_lock: Locks, silent: list[str], wait: list[str]
) -> None:
    with lock("k"):
        assert with_lock(*silent, *wait, "k", "true") == (75, "", "")
        missing = with_lock(*silent, *wait, "k", "no-such-program")

    # An error is told all the same.
    assert missing == (127, "", "with_lock: no-such-program is not found\n")


def test_one_who_waits_quietly_says_nothing(start: Start) -> None:
    with lock("k"):
        program = start("-q", "k", "true")
        eventually(lambda: inspector().get("lock:k").waiting)

    assert program.end() == (0, "", "")


@pytest.mark.matrix
def test_the_line_for_cron_in_the_docs_says_nothing_when_the_lock_is_busy(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (CHECKOUT / "docs/commands.md").read_text()
    (line,) = re.findall(r"^    \*/5 \* \* \* \*  app  (.*)$", text, re.MULTILINE)
    line = line.replace("/srv/shop", str(CHECKOUT)).replace(".venv/bin/python", sys.executable)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")

    with lock("import"):
        ended = subprocess.run(
            ["/bin/sh", "-c", line], check=False, capture_output=True, text=True, timeout=50
        )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


# What the command gets


def test_stdin_stdout_and_stderr_are_the_commands(start: Start) -> None:
    program = start("k", "sh", "-c", "printf part; cat; echo problem >&2", stdin=-1)
    assert program.stdout is not None

    # Also while the command still runs.
    assert program.stdout.read(4) == "part"
    out, err = program.communicate("some\nlines\n", timeout=20)

    assert (out, err) == ("some\nlines\n", "problem\n")


def test_words_reach_the_program_as_they_are(run: Run, tmp_path: Path) -> None:
    words = ["-c", "", "", "a  b", "$HOME", ";", "*", "\udcff", "--", "é", "x" * 10_000, ""]
    script = executable(tmp_path / "script", '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')

    out = run("k", script, *words, errors="surrogateescape")[1]

    assert out.split("\n")[:-1] == [script, *words]


def test_the_command_sees_key_token_and_fence_of_the_lock(
    start: Start, real_server: RealServer
) -> None:
    show = f'"{sys.executable}" -c "{SHOW_LOCK}"; read wait'
    program = start("order:42", "sh", "-c", show, stdin=-1)

    seen = json.loads(program.line())

    client = real_server.client(decode_responses=True)
    (held,) = json.loads(seen.pop("SETNX_LOCK_HELD_TOKENS"))
    assert (held["name"], held["token"]) == ("lock:order:42", seen["SETNX_LOCK_TOKEN"])
    assert seen == {
        "SETNX_LOCK_KEY": "order:42",
        "SETNX_LOCK_TOKEN": client.get("lock:order:42"),
        "SETNX_LOCK_FENCE": str(inspector().get("lock:order:42").fence),
    }
    program.communicate("\n", timeout=20)


def test_a_broken_stderr_changes_nothing(start: Start) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    with lock("k"):
        program = start("k", "echo", "started", stderr=writer)
        eventually(lambda: inspector().get("lock:k").waiting)
    os.close(writer)

    out, _ = program.communicate(timeout=20)
    assert (program.returncode, out) == (0, "started\n")


def test_closed_standard_streams_change_nothing(run: Run, tmp_path: Path) -> None:
    closing = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND)

    status, _, _ = run("k", "touch", str(tmp_path / "made"), command=closing)

    assert status == 0
    assert (tmp_path / "made").exists()


# Who holds it


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


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize(("command", "label"), LABELS)
def test_a_label_names_the_program_and_never_its_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, label: str
) -> None:
    for name in ("backup.sh", "manage.py", "pythonic", "python", "python3.12", "sh"):
        executable(tmp_path / name, "#!/bin/true\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with holders() as seen:
        call_command("with_lock", "k", *command.format(bin=tmp_path).split(" "))

    assert [one.partition(":")[0] for one in seen] == [f"with_lock {label}"]


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("error", [KeyError, OSError, ImportError])
def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    with holders() as seen:
        call_command("with_lock", "k", "true")

    assert f": uid {os.getuid()}@" in seen[0]


def test_the_holder_record_names_the_program_its_user_and_the_note(start: Start) -> None:
    program = start("--note", "nightly", "k", "sh", "-c", "echo on; read wait", "secret", stdin=-1)
    program.line()

    holder = inspector().get("lock:k").holder

    assert holder is not None
    assert (holder.label, holder.note) == ("with_lock sh", "nightly")
    assert (holder.host, holder.pid) == (socket.gethostname(), program.pid)
    assert holder.user
    program.communicate("\n", timeout=20)


# Other kinds of locks


@pytest.mark.usefixtures("real_cache")
def test_commands_that_share_run_beside_readers_and_not_beside_a_writer(with_lock: Locks) -> None:
    def status(*options: str) -> int:
        return with_lock("-n", *options, "report", "true").status

    with rwlock("report").read():
        beside_readers = status("--shared"), status()
    with lock("report", reentrant=False):
        beside_a_writer = status("--shared"), status("-s")

    assert beside_readers == (0, 75)
    assert beside_a_writer == (75, 75)


@pytest.mark.usefixtures("real_cache")
def test_no_more_than_the_limit_run(with_lock: Locks) -> None:
    with semaphore("report", 2):
        one_more = with_lock("-n", "--limit", "2", "report", "true")
        with semaphore("report", 2):
            two_more = with_lock("-n", "--limit=2", "report", "true")

    assert (one_more.status, two_more.status) == (0, 75)


def test_two_commands_run_at_the_same_time(start: Start, tmp_path: Path) -> None:
    both_are_there = f"touch $0; while ! test -e {tmp_path}/b; do sleep 0.01; done"
    first = start("--shared", "report", "sh", "-c", both_are_there, str(tmp_path / "a"))
    eventually((tmp_path / "a").exists)

    second = start("-n", "--shared", "report", "sh", "-c", "touch $0", str(tmp_path / "b"))

    assert (second.end()[0], first.end()[0]) == (0, 0)


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("status", [0, 1])
def test_with_min_hold_a_start_when_the_job_has_ended_finds_the_tick_used(
    with_lock: Locks, tmp_path: Path, status: int
) -> None:
    line = ("-n", "--min-hold", "3600", "tick", "sh", "-c", f"echo >>{tmp_path}/log; exit {status}")

    first, second = with_lock(*line), with_lock(*line)

    info = inspector().get("lock:tick")
    assert (first.status, second.status) == (status, 75)
    assert (tmp_path / "log").read_text() == "\n"
    assert info.state is State.KEPT
    assert info.remaining == pytest.approx(3600, abs=30)


@pytest.mark.usefixtures("real_cache")
def test_a_command_that_could_not_be_started_has_not_used_it(
    with_lock: Locks, tmp_path: Path
) -> None:
    broken = executable(tmp_path / "broken", "#!/no/such/interpreter\n")

    assert with_lock("--min-hold", "20", "tick", broken).status == 126
    assert state_of("tick") is State.FREE
