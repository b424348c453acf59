"""What the tests of interrupts have in common."""

from __future__ import annotations

import pytest

# A signal may come between making an operation and beginning it. Nothing has been sent then, so
# all that is left of it is this warning of Python's.
NEVER_BEGAN = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name.startswith("test_interrupts"):
            item.add_marker(NEVER_BEGAN)
