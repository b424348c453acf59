"""Searches of every order of events within bounds: see README.md.

``test_rules.py`` runs the scripts of the core to come, ``test_shared.py`` today's for locks
that several hold. The timestamp protocol has models of its own.
"""

from __future__ import annotations
