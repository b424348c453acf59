"""The fixture ``locks``. pytest loads this everywhere, so it imports nothing until it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .helpers import LockTester

_OPTION = "setnx_lock_leftovers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for locks that are held at the end of a test."""
    parser.addini(_OPTION, "locks held at the end of a test: fail, warn or ignore", default="fail")


@pytest.fixture
def locks(pytestconfig: pytest.Config) -> Iterator[LockTester]:
    """Give django-setnx-lock's helpers, with an empty server in memory behind its caches."""
    from .helpers import LockTester

    with LockTester(pytestconfig.getini(_OPTION)) as tester:
        yield tester
