"""Renewals, as a caller sees them: the end of a lease moves."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.processes import eventually
from tests.support import seams

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle

# Two readings of the clock are less than this apart.
APART = 0.0005
# Of a thread that renews.
NAME = "setnx-lock-renewal"
# For programs that tests start.
IS_RENEWED = """
import time
def is_renewed(held):
    end, give_up = time.monotonic() + held.remaining(), time.monotonic() + 20
    while time.monotonic() < give_up and not held.lost:
        time.sleep(0.01)
        if time.monotonic() + held.remaining() > end + 0.1:
            return True
    return False
"""


def end_of(held: LockHandle) -> float:
    """Return when the lease ends, by ``time.monotonic()``."""
    return time.monotonic() + held.remaining()


def is_longer(held: LockHandle, end: float) -> bool:
    """Return whether the lease ends later than at ``end``."""
    return not held.lost and end_of(held) > end + APART


def is_renewed(held: LockHandle) -> bool:
    """Have ``held`` renewed at once; say whether that worked before its lease was over."""
    # In this order: who is kept waiting between the two takes it for later, and not for renewed.
    before = held.remaining() + time.monotonic()
    time.sleep(2 * APART)
    seams.renew_now(held)
    eventually(lambda: is_longer(held, before) or held.lost, seconds=held.timeout + 10)
    return not held.lost


def threads() -> list[threading.Thread]:
    """Return the threads that renew."""
    return [thread for thread in threading.enumerate() if thread.name == NAME]
