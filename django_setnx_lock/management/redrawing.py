"""The list of the locks, drawn once or again and again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from .listing import Found, as_json, as_table, find, gather, in_order

# Back to the top left corner, with nothing behind it.
_CLEAR = "\x1b[H\x1b[J"


def read(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    """The locks that ``options`` ask for, and what is wrong. Raises ImproperlyConfigured."""
    found, troubles = gather(
        options["using"],
        lambda look: find(
            look,
            search=options["search"],
            states=options["state"] or (),
            everything=options["everything"],
        ),
    )
    return in_order(found, options["sort"], reverse=options["reverse"]), troubles


def draw(found: Sequence[Found], troubles: Sequence[str], options: dict[str, Any]) -> list[str]:
    """What is printed of ``found``. Troubles are in it only where there is one document for all."""
    if options["json"]:
        # One document a line where there is one after the other.
        indent = 2 if options["watch"] is None else None
        return [json.dumps(as_json(found, troubles), indent=indent)]
    if not found:
        return [] if troubles else ["No locks."]
    return [*as_table(found), "", f"{len(found)} lock{'s' * (len(found) != 1)}"]


def watch(
    options: dict[str, Any],
    write: Callable[[str], object],
    *,
    is_terminal: bool,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Draw the list every ``options["watch"]`` seconds, until Ctrl-C.

    On a terminal each drawing takes the place of the one before, as far as it fits. While Redis
    cannot be asked that is said, and tried again. ``pause``: waits so many seconds.
    """
    try:
        while True:
            found, troubles = read(options)
            lines = draw(found, troubles, options)
            if not options["json"]:
                now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"
                lines = [now, "", *troubles, *lines, ""]
                if is_terminal:
                    lines = [_CLEAR + now, *_fitting(lines[1:], *shutil.get_terminal_size())]
            write("\n".join(lines))
            pause(options["watch"])
    except KeyboardInterrupt:
        return


def _fitting(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    # One line is above them, and the cursor below.
    shown = list(lines) if len(lines) <= rows - 2 else [*lines[: rows - 3], "…"]
    return [line[:columns] for line in shown]
