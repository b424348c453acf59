"""Searches of every order of events within bounds: see README.md.

``test_rules.py`` runs the scripts. The timestamp protocol has models of its own.
"""

from __future__ import annotations
