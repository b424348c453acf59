"""The local clock that leases are counted on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

if hasattr(time, "CLOCK_BOOTTIME"):
    #: Seconds on a clock that never steps and, on Linux, goes on while the machine sleeps.
    now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:  # pragma: no cover - platforms without CLOCK_BOOTTIME, e.g. macOS
    now = time.monotonic
