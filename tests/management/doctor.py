"""``manage.py locks doctor --json``, and what it found."""

from __future__ import annotations

import json
from contextlib import suppress
from io import StringIO
from typing import NamedTuple

from django.core.management import call_command
from django.core.management.base import CommandError


class Finding(NamedTuple):
    """One finding, as the command writes it."""

    id: str
    level: str
    using: str
    message: str
    hint: str


class Report(NamedTuple):
    """What was examined, by cache alias, and what was found."""

    examined: dict[str, str]
    findings: list[Finding]

    @property
    def by_id(self) -> dict[str, Finding]:
        """The findings by their ids."""
        return {one.id: one for one in self.findings}


def examine(*arguments: str) -> Report:
    """Run the command in this process; return its report, also when there are errors in it."""
    out = StringIO()
    with suppress(CommandError):
        call_command("locks", "doctor", "--json", *arguments, stdout=out)
    document = json.loads(out.getvalue())
    return Report(document["examined"], [Finding(**one) for one in document["findings"]])
