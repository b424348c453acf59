"""What with_lock's exit status means, beside being that of the command it ran.

The names of sysexits.h where it has one, else what shells say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.core.management.base import CommandError

USAGE: Final = os.EX_USAGE
UNAVAILABLE: Final = os.EX_UNAVAILABLE
UNWRITTEN: Final = os.EX_IOERR
BUSY: Final = os.EX_TEMPFAIL
LOST: Final = os.EX_PROTOCOL
MISCONFIGURED: Final = os.EX_CONFIG
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127


def killed_by(signum: int) -> int:
    """Return the status that tells of an end by the signal ``signum``."""
    return 128 + signum


@contextmanager
def given_for(errors: type[Exception] | tuple[type[Exception], ...], status: int) -> Iterator[None]:
    """Raise CommandError with ``status`` in place of any of ``errors``."""
    try:
        yield
    except errors as error:
        raise CommandError(str(error), returncode=status) from error
