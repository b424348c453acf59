from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire.running import Wire

if TYPE_CHECKING:
    import redis


@pytest.fixture
def wire(redis_client: redis.Redis) -> Wire:
    """Give what sends each script to each server in turn."""
    return Wire(redis_client)
