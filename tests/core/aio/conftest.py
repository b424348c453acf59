from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fake_connections(fake_connections: None) -> None:
    """Have all tests here run on the fake, too."""
