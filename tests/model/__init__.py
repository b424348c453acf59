"""Searches of every order of events within bounds.

Those for locks that are shared run the scripts of the package. The timestamp protocol has models
of its own.
"""

from __future__ import annotations
