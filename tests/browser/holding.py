"""A program that holds locks until it is ended: KEY KIND COUNT TIMEOUT.

KIND is ``alone`` (COUNT locks, each with a number behind KEY), ``read`` or ``permit`` (COUNT
holders of the one lock).
"""

from __future__ import annotations

import os
import sys
import time

import django


def main(key: str, kind: str, count: str, timeout: str) -> None:
    """Take them, say so, and hold them."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from tests.support.seams import any_lock

    held = []
    for number in range(int(count)):
        name = f"{key}:{number}" if kind == "alone" and int(count) > 1 else key
        lock = any_lock(
            name,
            timeout=float(timeout),
            shared=kind == "read",
            limit=40 if kind == "permit" else None,
            label="nightly",
            user="ann",
        )
        held.append(lock.take(0))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    # They are renewed, and asked about by nobody.
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
