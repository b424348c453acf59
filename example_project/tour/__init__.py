"""The tour that `make demo` takes: what a visitor of the shop sees of its locks."""

from __future__ import annotations


class WentWrong(Exception):
    """The tour did not go as told; the message says what was expected, and what came."""
