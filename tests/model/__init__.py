"""A model of how waiters hand a lock on to one another without polling.

These are the rules that waiting is to follow; :mod:`django_setnx_lock.core.waiting` polls as yet.
"""

from __future__ import annotations
