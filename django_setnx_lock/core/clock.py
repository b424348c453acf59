"""The local clock that leases are counted on."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds on a clock that never steps and, on Linux, goes on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover - platforms without CLOCK_BOOTTIME, e.g. macOS

    def now() -> float:
        """Seconds on a clock that never steps."""
        return time.monotonic()
