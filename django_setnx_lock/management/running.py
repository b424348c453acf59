"""What is to be run: CMD as it stands, a line for the shell, or another management command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.management import get_commands

from . import statuses
from .child import CannotRun
from .wording import label_for

_SHELL = "/bin/sh"


class Program(NamedTuple):
    """``command`` as it is executed, and what the holder record calls it."""

    command: list[str]
    label: str


def program_of(options: Mapping[str, Any], *, is_program: bool) -> Program:
    """What ``options`` ask for; ``is_program`` as with_lock itself was started from a shell.

    Raises CannotRun when there is no such management command.
    """
    if options["shell_line"] is not None:
        command = [_SHELL, "-c", options["shell_line"]]
    elif options["manage"] is not None:
        return _managed(options, is_program)
    else:
        command = options["command"]
    return Program(command, label_for(command))


def _managed(options: Mapping[str, Any], is_program: bool) -> Program:
    name = options["manage"]
    if name not in get_commands():
        raise CannotRun(f"there is no management command {name!r}", statuses.NOT_FOUND)
    script = sys.argv[0] if is_program and sys.argv else ""
    # As Django does, which calls ``python -m django`` by that file's name.
    is_script = script.endswith(".py") and os.path.basename(script) != "__main__.py"
    utility = [script] if is_script else ["-m", "django"]
    # The settings are in the environment by now.
    path = options.get("pythonpath")
    given = [f"--pythonpath={path}"] if path else []
    command = [sys.executable, *utility, name, *given, *options["command"]]
    shown = os.path.basename(script) if is_script else "django"
    return Program(command, f"with_lock {shown} {name}")
