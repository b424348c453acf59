"""A model of how waiters hand a lock on to one another without polling.

The scripts in :mod:`django_setnx_lock.core.protocol.scripts` and
:mod:`django_setnx_lock.core.locks.mailbox` follow these rules, and so does the watchdog in sending
LOOK.
"""

from __future__ import annotations
