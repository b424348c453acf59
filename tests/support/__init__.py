"""What tests of several folders have at hand."""

from __future__ import annotations

from tests.support import next_core

# Before any test imports a lock.
next_core.put_in_place()
