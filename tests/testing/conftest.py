from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.testing import LockTester

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def locks() -> Iterator[LockTester]:
    """Give the kit as its plugin does, whether or not that is installed."""
    with LockTester() as tester:
        yield tester
