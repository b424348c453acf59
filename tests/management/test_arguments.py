from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand, CommandError


def command(name: str = "with_lock") -> BaseCommand:
    return load_command_class("django_setnx_lock", name)


def parse(line: str) -> dict[str, Any]:
    """Return the options that code which calls the command gives by a line."""
    return vars(command().create_parser("manage.py", "with_lock").parse_args(line.split()))


@pytest.mark.parametrize(
    ("line", "key", "command"),
    [
        ("k cmd", "k", "cmd"),
        ("k -- cmd", "k", "cmd"),
        ("k cmd arg", "k", "cmd arg"),
        ("-n k cmd", "k", "cmd"),
        ("--skip-checks k cmd", "k", "cmd"),
        ("-w 5 k cmd 6", "k", "cmd 6"),
        ("-w5 --note=x k cmd", "k", "cmd"),
        ("--settings x k -- cmd --settings y", "k", "cmd --settings y"),
        ("k cmd -- file", "k", "cmd -- file"),
        ("k cmd --", "k", "cmd --"),
        ("k cmd -a -- -b -- -c", "k", "cmd -a -- -b -- -c"),
        ("k -- cmd -- file", "k", "cmd -- file"),
        ("-n -- -k cmd", "-k", "cmd"),
        ("k cmd -n -w 5 --wait x", "k", "cmd -n -w 5 --wait x"),
        ("k cmd --no --non --t --ver", "k", "cmd --no --non --t --ver"),
        ("k cmd --timeout", "k", "cmd --timeout"),
        ("k cmd -1 -", "k", "cmd -1 -"),
        ("k cmd -- --settings=x", "k", "cmd -- --settings=x"),
        ("k -- cmd --pythonpath x", "k", "cmd --pythonpath x"),
    ],
)
def test_what_follows_the_key_belongs_to_the_command(line: str, key: str, command: str) -> None:
    options = parse(line)

    assert (options["key"], options["command"]) == (key, command.split())


def test_options_before_the_key_are_its_own() -> None:
    options = parse("-w 1.5 --timeout 9 --using other --note weekly -v 0 k cmd -w 3 --note no")

    assert (options["wait"], options["timeout"]) == (1.5, 9)
    assert (options["using"], options["note"], options["verbosity"]) == ("other", "weekly", 0)
    assert options["nonblock"] is False


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
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
        ("-w soon k cmd", "invalid float value: 'soon'"),
        ("-w -1 k cmd", "--wait is None or a number of seconds from 0"),
        ("--limit 0 k cmd", "--limit is a number from 1"),
        ("--replicas -1 k cmd", "--replicas is None or a number of replicas"),
        ("--limit 2 --min-hold 3 k cmd", "--min-hold is for a lock that is held alone"),
        ("--note -- k cmd", "expected one argument"),
        ("-n -w 5 k cmd", "-w/--wait: not allowed with argument -n"),
        ("k cmd --settings=x", "write -- before CMD"),
        ("k cmd --settings x -- y", "write -- before CMD"),
        ("k cmd --pythonpath x", "write -- before CMD"),
    ],
)
def test_a_wrong_command_line_ends_with_64_and_one_line(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command().run_from_argv(["manage.py", "with_lock", *line.split()])

    out, err = capsys.readouterr()
    assert ended.value.code == 64
    assert complaint in err
    assert (out, err.count("\n"), err[:11]) == ("", 1, "with_lock: ")


def test_called_from_code_it_raises_instead_of_ending_the_program() -> None:
    with pytest.raises(CommandError, match="required: KEY") as raised:
        parse("-n")

    assert raised.value.returncode == 64


def test_called_from_code_the_command_may_have_djangos_options() -> None:
    options = parse("k cmd --settings=x")

    assert options["command"] == ["cmd", "--settings=x"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-E 9 -n -s", {"busy_code": 9, "nonblock": True, "shared": True}),
        ("-k 2 --timeout 20", {"kill_after": 2.0, "timeout": 20.0}),
    ],
)
def test_options_have_the_names_that_other_tools_give_them(
    options: str, expected: dict[str, object]
) -> None:
    assert parse(f"{options} k true").items() >= expected.items()


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
