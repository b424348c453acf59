"""What with_lock's exit status means, beside being that of the command it ran.

The names of sysexits.h where it has one, else what shells say.
"""

from __future__ import annotations

import os
from typing import Final

USAGE: Final = os.EX_USAGE
UNAVAILABLE: Final = os.EX_UNAVAILABLE
BUSY: Final = os.EX_TEMPFAIL
LOST: Final = os.EX_PROTOCOL
MISCONFIGURED: Final = os.EX_CONFIG
TIMED_OUT: Final = 124
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127


def killed_by(signum: int) -> int:
    """The status that tells of an end by the signal ``signum``."""
    return 128 + signum
