"""Fixtures for pytest, which loads this everywhere: it imports nothing until one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .helpers import LockTester

_LEFTOVERS, _SUITE = "setnx_lock_leftovers", "setnx_lock_suite"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    text = "locks held at the end of a test: fail, warn or ignore"
    parser.addini(_LEFTOVERS, text, default="fail")
    parser.addini(_SUITE, "whether all tests have locks in memory", type="bool", default=False)


@pytest.fixture
def locks(pytestconfig: pytest.Config) -> Iterator[LockTester]:
    """Give django-setnx-lock's helpers, with an empty server in memory behind its caches."""
    from .helpers import LockTester

    with LockTester(pytestconfig.getini(_LEFTOVERS)) as tester:
        yield tester


@pytest.fixture(scope="session", autouse=True)
def _setnx_lock_suite(pytestconfig: pytest.Config) -> Iterator[None]:
    """Have what fixtures of classes and modules lock in memory, too."""
    if not pytestconfig.getini(_SUITE):
        yield
        return
    from .memory import Memory

    with Memory():
        yield


@pytest.fixture(autouse=True)
def _setnx_lock_test(request: pytest.FixtureRequest, _setnx_lock_suite: None) -> None:
    if request.config.getini(_SUITE):
        request.getfixturevalue("locks")
