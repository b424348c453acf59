from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import BaseCommand, CommandError


def command(name: str = "with_lock") -> BaseCommand:
    return load_command_class("django_setnx_lock", name)


def parse(line: str) -> dict[str, Any]:
    """Return the options that code which calls the command gives by a line."""
    return vars(command().create_parser("manage.py", "with_lock").parse_args(line.split()))


@pytest.mark.parametrize(
    ("line", "key", "command"),
    [
        ("k cmd arg", "k", "cmd arg"),
        ("k -- cmd", "k", "cmd"),
        ("-n k cmd", "k", "cmd"),
        ("--skip-checks k cmd", "k", "cmd"),
        ("-w 5 k cmd 6", "k", "cmd 6"),
        ("-w5 --note=x k cmd", "k", "cmd"),
        ("--settings x k -- cmd --settings y", "k", "cmd --settings y"),
        ("k cmd -a -- -b -- -c", "k", "cmd -a -- -b -- -c"),
        ("k cmd --", "k", "cmd --"),
        ("k -- cmd -- file", "k", "cmd -- file"),
        ("-n -- -k cmd", "-k", "cmd"),
        ("k cmd -n -w 5 --wait x", "k", "cmd -n -w 5 --wait x"),
        ("k cmd --no --non --t --timeout", "k", "cmd --no --non --t --timeout"),
        ("k cmd -1 -", "k", "cmd -1 -"),
        ("k cmd -- --settings=x", "k", "cmd -- --settings=x"),
    ],
)
def test_what_follows_the_key_belongs_to_the_command(line: str, key: str, command: str) -> None:
    options = parse(line)

    assert (options["key"], options["command"]) == (key, command.split())


def test_options_before_the_key_are_its_own_by_their_names_and_letters() -> None:
    options = parse("-w 1.5 --timeout 9 --using other --note weekly -v 0 k cmd -w 3 --note no")
    by_letters = parse("-E 9 -n -s -k 2 k cmd")

    assert (options["wait"], options["timeout"], options["nonblock"]) == (1.5, 9, False)
    assert (options["using"], options["note"], options["verbosity"]) == ("other", "weekly", 0)
    assert (by_letters["busy_code"], by_letters["kill_after"]) == (9, 2.0)
    assert (by_letters["nonblock"], by_letters["shared"]) == (True, True)


# What with_lock refuses, and with what words; "{nul}" and "{bad}" stand for what no line can have.
REFUSED = [
    ("", "required: KEY"),
    ("-n", "required: KEY"),
    ("--", "required: KEY"),
    ("k", "CMD is missing"),
    ("k --", "CMD is missing"),
    ("-- k", "CMD is missing"),
    ("-- k --", "options go before KEY"),
    ("k -n cmd", "options go before KEY"),
    ("k --wait 5 -- cmd", "options go before KEY"),
    ("--nosuch k cmd", "unrecognized arguments: --nosuch"),
    ("--wai 5 k cmd", "unrecognized arguments: --wai"),
    ("--note -- k cmd", "expected one argument"),
    ("-n -w 5 k cmd", "-w/--wait: not allowed with argument -n"),
    ("k cmd --settings=x", "write -- before CMD"),
    ("k cmd --settings x -- y", "write -- before CMD"),
    ("k cmd --pythonpath x", "write -- before CMD"),
    ("-w soon k cmd", "invalid float value: 'soon'"),
    ("-w -1 k cmd", "--wait is None or a number of seconds from 0"),
    ("-w nan k cmd", "--wait is None or"),
    ("--timeout 0 k cmd", "--timeout is a number of seconds from 0.001"),
    ("--timeout=-1 k cmd", "--timeout is a number of seconds from 0.001"),
    ("--timeout nan k cmd", "--timeout is a number"),
    ("--timeout inf k cmd", "--timeout is a number"),
    ("--limit 0 k cmd", "--limit is a number from 1"),
    ("--limit x k cmd", "invalid int value: 'x'"),
    ("--limit 2 --shared k cmd", "--shared and limit do not go together"),
    ("--limit 2 --min-hold 3 k cmd", "--min-hold is for a lock that is held alone"),
    ("--shared --min-hold 3 k cmd", "--min-hold is for a lock that is held alone"),
    ("--min-hold 0 k cmd", "--min-hold is None or a number"),
    ("--min-hold inf k cmd", "--min-hold is None or a number"),
    ("--replicas -1 k cmd", "--replicas is None or a number of replicas"),
    ("-E 256 k cmd", "--busy-code is a number from 0 to 255"),
    ("-E=-1 k cmd", "--busy-code is a number from 0 to 255"),
    ("--kill-after -1 k cmd", "--kill-after is a number of seconds from 0 to 12"),
    ("--kill-after nan k cmd", "--kill-after is a number of seconds from 0 to 12"),
    ("--kill-after 12.1 k cmd", "from 0 to 12 with a lease of 30 s"),
    ("--timeout 5 --kill-after 2.1 k cmd", "from 0 to 2 with a lease of 5 s"),
    ("{none} cmd", "key must not be empty"),
    ("a}}b cmd", "braces"),
    ("a{bad}b cmd", "not UTF-8"),
    ("k c{nul}md", "NUL"),
]


@pytest.mark.parametrize(("line", "complaint"), REFUSED)
def test_a_wrong_command_line_ends_with_64_and_one_line(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(none="", bad="\udcff", nul="\0") for word in line.split()]

    with pytest.raises(SystemExit) as ended:
        command().run_from_argv(["manage.py", "with_lock", *words])

    out, err = capsys.readouterr()
    assert ended.value.code == 64
    assert complaint in err
    assert (out, err.count("\n"), err[:11]) == ("", 1, "with_lock: ")


def test_called_from_code_it_raises_instead_of_ending_the_program() -> None:
    with pytest.raises(CommandError, match="required: KEY") as raised:
        call_command("with_lock", "-n")

    assert raised.value.returncode == 64


def test_called_from_code_the_command_may_have_djangos_options() -> None:
    assert parse("k cmd --settings=x")["command"] == ["cmd", "--settings=x"]


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?\w[\w-]*", text))


def test_help_has_the_exit_statuses_and_only_options_that_the_docs_tell_of() -> None:
    shown = command().create_parser("manage.py", "with_lock").format_help()
    table = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    djangos = options_in(BaseCommand().create_parser("manage.py", "x").format_help())

    assert "with_lock [options] KEY [--] CMD [ARG...]" in shown
    assert options_in(shown) - options_in(table) <= djangos
    assert shown.count("  --") > 11
    statuses = ("64", "69", "75", "76", "78", "126", "127", "128+N")
    assert [status for status in statuses if status not in shown] == []


@pytest.mark.parametrize(
    "line",
    ["", "lst", "list --state hold", "list --sort lease", "list --reverse", "list --watch",
     "list extra", "show", "graph", "extend k", "dismiss k", "history --end lost",
     "history --limit 0", "history --limit x", "doctor --worker-timeout 5",
     "doctor --strict", "check --max-held soon", "check --max-held nan", "check --max-wait=-1",
     "check --state red", "check --max-heldd 5", "check order:42",
     "release k --user ann", "release k --dry-run",
     "release k --state held"],
)  # fmt: skip
def test_a_wrong_line_for_locks_ends_with_64_and_one_line(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command("locks").run_from_argv(["manage.py", "locks", *line.split()])

    out, err = capsys.readouterr()
    assert ended.value.code == 64
    assert (out, err.count("\n"), err[:7]) == ("", 1, "locks: ")
