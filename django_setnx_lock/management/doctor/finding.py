"""What the doctor has to say."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .patient import Patient


class Severity(enum.IntEnum):
    """How bad a finding is.

    ERROR: locks cannot be taken, or can vanish while they are held. WARNING: they can in some
    event, or callers wait longer than they were told. INFO: good to know.
    """

    INFO = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One of them: ``seen`` is what there is, ``remedy`` what to do. ``using``: the cache alias."""

    id: str
    severity: Severity
    using: str
    seen: str
    remedy: str

    @property
    def docs(self) -> str:
        """Where to read on."""
        return f"docs/locks-command.md#{self.id.lower()}"


# Looks for one kind of findings.
Examination = Callable[[Patient], Iterator[Finding]]
